#include <cmath>

#include "lathe/dialect/nn/activation.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/dialect/nn/grad_util.h"
#include "src/dialect/nn/term.h"

namespace lathe::nn {

namespace {

using Values = std::vector<Value>;

Term FirstOperand(Operation* o, Builder& b) { return {b, o->operand(0)}; }

Term IsAbove(const Term& x, double bound) { return x.Call(nn::kGreater, {x.Number(bound)}); }
Term IsAtLeast(const Term& x, double bound) {
  return x.Call(nn::kGreaterOrEqual, {x.Number(bound)});
}
Term IsBelow(const Term& x, double bound) { return x.Call(nn::kLess, {x.Number(bound)}); }

}  // namespace

// ---- activations ----

Values LeakyReluOp::Decompose(Operation* o, Builder& b) {
  const Term x = FirstOperand(o, b);
  return {Where(IsAtLeast(x, 0), x, x * LeakyReluOp(o).alpha())};
}
Values EluOp::Decompose(Operation* o, Builder& b) {
  const Term x = FirstOperand(o, b);
  return {Where(IsAtLeast(x, 0), x, Expm1(x) * EluOp(o).alpha())};
}
Values SeluOp::Decompose(Operation* o, Builder& b) {
  const SeluOp op(o);
  const Term x = FirstOperand(o, b);
  return {Where(IsAbove(x, 0), x, Expm1(x) * op.alpha()) * op.gamma()};
}
Values CeluOp::Decompose(Operation* o, Builder& b) {
  const double alpha = CeluOp(o).alpha();
  const Term x = FirstOperand(o, b);
  return {Greatest(x, 0) + Least(Expm1(x / alpha) * alpha, 0)};
}
Values GeluOp::Decompose(Operation* o, Builder& b) {
  const Term x = FirstOperand(o, b);
  if (GeluOp(o).approximate() == "none") {
    return {x * 0.5 * ((x / std::sqrt(2.0)).Call(nn::kErf) + 1)};
  }
  const Term inner = (x + x * x * x * 0.044715) * std::sqrt(2 / M_PI);
  return {x * 0.5 * (inner.Call(nn::kTanh) + 1)};
}
Values HardSigmoidOp::Decompose(Operation* o, Builder& b) {
  const HardSigmoidOp op(o);
  return {Greatest(Least(FirstOperand(o, b) * op.alpha() + op.beta(), 1), 0)};
}
Values HardSwishOp::Decompose(Operation* o, Builder& b) {
  const Term x = FirstOperand(o, b);
  return {x * Greatest(Least(x / 6 + 0.5, 1), 0)};
}
Values SwishOp::Decompose(Operation* o, Builder& b) {
  const Term x = FirstOperand(o, b);
  return {x * Sigmoid(x * SwishOp(o).alpha())};
}
Values SoftplusOp::Decompose(Operation* o, Builder& b) { return {Softplus(FirstOperand(o, b))}; }
Values SoftsignOp::Decompose(Operation* o, Builder& b) {
  const Term x = FirstOperand(o, b);
  return {x / (Abs(x) + 1)};
}
Values MishOp::Decompose(Operation* o, Builder& b) {
  const Term x = FirstOperand(o, b);
  return {x * Softplus(x).Call(nn::kTanh)};
}
Values ThresholdedReluOp::Decompose(Operation* o, Builder& b) {
  const Term x = FirstOperand(o, b);
  return {Where(IsAbove(x, ThresholdedReluOp(o).alpha()), x, x.Number(0))};
}
/// Integers are computed in double, which no op here does.
Values ShrinkOp::Decompose(Operation* o, Builder& b) {
  const ShrinkOp op(o);
  const Term x = FirstOperand(o, b);
  if (!IsFloat(x.element())) return {};
  const Term above = Where(IsAbove(x, op.lambd()), x - op.bias(), x.Number(0));
  return {Where(IsBelow(x, -op.lambd()), x + op.bias(), above)};
}

// ---- arithmetic ----

Values ReciprocalOp::Decompose(Operation* o, Builder& b) { return {1 / FirstOperand(o, b)}; }

/// Bounds of one element count whatever their rank.
Values ClipOp::Decompose(Operation* o, Builder& b) {
  const ClipOp op(o);
  const auto scalar = [&](Value bound) {
    return Term(b, bound).Call(nn::kReshape, {IntsConstant(b, {})}).value();
  };
  Term x = FirstOperand(o, b);
  if (op.min()) x = x.Call(nn::kMax, {scalar(op.min())});
  if (op.max()) x = x.Call(nn::kMin, {scalar(op.max())});
  return {x};
}

Values SwiGluOp::Decompose(Operation* o, Builder& b) {
  const Term gate = FirstOperand(o, b);
  return {gate * Sigmoid(gate * SwiGluOp(o).alpha()) * Term(b, o->operand(1))};
}
Values PreluOp::Decompose(Operation* o, Builder& b) {
  const Term x = FirstOperand(o, b);
  return {Where(IsAtLeast(x, 0), x, x * Term(b, o->operand(1)))};
}
Values MeanOp::Decompose(Operation* o, Builder& b) {
  Values others;
  for (size_t i = 1; i < o->num_operands(); ++i) others.push_back(o->operand(i));
  return {FirstOperand(o, b).Call(nn::kSum, others) / static_cast<double>(o->num_operands())};
}

Values CastLikeOp::Decompose(Operation* o, Builder& b) {
  const CastLikeOp op(o);
  const ElementType to = op.target_type().type().cast<AnyTensorType>().element();
  return {CastOp::Create(
              b, op.input(),
              {.to = to, .saturate = op.saturate(), .round_mode = std::string(op.round_mode())})
              .output()};
}

}  // namespace lathe::nn
