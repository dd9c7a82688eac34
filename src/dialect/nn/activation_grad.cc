#include <cmath>
#include <numbers>

#include "lathe/dialect/nn/activation.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/movement.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {

// 0 at the corner. y > 0 where x > 0, which need not be kept.
std::vector<Value> ReluOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Value zero = FilledLike(b, ReluOp(o).y(), 0);
  const Value positive = GreaterOp::Create(b, ReluOp(o).y(), zero).c();
  return {WhereOp::Create(b, positive, g[0], zero).output()};
}

// y (1 - y).
std::vector<Value> SigmoidOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Value y = SigmoidOp(o).y();
  const Value part = MulOp::Create(b, g[0], y).c();
  return {SubOp::Create(b, part, MulOp::Create(b, part, y).c()).c()};
}

std::vector<Value> LeakyReluOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const LeakyReluOp op(o);
  // Of a positive slope the result is negative where x is, which need not be kept.
  const Term dy(b, g[0]), side(b, op.alpha() > 0 ? op.y() : op.x());
  return {Select(Less(side, side.Number(0)), op.alpha() * dy, dy)};
}

std::vector<Value> EluOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const EluOp op(o);
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {Select(Less(x, x.Number(0)), op.alpha() * dy * Exp(x), dy)};
}

std::vector<Value> SeluOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const SeluOp op(o);
  const Term dy(b, g[0]), x(b, o->operand(kX));
  const Term below = op.alpha() * dy * Exp(x);
  return {op.gamma() * Select(Less(x.Number(0), x), dy, below)};
}

std::vector<Value> CeluOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const CeluOp op(o);
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {Select(Less(x, x.Number(0)), dy * Exp(1 / op.alpha() * x), dy)};
}

std::vector<Value> HardSigmoidOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const HardSigmoidOp op(o);
  const Term dy(b, g[0]), x(b, o->operand(kX));
  const Term line = op.alpha() * x + op.beta(), zero = x.Number(0);
  const Term low = Select(Less(zero, line), op.alpha() * dy, zero);
  return {Select(Less(line, x.Number(1)), low, zero)};
}

std::vector<Value> HardSwishOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  const Term middle = dy * (1.0 / 3 * x + 0.5);
  const Term low = Select(Less(x, x.Number(-3)), x.Number(0), middle);
  return {Select(Less(x.Number(3), x), dy, low)};
}

std::vector<Value> SwishOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const SwishOp op(o);
  const Term dy(b, g[0]), x(b, o->operand(kX));
  const Term s = Sigmoid(op.alpha() * x);
  return {dy * (s + op.alpha() * x * s * (1 - s))};
}

std::vector<Value> SoftplusOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {dy * Sigmoid(x)};
}

std::vector<Value> SoftsignOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  const Term below = Abs(x) + 1;
  return {dy / (below * below)};
}

std::vector<Value> MishOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  const Term t = Tanh(Term(b, SoftplusOp::Create(b, x).y()));
  return {dy * (t + x * (1 - t * t) * Sigmoid(x))};
}

std::vector<Value> ThresholdedReluOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const ThresholdedReluOp op(o);
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {Select(Less(x.Number(op.alpha()), x), dy, x.Number(0))};
}

std::vector<Value> ShrinkOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const ShrinkOp op(o);
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {Select(Less(x.Number(op.lambd()), Abs(x)), dy, x.Number(0))};
}

// Phi(x) + x phi(x), or the derivative of the approximation.
std::vector<Value> GeluOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  if (GeluOp(o).approximate() == "tanh") {
    const double scale = std::sqrt(2 / std::numbers::pi), cubic = 0.044715;
    const Term square = x * x;
    const Term t = Tanh(scale * (x + cubic * x * square));
    const Term inner = scale * (3 * cubic * square + 1);
    return {dy * (0.5 * (t + 1) + 0.5 * x * (1 - t * t) * inner)};
  }
  const Term erf(b, ErfOp::Create(b, 1 / std::numbers::sqrt2 * x).y());
  const Term density = 1 / std::sqrt(2 * std::numbers::pi) * Exp(-0.5 * x * x);
  return {dy * (0.5 * (erf + 1) + x * density)};
}

}  // namespace lathe::nn
