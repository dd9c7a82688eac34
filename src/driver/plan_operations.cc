#include "src/driver/plan_operations.h"

#include <algorithm>
#include <ranges>
#include <unordered_set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/ir/block.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "src/driver/find_constraints.h"

namespace lathe {
namespace {

bool IsPacked(const PlannedFunction* f, size_t operand) {
  const auto is = [&](const lower::PackedLayout& layout) { return layout.argument == operand; };
  return f != nullptr && std::ranges::any_of(f->packed, is);
}

// Of an operation that outputs depend on.
std::vector<Value> ReadsOf(const Operation* op, const PlannedFunctions& functions) {
  std::vector<Value> reads;
  const PlannedFunction* f = CalleeOf(op, functions);
  if (f != nullptr && f->data) {
    for (const auto& parts : f->data->results) {
      for (const DataFunction::Part& part : parts) reads.push_back(op->operand(part.argument));
    }
    return reads;
  }
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (op->operand(i) && !IsPacked(f, i)) reads.push_back(op->operand(i));
  }
  return reads;
}

// Has regions whose operations read what is around them.
bool SeesOutside(const Operation* op) {
  return op->num_regions() != 0 && !op->HasTrait<IsolatedFromAbove>();
}

// Operations in the order in which a run comes to them, with those of the regions that are planned.
std::vector<Operation*> PlannedOrder(const Program& program) {
  std::vector<Operation*> order;
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    if (!op->isa<cf::IfOp>()) w.SkipRegions();
    if (!op->isa<builtin::FuncOp>()) order.push_back(op);
  }
  return order;
}

// Tensors of one shape, whatever the symbols are.
bool SameShape(AnyTensorType a, AnyTensorType b) {
  return a.has_rank() && b.has_rank() && std::ranges::equal(a.dims(), b.dims(), ProvablyEqual);
}

class Obstacles {
 public:
  Obstacles(const Program& program, const PlannedFunctions& functions)
      : program_(program), functions_(functions) {
    for (const auto& symbol : SymbolsOf(program)) symbols_.push_back(symbol.name);
  }

  std::vector<PlanObstacle> Find() {
    for (Operation* feed : program_.feeds()) CheckResults(feed);
    for (Operation* op : NeededOperations(program_, functions_)) {
      if (op->isa<nn::FeedOp>()) continue;
      const std::string why = WhyNot(op);
      if (!why.empty()) Add(op, why);
      if (why.empty()) CheckResults(op);
    }
    return std::move(found_);
  }

 private:
  void Add(const Operation* op, std::string why) { found_.push_back({op, std::move(why)}); }

  std::string WhyNot(Operation* op) const {
    if (op->HasTrait<ConstantLike>() || op->isa<nn::FetchOp>()) return {};
    if (const auto read = op->dyn_cast<builtin::GetParameterOp>()) {
      const Variable* variable = program_.parameters().Find(read.name());
      if (variable == nullptr) return StrCat("there is no parameter '", read.name(), "'");
      return variable->is_mutable ? "the program sets the parameter" : "";
    }
    if (op->isa<cf::IfOp>()) return WhyNoBranch(op->operand(0).type());
    if (op->isa<cf::YieldOp>()) return WhyNoYield(op);
    if (!op->isa<builtin::CallOp>()) return "there is no kernel for it";
    const PlannedFunction* f = CalleeOf(op, functions_);
    return f == nullptr ? "there is no kernel for the function" : "";
  }

  static std::string WhyNoBranch(Type condition) {
    const auto tensor = condition.dyn_cast<AnyTensorType>();
    const bool is_one =
        tensor && tensor.element() == ElementType::kBool && tensor.has_rank() &&
        std::ranges::all_of(tensor.dims(), [](const Dim& d) { return d.IsConstant(1); });
    return is_one ? "" : "its condition may have several elements";
  }

  // Results of a region of an `if`.
  static std::string WhyNoYield(const Operation* yield) {
    const Operation* parent = yield->parent_op();
    for (size_t i = 0; i < parent->num_results(); ++i) {
      const auto yields = yield->operand(i).type().dyn_cast<AnyTensorType>();
      const auto result = parent->result(i).type().dyn_cast<AnyTensorType>();
      if (!yields || !result || !SameShape(yields, result) || yields.element() != result.element())
        return StrCat("result ", i, " is of another type in the other region");
    }
    return yield->attribute(kReliesOnAttr) ? "" : "nobody knows which sizes the region relies on";
  }

  void CheckResults(const Operation* op) {
    for (size_t i = 0; i < op->num_results(); ++i) {
      const std::string why = WhyNot(op->result(i).type());
      if (why.empty()) continue;
      return Add(op, StrCat("result ", i, " of type ", op->result(i).type().ToString(), " ", why));
    }
  }

  std::string WhyNot(Type type) const {
    const auto tensor = type.dyn_cast<AnyTensorType>();
    if (!tensor) return "is no tensor";
    if (!tensor.is_value()) return "may change";
    if (BitWidth(tensor.element()) == 0) return "has elements without a size";
    if (!tensor.has_rank()) return "has no rank before the program runs";
    const bool is_open = std::ranges::any_of(tensor.dims(), &Dim::is_unknown);
    if (is_open || BytesOf(tensor).is_unknown()) return "has no size before the program runs";
    std::vector<std::string> names;
    for (const Dim& d : tensor.dims()) d.CollectSymbols(names);
    for (const std::string& name : names) {
      if (std::ranges::find(symbols_, name) == symbols_.end()) {
        return StrCat("has the symbol '", name, "', which is no dim of an input");
      }
    }
    return {};
  }

  const Program& program_;
  const PlannedFunctions& functions_;
  std::vector<std::string> symbols_;
  std::vector<PlanObstacle> found_;
};

}  // namespace

const PlannedFunction* CalleeOf(const Operation* op, const PlannedFunctions& functions) {
  const auto call = const_cast<Operation*>(op)->dyn_cast<builtin::CallOp>();
  if (!call) return nullptr;
  const auto found = functions.find(call.callee());
  return found == functions.end() ? nullptr : &found->second;
}

std::vector<Operation*> NeededOperations(const Program& program,
                                         const PlannedFunctions& functions) {
  std::vector<Operation*> needed;
  std::unordered_set<Value> read;  // asked, never iterated
  for (Operation* op : std::views::reverse(PlannedOrder(program))) {
    bool wanted = op->HasTrait<SideEffect>() || SeesOutside(op) || op->isa<cf::YieldOp>();
    for (size_t i = 0; i < op->num_results(); ++i) wanted |= read.contains(op->result(i));
    if (!wanted) continue;
    needed.push_back(op);
    for (const Value v : ReadsOf(op, functions)) read.insert(v);
  }
  std::ranges::reverse(needed);
  return needed;
}

std::vector<runtime::PlanSymbol> SymbolsOf(const Program& program) {
  std::vector<runtime::PlanSymbol> symbols;
  const std::vector<Operation*> feeds = program.feeds();
  for (uint32_t i = 0; i < feeds.size(); ++i) {
    const auto type = feeds[i]->result(0).type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) continue;
    for (uint32_t axis = 0; axis < type.rank(); ++axis) {
      const Dim& dim = type.dims()[axis];
      if (!dim.is_symbol()) continue;
      const auto known = [&](const runtime::PlanSymbol& s) { return s.name == dim.symbol_name(); };
      if (std::ranges::any_of(symbols, known)) continue;
      symbols.push_back({std::string(dim.symbol_name()), i, axis});
    }
  }
  return symbols;
}

std::vector<PlanObstacle> FindObstacles(const Program& program, const PlannedFunctions& functions) {
  return Obstacles(program, functions).Find();
}

}  // namespace lathe
