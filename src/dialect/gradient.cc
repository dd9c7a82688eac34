#include "lathe/dialect/gradient.h"

#include <algorithm>

#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/decompose.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/ir/block.h"
#include "lathe/ir/context.h"
#include "lathe/ir/interfaces.h"
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

}  // namespace

bool IsDifferentiable(Value value) {
  const auto type = value ? value.type().dyn_cast<AnyTensorType>() : AnyTensorType();
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
  Value& sum = grads_[to];
  sum = sum ? nn::AddOp::Create(b_, sum, grad).c() : grad;
}

Value Backward::Find(Value x) const {
  const auto found = grads_.find(x);
  return found == grads_.end() ? Value() : found->second;
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
    const auto found = grads_.find(result);
    if (found == grads_.end() || stops_.contains(result) || !Depends(result)) continue;
    results[i] = found->second;
    wanted = true;
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
  const std::vector<Value> operands = rule.Grad(results, b_);
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] && Depends(op->operand(i))) Add(op->operand(i), operands[i]);
  }
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
