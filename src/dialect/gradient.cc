#include "lathe/dialect/gradient.h"

#include <algorithm>

#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/decompose.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/ir/block.h"
#include "lathe/ir/context.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"
#include "src/dialect/backward.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe {
namespace {

void CheckFloat(Value v) {
  if (IsDifferentiable(v)) return;
  throw Error(ErrorCode::kType, "gradient/type",
              StrCat("a gradient belongs to tensors of floats, not ", v.type().ToString()));
}

bool IsStopped(Value value) {
  if (value.is_block_argument()) return false;
  const auto stop = value.property("stop_gradient").dyn_cast<BoolAttribute>();
  return stop && stop.value();
}

/// No gradient can flow through a tensor of integers; through anything else one might.
bool MayCarry(Value value) { return !value.type().isa<AnyTensorType>() || IsDifferentiable(value); }

Value Added(Builder& b, Value sum, Value part) {
  return sum ? nn::AddOp::Create(b, sum, part).c() : part;
}

/// A product of two matrices that nothing reads.
bool IsProduct(Value value) {
  const Operation* op = value.defining_op();
  const auto is_matrix = [](Value v) {
    const AnyTensorType type = TensorOrNull(v);
    return type && type.has_rank() && type.rank() == 2;
  };
  return op != nullptr && op->isa<nn::MatmulOp>() && op->use_empty() && is_matrix(op->operand(0)) &&
         is_matrix(op->operand(1));
}

/// Whether two products differ in nothing but their factors and the depth of these.
bool CanJoin(Value a, Value b) {
  return a.defining_op()->attributes() == b.defining_op()->attributes() && a.type() == b.type();
}

/// The sum of products: that of all left factors, side by side, by all right ones.
Value Joined(Builder& b, std::span<const Value> products) {
  const nn::MatmulOp first(products[0].defining_op());
  std::vector<Value> left, right;
  for (const Value product : products) {
    left.push_back(product.defining_op()->operand(0));
    right.push_back(product.defining_op()->operand(1));
  }
  const auto join = [&](std::span<const Value> factors, bool along_rows) {
    return nn::ConcatOp::Create(b, factors, {.axis = along_rows ? 0 : 1}).concat_result();
  };
  const bool tx = first.transpose_x(), ty = first.transpose_y();
  const Value x = join(left, tx), y = join(right, !ty);
  const Value sum = nn::MatmulOp::Create(b, x, y, {.transpose_x = tx, .transpose_y = ty}).z();
  for (const Value product : products) product.defining_op()->Erase();
  return sum;
}

}  // namespace

bool IsDifferentiable(Value value) {
  const AnyTensorType type = TensorOrNull(value);
  return type && IsFloat(type.element());
}

std::vector<Value> CapturedValues(Operation* op) {
  std::unordered_set<const Block*> inside;
  std::unordered_set<Value> seen;
  std::vector<Value> captured;
  for (OpWalker w(op); Operation* inner = w.Next();) {
    for (Region& region : inner->regions()) {
      for (Block& block : region) inside.insert(&block);
    }
    for (size_t i = 0; inner != op && i < inner->num_operands(); ++i) {
      const Value value = inner->operand(i);
      if (!value || inside.contains(value.parent_block())) continue;
      if (seen.insert(value).second) captured.push_back(value);
    }
  }
  return captured;
}

// ---- one block ----

Backward::Backward(Builder& b, std::span<const Value> xs, std::span<const Value> held,
                   std::vector<Operation*>& replaced, int depth)
    : b_(b), replaced_(replaced), depth_(depth) {
  stops_.insert(xs.begin(), xs.end());
  depends_ = stops_;
  stops_.insert(held.begin(), held.end());
}

void Backward::Add(Value to, Value grad) {
  Sum& sum = grads_[to];
  sum.rest = Added(b_, sum.rest, grad);
}

// Only what is of one operand and of no result may be joined: then nothing else holds it.
// A rule may name optional operands behind the last one that is there; no gradient flows to them.
void Backward::AddAll(Operation* op, std::span<const Value> grads,
                      std::span<const Value> of_operands) {
  for (size_t i = 0; i < of_operands.size(); ++i) {
    const Value grad = of_operands[i];
    if (!grad) continue;
    LATHE_CHECK(i < op->num_operands(), op->name(), " has no operand ", i);
    const Value operand = op->operand(i);
    if (!Depends(operand)) continue;
    const auto is_own = [&] {
      return std::ranges::count(of_operands, grad) == 1 &&
             std::ranges::find(grads, grad) == grads.end();
    };
    std::vector<Value>& products = grads_[operand].products;
    if (IsProduct(grad) && is_own() && (products.empty() || CanJoin(products[0], grad))) {
      products.push_back(grad);
    } else {
      Add(operand, grad);
    }
  }
}

Value Backward::Find(Value x) {
  const auto found = grads_.find(x);
  return found == grads_.end() ? Value() : Write(found->second);
}

Value Backward::Write(Sum& sum) {
  constexpr size_t kFewest = 3;  // of two, the copies take as long as the sum
  if (sum.products.size() >= kFewest) sum.products = {Joined(b_, sum.products)};
  for (const Value product : sum.products) sum.rest = Added(b_, sum.rest, product);
  sum.products.clear();
  return sum.rest;
}

Value Backward::Of(Value x) {
  const Value found = Find(x);
  return found ? found : nn::FilledLike(b_, x, 0);
}

bool Backward::Reads(Operation& op) const {
  for (size_t i = 0; i < op.num_operands(); ++i) {
    if (Depends(op.operand(i))) return true;
  }
  if (op.num_regions() == 0) return false;
  const std::vector<Value> captured = CapturedValues(&op);
  return std::any_of(captured.begin(), captured.end(), [&](Value v) { return Depends(v); });
}

void Backward::MarkDependent(Operation& op) {
  if (!Reads(op)) return;
  for (size_t i = 0; i < op.num_results(); ++i) {
    const Value result = op.result(i);
    if (!stops_.contains(result) && MayCarry(result) && !IsStopped(result)) {
      depends_.insert(result);
    }
  }
}

void Backward::Run(Block* block, Operation* last) { Run(block->front(), last); }

void Backward::Run(Operation* first, Operation* last) {
  for (Operation* op = first; op != nullptr; op = op == last ? nullptr : op->next()) {
    MarkDependent(*op);
  }
  // What replaces an operation stands before it and is visited next.
  Operation* const before = first == nullptr ? nullptr : first->prev();
  for (Operation* op = last; op != before; op = op->prev()) Visit(op);
}

void Backward::Visit(Operation* op) {
  std::vector<Value> results(op->num_results());
  bool wanted = false;
  for (size_t i = 0; i < results.size(); ++i) {
    const Value result = op->result(i);
    if (stops_.contains(result) || !Depends(result)) continue;
    results[i] = Find(result);
    wanted |= static_cast<bool>(results[i]);
  }
  if (!wanted) return;
  if (op->isa<cf::IfOp>()) return VisitIf(op, results);
  if (op->isa<cf::WhileOp>()) return VisitWhile(op, results);
  const auto rule = op->dyn_cast<GradInterface>();
  if (!rule && op->HasInterface<DecomposeInterface>() && VisitParts(op, results)) return;
  if (!rule) {
    throw Error(ErrorCode::kUnsupported, "gradient/unsupported",
                StrCat(op->name(), " has no gradient"))
        .At(op->location().ToString(*op->context()));
  }
  const auto layout = op->attribute("layout").dyn_cast<StrAttribute>();
  if (layout && layout.value() == "NHWC") {
    throw Error(ErrorCode::kUnsupported, "gradient/unsupported",
                StrCat(op->name(), " has no gradient with its channels last"))
        .At(op->location().ToString(*op->context()))
        .Hint("run the pass layout{to=nchw} before");
  }
  AddAll(op, results, rule.Grad(results, b_));
}

/// Puts what the operation is made of in its place; false if this form has no other.
bool Backward::VisitParts(Operation* op, std::span<const Value> grads) {
  Operation* const before = op->prev();
  Operation* const end = b_.insertion_point();
  Block* const block = b_.block();
  b_.SetInsertionPoint(op);
  const std::vector<Value> results = DecomposeInFloats(op, b_);
  b_.SetInsertionPointToEnd(block);
  if (end != nullptr) b_.SetInsertionPoint(end);
  if (results.empty()) {
    while (op->prev() != before) op->prev()->Erase();
    return false;
  }
  Operation* made = before == nullptr ? op->block()->front() : before->next();
  for (; made != op; made = made->next()) MarkDependent(*made);
  for (size_t i = 0; i < results.size(); ++i) {
    if (grads[i]) Add(results[i], grads[i]);
    if (!op->result(i).use_empty()) op->result(i).ReplaceAllUsesWith(results[i]);
  }
  replaced_.push_back(op);
  return true;
}

// ---- whole programs ----

std::vector<Value> BuildGradients(Builder& b, std::span<const Value> ys, std::span<const Value> xs,
                                  std::span<const Value> held, std::vector<Operation*>& replaced,
                                  std::vector<Value>* seeds) {
  for (const Value y : ys) CheckFloat(y);
  for (const Value x : xs) CheckFloat(x);
  Backward backward(b, xs, held, replaced);
  const std::unordered_set<Value> stops(xs.begin(), xs.end()), kept(held.begin(), held.end());
  Operation* last = nullptr;
  for (const Value y : ys) {
    const Value seed = nn::FilledLike(b, y, 1);
    if (seeds != nullptr) seeds->push_back(seed);
    backward.Add(y, seed);
    Operation* maker = stops.contains(y) || kept.contains(y) ? nullptr : y.defining_op();
    if (maker == nullptr || maker->block() != b.block()) continue;
    if (last == nullptr || last->IsBefore(maker)) last = maker;
  }
  if (last != nullptr) backward.Run(b.block(), last);
  std::vector<Value> gradients;
  for (const Value x : xs) gradients.push_back(backward.Of(x));
  return gradients;
}

std::vector<Value> BuildGradients(Builder& b, Value y, std::span<const Value> xs,
                                  std::span<const Value> held) {
  std::vector<Operation*> replaced;
  return BuildGradients(b, std::span<const Value>(&y, 1), xs, held, replaced);
}

std::unordered_set<Value> ValuesBehind(std::span<const Value> ys) {
  std::unordered_set<Value> behind(ys.begin(), ys.end());
  std::vector<Value> open(ys.begin(), ys.end());
  while (!open.empty()) {
    Operation* maker = open.back().defining_op();
    open.pop_back();
    if (maker == nullptr) continue;
    std::vector<Value> read;
    if (maker->num_regions() > 0) read = CapturedValues(maker);
    for (size_t i = 0; i < maker->num_operands(); ++i) {
      if (maker->operand(i)) read.push_back(maker->operand(i));
    }
    for (const Value v : read) {
      if (behind.insert(v).second) open.push_back(v);
    }
  }
  return behind;
}

}  // namespace lathe
