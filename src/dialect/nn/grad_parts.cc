#include "src/dialect/nn/grad_parts.h"

#include <unordered_set>

#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/ir/block.h"
#include "src/dialect/backward.h"

namespace lathe::nn {

namespace {

Operation* LastBefore(const Builder& b) {
  return b.insertion_point() != nullptr ? b.insertion_point()->prev() : b.block()->back();
}

/// The operands; one that occurs twice, or that is not the result of an operation, gets a value of
/// its own, so that each has its own gradient.
std::vector<Value> DistinctOperands(Operation* op, Builder& b) {
  std::unordered_set<Value> seen;
  std::vector<Value> operands;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const Value v = op->operand(i);
    const bool repeated = v && !seen.insert(v).second && IsDifferentiable(v);
    operands.push_back(repeated ? IdentityOp::Create(b, v).y() : v);
  }
  return operands;
}

}  // namespace

std::vector<Value> GradByParts(Operation* op, std::span<const Value> grads, Builder& b,
                               const MakeParts& make) {
  const std::vector<Value> operands = DistinctOperands(op, b);
  std::vector<Value> xs;
  for (const Value v : operands) {
    if (IsDifferentiable(v)) xs.push_back(v);
  }
  Operation* const before = LastBefore(b);
  const std::vector<Value> results = make(b, operands);
  Operation* const first = before == nullptr ? b.block()->front() : before->next();
  std::vector<Operation*> replaced;
  std::vector<Value> gradients;
  {
    Backward backward(b, xs, {}, replaced);
    for (size_t i = 0; i < grads.size(); ++i) {
      if (grads[i] && i < results.size() && results[i]) backward.Add(results[i], grads[i]);
    }
    backward.Run(first, LastBefore(b));
    for (const Value v : operands) gradients.push_back(v ? backward.Find(v) : Value());
  }
  for (Operation* gone : replaced) gone->Erase();
  return gradients;
}

}  // namespace lathe::nn
