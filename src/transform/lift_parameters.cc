#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"

namespace lathe {

namespace {

/// Who reads and sets a parameter, in program order.
struct Uses {
  std::vector<Operation*> reads, sets;
  bool in_region = false;   // it is set there
  bool read_again = false;  // after it was set
};

/// A parameter that is read after it was set, or set twice, is set at the end alone. One that a
/// region sets becomes a mutable tensor for the time of a run, which regions write: what is known
/// of such tensors holds for it.
class LiftParametersPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    Rewriter rewriter(program, this);
    for (auto& [name, uses] : UsesIn(program)) {
      const bool stays = !uses.in_region && !uses.read_again && uses.sets.size() <= 1;
      if (!stays && MayLift(rewriter, name, uses)) Lift(rewriter, name, uses);
    }
  }

 private:
  static std::map<std::string, Uses> UsesIn(const Program& program) {
    std::map<std::string, Uses> all;
    for (OpWalker w(program.block()); Operation* op = w.Next();) {
      if (op->isa<builtin::FuncOp>()) w.SkipRegions();
      if (const auto read = op->dyn_cast<builtin::GetParameterOp>()) {
        Uses& uses = all[std::string(read.name())];
        uses.reads.push_back(op);
        uses.read_again |= !uses.sets.empty();
      }
      if (const auto set = op->dyn_cast<builtin::SetParameterOp>()) {
        Uses& uses = all[std::string(set.name())];
        uses.sets.push_back(op);
        uses.in_region |= op->block() != program.block();
      }
    }
    return all;
  }

  static bool MayLift(Rewriter& rewriter, std::string_view name, const Uses& uses) {
    const Program& program = rewriter.program();
    const Variable* variable = program.parameters().Find(name);
    const bool has_value = variable != nullptr && variable->data.is_defined();
    const auto refuse = [&](std::string why) {
      rewriter.Missed(uses.sets[0], std::move(why));
      return false;
    };
    if (!has_value && uses.reads.empty()) {
      return refuse(StrCat("parameter '", name, "' has no value before"));
    }
    const auto type = ValueTypeOf(uses.sets[0]);
    const bool is_held = !has_value || type == TypeOf(program, *variable);
    const bool is_set = std::ranges::all_of(
        uses.sets, [&](const Operation* set) { return ValueTypeOf(set) == type; });
    if (is_held && is_set && type.is_static()) return true;
    return refuse(StrCat("it may change the type of '", name, "'"));
  }

  static AnyTensorType ValueTypeOf(const Operation* set) {
    return set->operand(0).type().cast<AnyTensorType>().AsValue().cast<AnyTensorType>();
  }

  static Type TypeOf(const Program& program, const Variable& variable) {
    const SymShape shape = SymShape::FromConstants(variable.data.shape());
    return VTensorType::Get(program.context(), shape, variable.data.element_type());
  }

  void Lift(Rewriter& rewriter, std::string_view name, const Uses& uses) {
    Block* block = rewriter.program().block();
    const NamedAttribute named = rewriter.Named("name", rewriter.Attr(name));
    const Type type = ValueTypeOf(uses.sets[0]);
    rewriter.SetInsertionPoint(block->front());
    rewriter.set_location(uses.sets[0]->location());
    Value now =
        rewriter.Builder::Create(builtin::kGetParameter, {}, {&named, 1}, {&type, 1})->result(0);
    if (uses.in_region) {
      now = rewriter.Create(builtin::kToTensor, {&now, 1})->result(0);
      for (Operation* read : uses.reads) Read(rewriter, read, now);
      for (Operation* set : uses.sets) Write(rewriter, set, now);
    } else {
      now = Forward(rewriter, uses, now);
    }
    rewriter.SetInsertionPointToEnd(block);
    if (uses.in_region) now = rewriter.Create(builtin::kToVtensor, {&now, 1})->result(0);
    rewriter.Create(builtin::kSetParameter, {&now, 1}, {&named, 1});
  }

  /// Gives what it is in the end.
  Value Forward(Rewriter& rewriter, const Uses& uses, Value now) {
    std::vector<Operation*> order = uses.reads;
    order.insert(order.end(), uses.sets.begin(), uses.sets.end());
    const std::unordered_set<Operation*> known(order.begin(), order.end());  // asked only
    order.clear();
    for (OpWalker w(rewriter.program().block()); Operation* op = w.Next();) {
      if (known.contains(op)) order.push_back(op);
    }
    for (Operation* op : order) {
      if (op->isa<builtin::SetParameterOp>()) {
        rewriter.SetInsertionPoint(op);
        now = Immutable(rewriter, op->operand(0));
        rewriter.Applied(op, "a parameter is set at the end");
        rewriter.Erase(op);
      } else {
        Read(rewriter, op, now);
      }
    }
    return now;
  }

  static Value Immutable(Rewriter& rewriter, Value value) {
    if (value.type().cast<AnyTensorType>().is_value()) return value;
    return rewriter.Create(builtin::kToVtensor, {&value, 1})->result(0);
  }

  static void Read(Rewriter& rewriter, Operation* read, Value now) {
    rewriter.SetInsertionPoint(read);
    rewriter.set_location(read->location());
    Value value = Immutable(rewriter, now);
    const auto wanted = read->result(0).type().cast<AnyTensorType>();
    if (!wanted.is_value()) value = rewriter.Create(builtin::kToTensor, {&value, 1})->result(0);
    rewriter.ReplaceOp(read, value);
  }

  static void Write(Rewriter& rewriter, Operation* set, Value now) {
    rewriter.SetInsertionPoint(set);
    rewriter.set_location(set->location());
    const Value operands[] = {now, set->operand(0)};
    rewriter.Create(nn::kCopyInplace, operands);
    rewriter.Applied(set, "a parameter became a tensor that the program writes");
    rewriter.Erase(set);
  }
};

REGISTER_PASS(lift_parameters, LiftParametersPass)
    .Doc("parameters that regions set, or that are read after they were set, are set at the end")
    .Details(
        "What is read then is the value itself, so that fusion sees no order but that of values. A "
        "parameter that a region sets becomes a mutable tensor; `maximize_value_semantics` has the "
        "region give what it leaves there. Plans hold what is set outside of regions.");

}  // namespace

}  // namespace lathe
