#include "src/driver/object_values.h"

#include <algorithm>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/walk.h"
#include "src/dialect/bound_sizes.h"
#include "src/dialect/cf/loop_sizes.h"
#include "src/driver/plan_operations.h"

namespace lathe {

// Goes over the program as a run does, with the symbols that are known there.
class ObjectFinder {
 public:
  ObjectFinder(const Program& program, const PlannedFunctions& functions, ObjectValues& found)
      : functions_(functions), found_(found) {
    for (const auto& symbol : SymbolsOf(program)) symbols_.insert(symbol.name);
    for (Operation* feed : program.feeds()) Place(feed->result(0));
    for (Operation* op : PlannedOrder(program)) Visit(op);
  }

 private:
  using Symbols = std::unordered_set<std::string>;

  // Its bytes are known where these symbols are, and nobody else changes them.
  bool IsPlaced(Type type) const {
    const auto tensor = type.dyn_cast<AnyTensorType>();
    if (!tensor || !tensor.is_value() || !tensor.has_rank()) return false;
    if (BitWidth(tensor.element()) == 0 || BytesOf(tensor).is_unknown()) return false;
    std::vector<std::string> names;
    for (const Dim& d : tensor.dims()) {
      if (d.is_unknown()) return false;
      d.CollectSymbols(names);
    }
    return std::ranges::all_of(names, [&](const auto& name) { return symbols_.contains(name); });
  }

  void Visit(Operation* op) {
    if (op->isa<nn::FeedOp>()) return;
    AddBound(op);
    if (op->isa<cf::IfOp>()) return BeginIf(op);
    if (op->isa<cf::WhileOp>()) return BeginLoop(op);
    if (op->isa<cf::YieldOp>()) return EndRegion(op);
    if (op->isa<nn::BindSizesOp>()) {
      if (found_.contains(op->operand(0))) AddObject(op->result(0));
      return;
    }
    if (op->isa<builtin::CallOp>() && !HasKernelFor(op)) {
      found_.evaluated_.insert(op);
    }
    for (size_t i = 0; i < op->num_results(); ++i) Place(op->result(i));
  }

  // What regions bind may be a size of the results.
  void AddBound(const Operation* op) {
    for (std::string& name : BoundSizes(op)) symbols_.insert(std::move(name));
    for (const Region& region : op->regions()) {
      for (OpWalker w(region.front()); const Operation* inner = w.Next();) {
        for (std::string& name : BoundSizes(inner)) symbols_.insert(std::move(name));
      }
    }
  }

  bool HasKernelFor(const Operation* call) const {
    const PlannedFunction* f = CalleeOf(call, functions_);
    if (f == nullptr || (!f->data && f->kernel == runtime::kNone)) return false;
    for (size_t i = 0; i < call->num_results(); ++i) {
      if (!IsPlaced(call->result(i).type())) return false;
    }
    for (size_t i = 0; i < call->num_operands(); ++i) {
      const Value v = call->operand(i);
      const bool is_object = v && found_.contains(v);
      if (is_object && (f->data || !IsPlaced(v.type()))) return false;
    }
    return true;
  }

  // As an object, if nothing else is possible.
  void Place(Value v) {
    if (!IsPlaced(v.type())) AddObject(v);
  }

  void AddObject(Value v) {
    if (!found_.objects_.insert(v).second) return;
    const auto type = v.type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) return;
    for (uint32_t axis = 0; axis < type.rank(); ++axis) {
      const Dim& dim = type.dims()[axis];
      if (!dim.is_symbol() || symbols_.contains(std::string(dim.symbol_name()))) continue;
      found_.sizes_[v].emplace_back(axis, std::string(dim.symbol_name()));
      symbols_.insert(std::string(dim.symbol_name()));
    }
  }

  static bool SameType(Type a, Type b) {
    const auto x = a.dyn_cast<AnyTensorType>(), y = b.dyn_cast<AnyTensorType>();
    return x && y && x.has_rank() && y.has_rank() && x.element() == y.element() &&
           std::ranges::equal(x.dims(), y.dims(), ProvablyEqual);
  }

  // A result lies in one place, whichever region gives it.
  void BeginIf(Operation* op) {
    open_.push_back(symbols_);
    for (size_t i = 0; i < op->num_results(); ++i) {
      const Value result = op->result(i);
      bool fits = IsPlaced(result.type());
      for (const Region& region : op->regions()) {
        fits = fits && SameType(region.front()->back()->operand(i).type(), result.type());
      }
      if (!fits) pending_.insert(result);
    }
  }

  void BeginLoop(Operation* op) {
    open_.push_back(symbols_);
    const LoopOperands operands(op);
    Block* body = op->region(0).front();
    for (size_t i = 0; i < body->num_arguments(); ++i) {
      const bool is_carried = i >= cf::kLoopArguments;
      const size_t k = i - cf::kLoopArguments;
      if (is_carried && !KeepsType(op, k)) pending_.insert(op->result(k));
      const bool is_object =
          is_carried ? pending_.contains(op->result(k)) : !IsPlaced(body->argument(i).type());
      if (is_object) AddObject(body->argument(i));
    }
    for (size_t i = operands.carried.size(); i < op->num_results(); ++i) {
      const Type type = op->result(i).type();
      if (!IsPlaced(type) || IsSaidInRounds(op, type)) pending_.insert(op->result(i));
    }
  }

  // Start, argument and what the body yields are of one type, and lie in one place: what is yielded
  // says how large that is for the next round.
  bool KeepsType(const Operation* op, size_t i) const {
    const Block* body = op->region(0).front();
    const Value start = LoopOperands(op).carried[i];
    const auto next = body->back()->operand(i + 1).type().dyn_cast<AnyTensorType>();
    const bool is_open =
        !next || !next.has_rank() || std::ranges::any_of(next.dims(), &Dim::is_unknown);
    if (is_open) return false;
    return !found_.contains(start) && IsPlaced(body->argument(cf::kLoopArguments + i).type()) &&
           IsPlaced(op->result(i).type()) && KeepsTypeInLoop(op, i);
  }

  // What is known within a region is not known after it, but for what `AddBound` says.
  void EndRegion(Operation* yield) {
    Operation* op = yield->parent_op();
    if (!op->isa<cf::IfOp>() && !op->isa<cf::WhileOp>()) return;
    symbols_ = open_.back();
    const bool is_last = yield->block() == op->region(op->num_regions() - 1).front();
    if (!is_last) return;
    open_.pop_back();
    for (size_t i = 0; i < op->num_results(); ++i) {
      if (pending_.contains(op->result(i))) AddObject(op->result(i));
    }
  }

  const PlannedFunctions& functions_;
  ObjectValues& found_;
  Symbols symbols_;
  std::vector<Symbols> open_;          // before the regions that the walk is in
  std::unordered_set<Value> pending_;  // results of these that are objects; asked, never iterated
};

ObjectValues::ObjectValues(const Program& program, const PlannedFunctions& functions) {
  ObjectFinder(program, functions, *this);
}

const ObjectValues::Sizes& ObjectValues::SizesOf(Value v) const {
  static const Sizes none;
  const auto found = sizes_.find(v);
  return found == sizes_.end() ? none : found->second;
}

bool ObjectValues::SaysSizes(const Operation* op) const {
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (!SizesOf(op->result(i)).empty()) return true;
  }
  return false;
}

}  // namespace lathe
