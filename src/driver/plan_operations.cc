#include "src/driver/plan_operations.h"

#include <algorithm>
#include <ranges>
#include <unordered_set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/block.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "lathe/transform/keep_constraints.h"
#include "src/dialect/bound_sizes.h"
#include "src/dialect/cf/loop_sizes.h"
#include "src/driver/find_constraints.h"
#include "src/driver/object_values.h"

namespace lathe {
namespace {

bool IsPacked(const PlannedFunction* f, size_t operand) {
  if (f == nullptr) return false;
  const auto is = [&](const lower::PackedLayout& layout) { return layout.argument == operand; };
  return std::ranges::any_of(f->packed, is);
}

// Of an operation that outputs depend on.
std::vector<Value> ReadsOf(const Operation* op, const PlannedFunctions& functions,
                           const ObjectValues& objects) {
  std::vector<Value> reads;
  const PlannedFunction* f = objects.IsEvaluated(op) ? nullptr : CalleeOf(op, functions);
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

// Tensors of one shape, whatever the symbols are.
bool SameShape(AnyTensorType a, AnyTensorType b) {
  return a.has_rank() && b.has_rank() && std::ranges::equal(a.dims(), b.dims(), ProvablyEqual);
}

class Obstacles {
 public:
  Obstacles(const Program& program, const PlannedFunctions& functions, const ObjectValues& objects)
      : program_(program), functions_(functions), objects_(objects) {}

  std::vector<PlanObstacle> Find() {
    for (Operation* op : NeededOperations(program_, functions_, objects_)) {
      std::string why = WhyNot(op);
      if (why.empty()) why = WhyNotResults(op);
      if (!why.empty()) found_.push_back({op, std::move(why)});
    }
    return std::move(found_);
  }

 private:
  // What a run leaves in an input is an output of a plan, which knows outputs by name.
  std::string WhyNoOutput(const Operation* fetch) const {
    if (!fetch->attribute("aliases")) return {};
    const Attribute name = fetch->attribute("name");
    for (const Operation* other : program_.fetches()) {
      if (other == fetch || other->attribute("name") != name) continue;
      return StrCat("another output is called ", name.ToString());
    }
    return {};
  }

  std::string WhyNot(Operation* op) const {
    if (op->HasTrait<ConstantLike>() || op->isa<nn::FeedOp>()) return {};
    if (op->isa<nn::FetchOp>()) return WhyNoOutput(op);
    if (op->isa<nn::BindSizesOp>()) return WhyNoBinding(op);
    if (const auto read = op->dyn_cast<builtin::GetParameterOp>()) {
      const Variable* variable = program_.parameters().Find(read.name());
      return variable == nullptr ? StrCat("there is no parameter '", read.name(), "'") : "";
    }
    if (const auto set = op->dyn_cast<builtin::SetParameterOp>()) return WhyNotSet(set);
    if (op->isa<cf::IfOp>()) return WhyNotOne(op->operand(0), ElementType::kBool);
    if (op->isa<cf::WhileOp>()) return WhyNoLoop(op);
    if (op->isa<cf::YieldOp>()) return WhyNoYield(op);
    if (!op->isa<builtin::CallOp>()) return "it is not in a function";
    const PlannedFunction* f = CalleeOf(op, functions_);
    if (f == nullptr) return "its function is not known";
    return objects_.IsEvaluated(op) ? f->why_not_evaluated : std::string();
  }

  // Values that may change have places that others see.
  static std::string WhyNotResults(const Operation* op) {
    for (size_t i = 0; i < op->num_results(); ++i) {
      const auto type = op->result(i).type().dyn_cast<AnyTensorType>();
      if (!type || type.is_value()) continue;
      return StrCat("result ", i, " of type ", op->result(i).type().ToString(), " may change");
    }
    return {};
  }

  std::string WhyNotSet(builtin::SetParameterOp set) const {
    if (set->block() != program_.block()) return "a region sets the parameter";
    if (objects_.contains(set.value())) return "the shape that it sets is not known";
    const auto type = set.value().type().cast<AnyTensorType>();
    if (!type.shape().Constants()) return "the shape that it sets is not known";
    const Variable* variable = program_.parameters().Find(set.name());
    if (variable == nullptr || !variable->data.is_defined()) return {};
    const bool same = variable->data.element_type() == type.element() &&
                      variable->data.shape() == *type.shape().Constants();
    return same ? "" : StrCat("the parameter is ", variable->data.TypeString(), " before it");
  }

  // A condition or a count.
  std::string WhyNotOne(Value value, ElementType element) const {
    const auto tensor = value.type().dyn_cast<AnyTensorType>();
    const auto is_one = [](const Dim& d) { return d.IsConstant(1); };
    const bool fits = tensor && tensor.element() == element &&
                      (objects_.contains(value) ||
                       (tensor.has_rank() && std::ranges::all_of(tensor.dims(), is_one)));
    return fits ? "" : "its condition or count may have several elements";
  }

  // Its elements are read one by one.
  static std::string WhyNoBinding(const Operation* op) {
    const auto sizes = op->operand(0).type().dyn_cast<AnyTensorType>();
    const bool fits = sizes && sizes.has_rank() && BytesOf(sizes).is_constant();
    return fits ? "" : "nobody knows how many sizes it binds";
  }

  std::string WhyNoLoop(const Operation* op) const {
    const LoopOperands operands(op);
    if (!operands.trip_count && !operands.condition) return "it never ends";
    std::string why;
    if (operands.trip_count) why = WhyNotOne(operands.trip_count, ElementType::kI64);
    if (operands.condition && why.empty()) why = WhyNotOne(operands.condition, ElementType::kBool);
    return why;
  }

  std::string WhyNoYield(const Operation* yield) const {
    if (!yield->attribute(kConditionsAttr)) return "nobody knows which sizes the region relies on";
    return yield->parent_op()->isa<cf::WhileOp>() ? WhyNoRound(yield) : std::string();
  }

  // Of the body of a loop.
  std::string WhyNoRound(const Operation* yield) const {
    const Operation* loop = yield->parent_op();
    std::string why = WhyNotOne(yield->operand(0), ElementType::kBool);
    if (!why.empty()) return why;
    for (size_t i = LoopOperands(loop).carried.size(); i < loop->num_results(); ++i) {
      if (objects_.contains(loop->result(i))) continue;
      if (IsRowOf(yield->operand(i + 1).type(), loop->result(i).type())) continue;
      return StrCat("result ", i, " is of another type than what the body yields");
    }
    return {};
  }

  static bool IsRowOf(Type piece, Type whole) {
    const auto row = piece.dyn_cast<AnyTensorType>(), all = whole.dyn_cast<AnyTensorType>();
    if (!row || !all || row.element() != all.element() || !row.has_rank() || !all.has_rank() ||
        all.rank() != row.rank() + 1 || BitWidth(row.element()) % 8 != 0) {
      return false;
    }
    return std::ranges::equal(row.dims(), all.dims().subspan(1), ProvablyEqual);
  }

  const Program& program_;
  const PlannedFunctions& functions_;
  const ObjectValues& objects_;
  std::vector<PlanObstacle> found_;
};

// A type of a loop and its argument's, but for what the iterations change of that.
bool SameInLoop(Type type, Type argument, const std::string& name) {
  const auto x = type.dyn_cast<AnyTensorType>(), y = argument.dyn_cast<AnyTensorType>();
  const Type open = cf::WithoutRound(argument, name);
  if (!x || !y || !x.has_rank() || !y.has_rank() || x.rank() != y.rank()) return false;
  SymShape shape = x.shape();
  for (size_t axis = 0; axis < shape.rank(); ++axis) {
    if (open.cast<AnyTensorType>().dims()[axis].is_unknown()) shape.dims[axis] = y.dims()[axis];
  }
  const auto refined = x.With(x.element(), shape).dyn_cast<AnyTensorType>();
  return refined.element() == y.element() && SameShape(refined, y);
}

// Symbols that operations within a loop say, and what its iterations begin with.
std::vector<std::string> SaidInRounds(const Operation* loop) {
  std::vector<std::string> names;
  for (OpWalker w(loop->region(0).front()); const Operation* inner = w.Next();) {
    std::ranges::copy(BoundSizes(inner), std::back_inserter(names));
  }
  for (const cf::LoopSize& size : cf::LoopSizes(loop)) names.push_back(size.round);
  return names;
}

}  // namespace

bool IsSaidInRounds(const Operation* loop, Type type) {
  const auto tensor = type.dyn_cast<AnyTensorType>();
  if (!tensor || !tensor.has_rank()) return false;
  std::vector<std::string> names;
  for (const Dim& dim : tensor.dims()) dim.CollectSymbols(names);
  const std::vector<std::string> said = SaidInRounds(loop);
  return std::ranges::find_first_of(names, said) != names.end();
}

bool KeepsTypeInLoop(const Operation* loop, size_t i) {
  const std::string name = cf::SizesName(loop, i);
  const Block* body = loop->region(0).front();
  const Type argument = body->argument(kLoopArguments + i).type();
  return SameInLoop(LoopOperands(loop).carried[i].type(), argument, name) &&
         SameInLoop(loop->result(i).type(), argument, name) &&
         SameInLoop(body->back()->operand(i + 1).type(), argument, name) &&
         !IsSaidInRounds(loop, loop->result(i).type());
}

// Operations in the order in which a run comes to them, with those of the regions that are planned.
std::vector<Operation*> PlannedOrder(const Program& program) {
  std::vector<Operation*> order;
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    if (!op->isa<cf::IfOp>() && !op->isa<cf::WhileOp>()) w.SkipRegions();
    if (!op->isa<builtin::FuncOp>()) order.push_back(op);
  }
  return order;
}

LoopOperands::LoopOperands(const Operation* loop) {
  using cf::WhileOp;
  const size_t count = loop->num_operands();
  if (count > WhileOp::kTripCount) trip_count = loop->operand(WhileOp::kTripCount);
  if (count > WhileOp::kCond) condition = loop->operand(WhileOp::kCond);
  for (size_t i = WhileOp::kCarried; i < count; ++i) carried.push_back(loop->operand(i));
}

const PlannedFunction* CalleeOf(const Operation* op, const PlannedFunctions& functions) {
  const auto call = const_cast<Operation*>(op)->dyn_cast<builtin::CallOp>();
  if (!call) return nullptr;
  const auto found = functions.find(call.callee());
  return found == functions.end() ? nullptr : &found->second;
}

std::vector<Operation*> NeededOperations(const Program& program, const PlannedFunctions& functions,
                                         const ObjectValues& objects) {
  std::vector<Operation*> needed;
  std::unordered_set<Value> read;  // asked, never iterated
  for (Operation* op : std::views::reverse(PlannedOrder(program))) {
    bool wanted = op->HasTrait<SideEffect>() || SeesOutside(op) || op->isa<cf::YieldOp>();
    const PlannedFunction* f = CalleeOf(op, functions);
    wanted |= (f != nullptr && f->is_collective) || objects.SaysSizes(op);
    for (size_t i = 0; i < op->num_results(); ++i) wanted |= read.contains(op->result(i));
    if (!wanted) continue;
    needed.push_back(op);
    for (const Value v : ReadsOf(op, functions, objects)) read.insert(v);
  }
  std::ranges::reverse(needed);
  return needed;
}

std::vector<std::string> BoundNames::Of(const Operation* op) {
  const auto bind = const_cast<Operation*>(op)->dyn_cast<nn::BindSizesOp>();
  if (!bind) return {};
  std::vector<std::string> names = bind.names();
  for (std::string& name : names) {
    if (!name.empty() && !bound_.emplace(op->block(), name).second) name.clear();
  }
  return names;
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

std::vector<PlanObstacle> FindObstacles(const Program& program, const PlannedFunctions& functions,
                                        const ObjectValues& objects) {
  return Obstacles(program, functions, objects).Find();
}

}  // namespace lathe
