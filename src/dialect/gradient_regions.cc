// Gradients of operations with regions: each region is computed again, then backwards.
#include <algorithm>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/cf/op_names.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "lathe/support/error.h"
#include "src/dialect/backward.h"
#include "src/dialect/cf/regions.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe {

namespace {

constexpr int kMaxDepth = 50;
constexpr size_t kLoopArguments = 2;  // iteration number and condition before the carried values

void CheckDepth(const Operation* op, int depth) {
  if (depth < kMaxDepth) return;
  throw Error(ErrorCode::kLimit, "limit/depth",
              StrCat("gradients of regions nested deeper than ", kMaxDepth))
      .At(op->location().ToString(*op->context()));
}

/// What is drawn again differs, so that the gradient would be one of another function.
void CheckNothingRandom(Operation* op) {
  for (OpWalker w(op); Operation* inner = w.Next();) {
    if (!inner->HasTrait<Random>()) continue;
    throw Error(ErrorCode::kUnsupported, "gradient/random",
                StrCat(inner->name(), " within ", op->name(), " has no gradient"))
        .At(inner->location().ToString(*inner->context()))
        .Hint("its region is computed again for the gradient; draw the numbers outside of it");
  }
}

std::vector<Type> TypesOf(std::span<const Value> values) {
  std::vector<Type> types;
  for (const Value v : values) types.push_back(v.type());
  return types;
}

size_t NumCarried(const Operation* loop) {
  const size_t first = cf::WhileOp::kCarried;
  return loop->num_operands() > first ? loop->num_operands() - first : 0;
}

/// Numbers of the carried values that have gradients.
std::vector<size_t> CarriedWithGradient(Operation* loop) {
  std::vector<size_t> carried;
  for (size_t i = 0; i < NumCarried(loop); ++i) {
    if (IsDifferentiable(loop->region(0).front()->argument(kLoopArguments + i))) {
      carried.push_back(i);
    }
  }
  return carried;
}

Value True(Builder& b) {
  return builtin::ConstantOp::Create(b, {.value = Tensor::Scalar(true)}).result();
}

Operation* CreateWhile(Builder& b, std::span<const Value> operands, std::span<const Type> types) {
  return b.Create(b.context().FindOp(cf::kWhile), operands, {}, types, 1);
}

void CreateYield(Builder& b, std::span<const Value> values) { b.Create(cf::kYield, values); }

}  // namespace

std::vector<Value> Backward::DependentCaptures(Operation* op) const {
  std::vector<Value> captured = CapturedValues(op);
  std::erase_if(captured, [&](Value v) { return !Depends(v) || !IsDifferentiable(v); });
  return captured;
}

/// Copies the region's operations to the end of the builder's block and then differentiates them:
/// `seeds` are the gradients of yielded values by number, `xs` as they are in the copy.
std::vector<Value> Backward::RegionGradients(Region& region, Builder& b, IrMapping& mapping,
                                             std::span<const std::pair<size_t, Value>> seeds,
                                             std::span<const Value> xs) {
  const Operation* yield = cf::YieldOf(region);
  Operation* last = b.block()->back();
  for (Operation& op : *region.front()) {
    if (&op == yield) break;
    last = b.Insert(Clone(&op, mapping));
  }
  std::vector<Operation*> replaced;
  std::vector<Value> gradients;
  {
    Backward inner(b, xs, {}, replaced, depth_ + 1);
    for (const auto& [i, grad] : seeds) inner.Add(mapping.Lookup(yield->operand(i)), grad);
    if (last != nullptr) inner.Run(b.block(), last);
    for (const Value x : xs) gradients.push_back(inner.Of(x));
  }
  for (Operation* op : replaced) op->Erase();
  return gradients;
}

// ---- if ----

void Backward::VisitIf(Operation* op, std::span<const Value> grads) {
  CheckDepth(op, depth_);
  CheckNothingRandom(op);
  const std::vector<Value> captured = DependentCaptures(op);
  if (captured.empty()) return;
  const Value cond[] = {op->operand(0)};
  Operation* back = b_.Create(op->info(), cond, {}, TypesOf(captured), op->num_regions());
  std::vector<std::pair<size_t, Value>> seeds;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i]) seeds.emplace_back(i, grads[i]);
  }
  for (size_t r = 0; r < op->num_regions(); ++r) {
    Builder inside = Builder::AtEnd(back->region(r).AddBlock());
    inside.set_location(op->location());
    IrMapping mapping;
    CreateYield(inside, RegionGradients(op->region(r), inside, mapping, seeds, captured));
  }
  for (size_t i = 0; i < captured.size(); ++i) Add(captured[i], back->result(i));
}

// ---- while ----

/// The same loop that also carries a stack, on which it pushes its number and what each iteration
/// starts from. The stack is its last carried result.
Operation* Backward::PushEachStep(Operation* loop) {
  const size_t carried = NumCarried(loop);
  Builder b = Builder::Before(loop);
  b.set_location(loop->location());
  const Block* old = loop->region(0).front();
  std::vector<Type> entry{old->argument(0).type()};
  for (size_t i = 0; i < carried; ++i) entry.push_back(old->argument(kLoopArguments + i).type());
  const Type type = StackType::Get(b.context(), entry);
  const Value empty = cf::StackOp::Create(b, {.type = TypeAttribute::Get(type)}).empty();

  std::vector<Value> operands;
  std::vector<Type> types;
  for (size_t i = 0; i < loop->num_operands(); ++i) operands.push_back(loop->operand(i));
  operands.resize(std::max<size_t>(operands.size(), cf::WhileOp::kCarried));
  operands.push_back(empty);
  for (size_t i = 0; i < loop->num_results(); ++i) types.push_back(loop->result(i).type());
  types.insert(types.begin() + static_cast<std::ptrdiff_t>(carried), type);
  IrMapping mapping;
  Operation* copy = Clone(loop, mapping);
  Operation* made = CreateWhile(b, operands, types);
  made->set_attributes(loop->attributes());
  made->region(0).TakeBody(copy->region(0));
  copy->Destroy();

  Block* body = made->region(0).front();
  Operation* yield = body->back();
  const Value stack = body->AddArgument(type);
  Builder inside = Builder::Before(yield);
  inside.set_location(loop->location());
  std::vector<Value> values{body->argument(0)};
  for (size_t i = 0; i < carried; ++i) values.push_back(body->argument(kLoopArguments + i));
  const Value pushed = cf::PushOp::Create(inside, stack, values).pushed();
  std::vector<Value> yields;
  for (size_t i = 0; i < yield->num_operands(); ++i) yields.push_back(yield->operand(i));
  yields.insert(yields.begin() + static_cast<std::ptrdiff_t>(1 + carried), pushed);
  CreateYield(inside, yields);
  yield->Erase();
  for (size_t i = 0; i < loop->num_results(); ++i) {
    loop->result(i).ReplaceAllUsesWith(made->result(i < carried ? i : i + 1));
  }
  return made;
}

void Backward::VisitWhile(Operation* op, std::span<const Value> grads) {
  CheckDepth(op, depth_);
  CheckNothingRandom(op);
  const std::vector<Value> captured = DependentCaptures(op);
  Operation* pushing = PushEachStep(op);
  replaced_.push_back(op);
  Operation* back = WalkBack(op, pushing, grads, captured);
  size_t result = 1;
  for (const size_t i : CarriedWithGradient(op)) {
    const Value start = op->operand(cf::WhileOp::kCarried + i);
    if (Depends(start)) Add(start, back->result(result));
    ++result;
  }
  for (const Value v : captured) Add(v, back->result(result++));
}

/// The loop that pops. It carries the stack, the gradients of the carried values, and those of what
/// the body captures.
Operation* Backward::WalkBack(Operation* loop, Operation* pushing, std::span<const Value> grads,
                              std::span<const Value> captured) {
  const Value stack = pushing->result(NumCarried(loop));
  std::vector<Value> operands{Value(), cf::HasEntriesOp::Create(b_, stack).result(), stack};
  std::vector<Type> types{stack.type()};
  for (const size_t i : CarriedWithGradient(loop)) {
    // The gradient of a result that nobody reads is zero; it has the shape of that result.
    const Value final = pushing->result(i);
    operands.push_back(grads[i] ? grads[i] : nn::FilledLike(b_, final, 0));
    types.push_back(loop->region(0).front()->argument(kLoopArguments + i).type());
  }
  for (const Value v : captured) {
    operands.push_back(nn::FilledLike(b_, v, 0));
    types.push_back(v.type());
  }
  Operation* back = CreateWhile(b_, operands, types);
  FillBack(back, loop, grads, captured);
  return back;
}

void Backward::FillBack(Operation* back, Operation* loop, std::span<const Value> grads,
                        std::span<const Value> captured) {
  const size_t carried = NumCarried(loop);
  const Block* old = loop->region(0).front();
  Block* body = back->region(0).AddBlock();
  Builder b = Builder::AtEnd(body);
  b.set_location(loop->location());
  body->AddArgument(old->argument(0).type());
  body->AddArgument(old->argument(1).type());
  for (size_t i = 0; i < back->num_results(); ++i) body->AddArgument(back->result(i).type());

  const auto pop = cf::PopOp::Create(b, body->argument(kLoopArguments), 2 + carried);
  const std::vector<Value> entry = pop.values();
  IrMapping mapping;
  mapping.Map(old->argument(0), entry[0]);
  mapping.Map(old->argument(1), True(b));
  for (size_t i = 0; i < carried; ++i) {
    mapping.Map(old->argument(kLoopArguments + i), entry[1 + i]);
  }
  std::vector<std::pair<size_t, Value>> seeds;
  std::vector<Value> xs;
  size_t argument = kLoopArguments + 1;
  for (const size_t i : CarriedWithGradient(loop)) {
    seeds.emplace_back(1 + i, body->argument(argument++));
    xs.push_back(entry[1 + i]);
  }
  for (size_t i = carried; i < loop->num_results(); ++i) {
    if (!grads[i]) continue;
    seeds.emplace_back(1 + i, nn::GatherOp::Create(b, grads[i], entry[0], {.axis = 0}).output());
  }
  xs.insert(xs.end(), captured.begin(), captured.end());
  std::vector<Value> gradients = RegionGradients(loop->region(0), b, mapping, seeds, xs);
  std::vector<Value> yields{cf::HasEntriesOp::Create(b, pop.rest()).result(), pop.rest()};
  for (size_t i = 0; i < gradients.size(); ++i) {
    const bool sums = i + captured.size() >= gradients.size();
    const Value before = body->argument(kLoopArguments + 1 + i);
    yields.push_back(sums ? nn::AddOp::Create(b, before, gradients[i]).c() : gradients[i]);
  }
  CreateYield(b, yields);
}

}  // namespace lathe
