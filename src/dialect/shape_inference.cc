#include "lathe/dialect/shape_inference.h"

#include <algorithm>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/dialect/region_interface.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/stated_constraints.h"
#include "lathe/ir/walk.h"
#include "lathe/support/buffer.h"
#include "lathe/support/error.h"
#include "src/dialect/cf/regions.h"
#include "src/dialect/fractions.h"

namespace lathe {
namespace {

// Larger constants do not decide shapes.
constexpr int64_t kMaxConstant = 4096;
// Single allocations, in bytes, of a small computation.
constexpr size_t kMaxScratch = size_t{1} << 20;
// Loops nested deeper than this get the weakest argument types at once, which keeps the number of
// times that a body is inferred small.
constexpr size_t kPreciseDepth = 4;
// Sweeps over the functions of a program.
constexpr int kMaxRounds = 8;

bool IsSmall(const Tensor& tensor) { return tensor.num_elements() <= kMaxConstant; }

// Number of elements if the type is a static tensor small enough to be followed.
std::optional<int64_t> SmallStatic(Type type) {
  const auto tensor = type.dyn_cast<AnyTensorType>();
  if (!tensor || !tensor.is_static()) return std::nullopt;
  int64_t count = 1;
  for (const Dim& d : tensor.dims()) {
    if (d.value() > kMaxConstant) return std::nullopt;
    count *= d.value();
    if (count > kMaxConstant) return std::nullopt;
  }
  return count;
}

bool IsPure(const Operation* op) {
  return op->HasTrait<HasValueSemantics>() && !op->HasTrait<lathe::Random>() &&
         !op->HasTrait<SideEffect>() && op->num_regions() == 0;
}

}  // namespace

// ---- facts ----

const Tensor* ShapeInferencer::Constant(Value value) {
  auto at = constants_.find(value);
  return at == constants_.end() ? nullptr : &at->second;
}

const std::vector<Dim>* ShapeInferencer::Contents(Value value) {
  auto at = contents_.find(value);
  return at == contents_.end() ? nullptr : &at->second;
}

void ShapeInferencer::SetConstant(Value value, Tensor constant) {
  constants_.insert_or_assign(value, std::move(constant));
}

void ShapeInferencer::Forget(Operation* op) {
  for (size_t i = 0; i < op->num_results(); ++i) {
    constants_.erase(op->result(i));
    contents_.erase(op->result(i));
  }
}

// Contents that are all numbers make a constant.
void ShapeInferencer::LearnContents(Value value, const std::vector<Dim>& contents) {
  const auto type = value.type().dyn_cast<AnyTensorType>();
  const auto numbers = SymShape(contents).Constants();
  const bool counts = type && (IsInteger(type.element()) || type.element() == ElementType::kBool);
  if (!numbers || !counts || !type.has_rank() || type.rank() > 1) {
    contents_.insert_or_assign(value, contents);
    return;
  }
  const bool scalar = type.rank() == 0;
  if (scalar && numbers->size() != 1) return;
  const Shape shape = scalar ? Shape{} : Shape{static_cast<int64_t>(numbers->size())};
  SetConstant(value, Cast(Tensor::Of<int64_t>(shape, *numbers), type.element()));
}

// The value of an op that is a constant as it stands.
std::optional<Tensor> ShapeInferencer::KnownResult(Operation* op) const {
  if (op->num_results() != 1) return std::nullopt;
  if (op->HasTrait<ConstantLike>()) {
    const auto value = op->attribute("value").dyn_cast<TensorAttribute>();
    if (value) return value.value();
  }
  if (parameters_ != nullptr && op->isa<builtin::GetParameterOp>()) {
    const auto name = op->attribute("name").dyn_cast<StrAttribute>();
    const Variable* variable = name ? parameters_->Find(name.value()) : nullptr;
    if (variable != nullptr && !variable->is_mutable) return variable->data;
  }
  return std::nullopt;
}

// Runs a pure op whose operands are all known and small.
void ShapeInferencer::TryEvaluate(Operation* op) {
  if (!IsPure(op) || !op->HasInterface<EvalInterface>() || op->num_operands() == 0) return;
  std::vector<RtValue> inputs(op->num_operands());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value operand = op->operand(i);
    if (!operand) continue;
    const Tensor* constant = Constant(operand);
    if (constant == nullptr || !IsSmall(*constant)) return;
    inputs[i] = *constant;
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (!SmallStatic(op->result(i).type())) return;
  }
  try {
    const AllocationLimit limit(kMaxScratch);
    std::vector<RtValue> results = EvalOp(op, inputs);
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].is_tensor()) SetConstant(op->result(i), results[i].tensor());
    }
  } catch (const Error&) {  // the same error appears when the program runs
  }
}

void ShapeInferencer::Learn(Operation* op, const InferShapeContext& c) {
  if (std::optional<Tensor> known = KnownResult(op)) {
    if (IsSmall(*known)) SetConstant(op->result(0), std::move(*known));
    return;
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (c.contents(i)) LearnContents(op->result(i), *c.contents(i));
  }
  if (op->num_results() > 0 && Constant(op->result(0)) == nullptr) TryEvaluate(op);
  if (op->num_results() != 1 || Constant(op->result(0)) != nullptr) return;
  if (const auto rounded = RoundedContents(op, *this)) LearnContents(op->result(0), *rounded);
}

// ---- the walk ----

// One op whose regions are being inferred.
struct ShapeInferencer::Frame {
  Operation* op;
  Operation* next = nullptr;
  Block* block = nullptr;
  size_t region = 0;
};

void ShapeInferencer::InferOne(Operation* op) {
  Forget(op);
  if (functions_ != nullptr && functions_->IsCall(op)) return InferCall(op);
  InferShapeContext c(op, *this);
  InferAndSetTypes(op, c);
  Learn(op, c);
}

// Moves to the next block of the frame's op; false when its regions are done.
// The branch of an `if` that sizes rule out need not make sense.
bool ShapeInferencer::IsNeverRun(const Operation* op, size_t region) {
  if (op->name() != cf::IfOp::kName) return false;
  const Tensor* condition = Constant(op->operand(cf::IfOp::kCond));
  if (condition == nullptr || condition->element_type() != ElementType::kBool ||
      condition->num_elements() != 1) {
    return false;
  }
  return condition->data<bool>()[0] ? region == 1 : region == 0;
}

bool ShapeInferencer::NextBlock(Frame& f, size_t depth) {
  if (f.block != nullptr) f.block = f.block->next();
  while (f.block == nullptr && f.region < f.op->num_regions()) {
    const size_t region = f.region++;
    if (!IsNeverRun(f.op, region)) f.block = f.op->region(region).front();
  }
  if (f.block != nullptr) {
    f.next = f.block->front();
    return true;
  }
  const auto arguments = f.op->dyn_cast<RegionArgumentsInterface>();
  if (!arguments || depth > kPreciseDepth || !arguments.Set(RegionRound::kAgain)) return false;
  f.region = 0;
  return NextBlock(f, depth);
}

void ShapeInferencer::Visit(Operation* root) {
  if (root->num_regions() == 0) return InferOne(root);
  std::vector<Frame> stack;
  auto enter = [&](Operation* op) {
    if (const auto arguments = op->dyn_cast<RegionArgumentsInterface>()) {
      arguments.Set(stack.size() > kPreciseDepth ? RegionRound::kWeakest : RegionRound::kFirst);
    }
    stack.push_back({.op = op});
    NextBlock(stack.back(), stack.size());
  };
  enter(root);
  while (!stack.empty()) {
    Frame& f = stack.back();
    if (Operation* op = f.next) {
      f.next = op->next();
      op->num_regions() == 0 ? InferOne(op) : enter(op);
    } else if (f.block == nullptr || !NextBlock(f, stack.size())) {
      Operation* done = f.op;
      stack.pop_back();
      InferOne(done);
    }
  }
}

// ---- functions ----

// A call gives what its function returns; known values of a body do not depend on its arguments.
void ShapeInferencer::InferCall(Operation* call) {
  const Operation* callee = functions_->Callee(call);
  const Operation* last = callee == nullptr ? nullptr : FunctionTable::Return(callee);
  if (last == nullptr || last->num_operands() != call->num_results()) return;
  for (size_t i = 0; i < call->num_results(); ++i) {
    const Value given = last->operand(i);
    if (!given || !given.type()) continue;
    call->result(i).set_type(given.type());
    if (const Tensor* constant = Constant(given)) {
      SetConstant(call->result(i), *constant);
    } else if (const std::vector<Dim>* contents = Contents(given)) {
      contents_.insert_or_assign(call->result(i), *contents);
    }
  }
}

namespace {

// `declared`, where it leaves something open as all callers have it.
Type Refine(Type declared, Type given) {
  const auto a = declared.dyn_cast<AnyTensorType>();
  const auto b = given ? given.dyn_cast<AnyTensorType>() : AnyTensorType();
  if (!a || !b || a.element() != b.element() || !b.has_rank()) return declared;
  if (!a.has_rank()) return a.With(a.element(), b.shape());
  SymShape shape = a.shape();
  if (shape.rank() != b.rank()) return declared;
  for (size_t i = 0; i < shape.rank(); ++i) {
    const Dim& d = b.dims()[i];
    if (shape.dims[i].is_unknown() || (d.is_constant() && !shape.dims[i].is_constant())) {
      shape.dims[i] = d;
    }
  }
  return a.With(a.element(), shape);
}

// Whether one changed.
bool RefineArguments(Operation* function, std::span<Operation* const> calls) {
  Block* body = FunctionTable::Body(function);
  bool changed = false;
  for (size_t i = 0; i < body->num_arguments(); ++i) {
    Type given;
    for (const Operation* call : calls) {
      const Value operand = i < call->num_operands() ? call->operand(i) : Value();
      if (!operand) return changed;
      given = call == calls.front() ? operand.type() : cf::Join(given, operand.type());
      if (!given) break;
    }
    changed |= cf::SetArgument(*body, i, Refine(body->argument(i).type(), given));
  }
  return changed;
}

using CallsByFunction = std::unordered_map<const Operation*, std::vector<Operation*>>;

CallsByFunction GatherCalls(const FunctionTable& functions) {
  CallsByFunction calls;  // looked up, never iterated
  const auto gather = [&](Operation* caller) {
    for (Operation* call : functions.CallsIn(caller)) calls[functions.Callee(call)].push_back(call);
  };
  gather(nullptr);
  for (Operation* function : functions.functions()) gather(function);
  return calls;
}

}  // namespace

void ShapeInferencer::VisitTop(Program& program) {
  for (Operation& op : *program.block()) {
    if (!functions_->IsFunction(&op)) Visit(&op);
  }
}

// Arguments follow from callers and results from callees. Every sweep relies on types that hold, so
// that it may end before nothing changes any more.
void ShapeInferencer::Visit(Program& program) {
  const FunctionTable functions(program);
  if (functions.empty()) return Visit(program.module());
  struct Scope {
    const FunctionTable*& slot;
    ~Scope() { slot = nullptr; }
  } const scope{functions_};
  functions_ = &functions;
  const std::vector<Operation*> callees_first = functions.CalleesFirst();
  const CallsByFunction calls = GatherCalls(functions);
  VisitTop(program);
  bool changed = true;
  for (int round = 0; changed && round < kMaxRounds; ++round) {
    changed = false;
    for (auto it = callees_first.rbegin(); it != callees_first.rend(); ++it) {
      const auto at = calls.find(*it);
      if (at == calls.end() || !RefineArguments(*it, at->second)) continue;
      changed = true;
      Visit(*it);
    }
    if (round > 0 && !changed) break;
    for (Operation* function : callees_first) Visit(function);
    VisitTop(program);
  }
}

// ---- specialization ----

const SymbolBinder::Entry* SymbolBinder::FindEntry(std::string_view symbol) const {
  for (const Entry& e : entries_) {
    if (e.symbol == symbol) return &e;
  }
  return nullptr;
}

std::optional<int64_t> SymbolBinder::Lookup(std::string_view symbol) const {
  const Entry* found = FindEntry(symbol);
  return found == nullptr ? std::nullopt : std::optional(found->value);
}

void SymbolBinder::Bind(std::string_view symbol, int64_t value, const std::string& what,
                        const std::string& id) {
  const Entry* found = FindEntry(symbol);
  if (found == nullptr) {
    entries_.push_back({std::string(symbol), value, what});
  } else if (found->value != value) {
    throw Error(ErrorCode::kShape, id,
                StrCat("dim ", symbol, " is ", found->value, " by ", found->from, " and ", value,
                       " by ", what));
  }
}

void SymbolBinder::Match(const SymShape& expected, const std::vector<int64_t>& dims,
                         const std::string& what, const std::string& id) {
  if (!expected.ranked) return;
  const Error mismatch(
      ErrorCode::kShape, id,
      StrCat(what, " has shape ", ShapeToString(dims), "; expected ", expected.ToString()));
  if (expected.rank() != dims.size()) throw mismatch;
  for (size_t i = 0; i < dims.size(); ++i) {
    const Dim& d = expected.dims[i];
    if (d.is_symbol()) {
      Bind(d.symbol_name(), dims[i], what, id);
    } else if (d.is_constant()) {
      if (d.value() != dims[i]) throw mismatch;
    } else if (!d.is_unknown()) {
      pending_.push_back({d, dims[i], what});
    }
  }
}

void SymbolBinder::CheckValue(const Pending& p, const std::string& id) const {
  std::vector<std::string> names;
  p.dim.CollectSymbols(names);
  Error error(ErrorCode::kShape, id,
              StrCat("dim ", p.dim.ToString(), " of ", p.what, " has no value"));
  for (const std::string& name : names) {
    const Entry* e = FindEntry(name);
    if (e == nullptr) return;
    error.Note(StrCat(name, " = ", e->value, " by ", e->from));
  }
  throw error;
}

void SymbolBinder::Finish(const std::string& id) const {
  for (const Pending& p : pending_) {
    auto value = p.dim.Evaluate([&](std::string_view symbol) { return Lookup(symbol); });
    if (!value) {
      CheckValue(p, id);
      // Of symbols that nothing says, an expression is at least the same wherever it stands.
      value = std::ranges::find(pending_, p.dim, &Pending::dim)->value;
    }
    if (*value != p.value) {
      throw Error(
          ErrorCode::kShape, id,
          StrCat("dim ", p.dim.ToString(), " of ", p.what, " is ", p.value, "; expected ", *value));
    }
  }
}

namespace {

std::string NameOf(const Operation* op) {
  const auto name = op->attribute("name").dyn_cast<StrAttribute>();
  return name ? std::string(name.value()) : std::string();
}

Operation* FindFeed(const std::vector<Operation*>& feeds, const std::string& name) {
  std::vector<std::string> names;
  for (Operation* feed : feeds) {
    if (NameOf(feed) == name) return feed;
    names.push_back(NameOf(feed));
  }
  throw Error(ErrorCode::kNotFound, "shape/unknown-input",
              StrCat("the program has no input '", name, "'"))
      .Hint(DidYouMean(name, names));
}

Dim::Replacement ByValues(const SymbolBinder& binder) {
  return [&](std::string_view symbol) -> std::optional<Dim> {
    const std::optional<int64_t> value = binder.Lookup(symbol);
    return value ? std::optional<Dim>(*value) : std::nullopt;
  };
}

SymShape Substitute(SymShape shape, const SymbolBinder& binder) {
  for (Dim& d : shape.dims) d = d.Substitute(ByValues(binder));
  return shape;
}

void SpecializeType(Value value, const SymbolBinder& binder) {
  const auto type = value.type().dyn_cast<AnyTensorType>();
  if (!type) return;
  value.set_type(type.With(type.element(), Substitute(type.shape(), binder)));
}

void SpecializeInputs(const std::vector<Operation*>& feeds, const ShapeBindings& bindings,
                      SymbolBinder& binder) {
  for (const auto& [name, dims] : bindings.inputs) {
    const Value value = FindFeed(feeds, name)->result(0);
    const auto type = value.type().dyn_cast<AnyTensorType>();
    if (!type) {
      throw Error(
          ErrorCode::kType, "shape/unknown-input",
          StrCat("input '", name, "' is ", value.type().ToString(), ", which has no shape"));
    }
    binder.Match(type.shape(), dims, StrCat("input '", name, "'"), "shape/contradiction");
    value.set_type(type.With(type.element(), SymShape::FromConstants(dims)));
  }
}

void CheckSymbols(const std::vector<Operation*>& feeds, const ShapeBindings& bindings) {
  std::vector<std::string> known;
  for (Operation* feed : feeds) {
    const auto type = feed->result(0).type().dyn_cast<AnyTensorType>();
    if (!type) continue;
    for (const Dim& d : type.dims()) d.CollectSymbols(known);
  }
  for (const auto& [symbol, value] : bindings.symbols) {
    if (std::find(known.begin(), known.end(), symbol) == known.end()) {
      throw Error(ErrorCode::kNotFound, "shape/unknown-symbol",
                  StrCat("no input has a dim '", symbol, "'"))
          .Hint(DidYouMean(symbol, known));
    }
    if (value < 0) {
      throw Error(ErrorCode::kInvalidArgument, "shape/negative-dim",
                  StrCat("dim '", symbol, "' cannot be ", value));
    }
  }
}

}  // namespace

void SpecializeShapes(Program& program, const ShapeBindings& bindings) {
  const std::vector<Operation*> feeds = program.feeds();
  CheckSymbols(feeds, bindings);
  SymbolBinder binder;
  for (const auto& [symbol, value] : bindings.symbols) {
    binder.Bind(symbol, value, "the caller", "shape/contradiction");
  }
  SpecializeInputs(feeds, bindings, binder);
  binder.Finish("shape/contradiction");
  for (OpWalker walk(program.module()); Operation* op = walk.Next();) {
    for (size_t i = 0; i < op->num_results(); ++i) SpecializeType(op->result(i), binder);
    for (const Region& region : op->regions()) {
      for (const Block& block : region) {
        for (size_t i = 0; i < block.num_arguments(); ++i) {
          SpecializeType(block.argument(i), binder);
        }
      }
    }
  }
  ReplaceStatedSizes(program.module(), ByValues(binder));
  for (const SizeConstraint& c : StatedConstraints(*program.block())) {
    if (c.condition.Decide() == false) throw c.error;
  }
  ShapeInferencer(&program.parameters()).Visit(program);
}

}  // namespace lathe
