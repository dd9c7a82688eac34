#include <cmath>
#include <numbers>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {

std::vector<Value> IdentityOp::Grad(Operation*, std::span<const Value> g, Builder&) {
  return {g[0]};
}

std::vector<Value> BlockGradientOp::Grad(Operation*, std::span<const Value>, Builder&) {
  return {Value()};
}

std::vector<Value> NegOp::Grad(Operation*, std::span<const Value> g, Builder& b) {
  return {NegOp::Create(b, g[0]).y()};
}

std::vector<Value> ExpOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {MulOp::Create(b, g[0], ExpOp(o).y()).c()};
}

std::vector<Value> LogOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {DivOp::Create(b, g[0], LogOp(o).x()).c()};
}

// 1 / (2 sqrt(x)).
std::vector<Value> SqrtOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Value y = SqrtOp(o).y();
  return {DivOp::Create(b, g[0], AddOp::Create(b, y, y).c()).c()};
}

// 1 - tanh(x)^2.
std::vector<Value> TanhOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Value y = TanhOp(o).y();
  const Value square = MulOp::Create(b, y, y).c();
  return {SubOp::Create(b, g[0], MulOp::Create(b, g[0], square).c()).c()};
}

std::vector<Value> AbsOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {dy * Term(b, SignOp::Create(b, x).y())};
}

std::vector<Value> ReciprocalOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), y(b, o->result(kY));
  return {-(dy * y * y)};
}

std::vector<Value> ErfOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {dy * (2 / std::sqrt(std::numbers::pi) * Exp(-(x * x)))};
}

std::vector<Value> SinOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {dy * Term(b, CosOp::Create(b, x).y())};
}

std::vector<Value> CosOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {-(dy * Term(b, SinOp::Create(b, x).y()))};
}

std::vector<Value> TanOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), y(b, o->result(kY));
  return {dy * (y * y + 1)};
}

std::vector<Value> AsinOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {dy / Sqrt(1 - x * x)};
}

std::vector<Value> AcosOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {-(dy / Sqrt(1 - x * x))};
}

std::vector<Value> AtanOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {dy / (x * x + 1)};
}

std::vector<Value> SinhOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {dy * Term(b, CoshOp::Create(b, x).y())};
}

std::vector<Value> CoshOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {dy * Term(b, SinhOp::Create(b, x).y())};
}

std::vector<Value> AsinhOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {dy / Sqrt(x * x + 1)};
}

std::vector<Value> AcoshOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {dy / Sqrt(x * x + -1)};
}

std::vector<Value> AtanhOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), x(b, o->operand(kX));
  return {dy / (1 - x * x)};
}

// Flows where x is strictly between the bounds, and to a bound where it is taken.
std::vector<Value> ClipOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const ClipOp op(o);
  const Term dy(b, g[0]), x(b, op.x());
  const Term zero = x.Number(0);
  std::vector<Value> grads{dy, Value(), Value()};
  Term inner = dy;
  if (op.max()) {
    const Value above = Less(Term(b, op.max()), x);
    grads[kMax] = SumTo(b, Typed(Select(above, dy, zero), op.x()), op.max());
    inner = Select(above, zero, inner);
  }
  if (op.min()) {
    const Value below = Less(x, Term(b, op.min()));
    grads[kMin] = SumTo(b, Typed(Select(below, inner, zero), op.x()), op.min());
    inner = Select(below, zero, inner);
  }
  grads[kX] = Typed(inner, op.x());
  return grads;
}

// In training mode by the mask that was drawn, which must be a result.
std::vector<Value> DropoutOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const DropoutOp op(o);
  if (!op.training_mode()) return {g[0]};
  if (!op.mask()) FailGradient(o, "in training mode has a gradient only with its result 'mask'");
  const Term dy(b, g[0]);
  const ElementType type = op.x().type().cast<AnyTensorType>().element();
  const Term ratio =
      op.ratio() ? Term(b, CastOp::Create(b, op.ratio(), {.to = type}).output()) : dy.Number(0.5);
  // Outside of training mode the mask is all true and nothing is scaled.
  const Term scale = Select(op.training_mode(), 1 - ratio, dy.Number(1));
  return {Typed(Select(op.mask(), dy / scale, dy.Number(0)), op.x())};
}

// ---- piecewise constant ----

std::vector<Value> SignOp::Grad(Operation*, std::span<const Value>, Builder&) { return {Value()}; }
std::vector<Value> FloorOp::Grad(Operation*, std::span<const Value>, Builder&) { return {Value()}; }
std::vector<Value> CeilOp::Grad(Operation*, std::span<const Value>, Builder&) { return {Value()}; }
std::vector<Value> RoundOp::Grad(Operation*, std::span<const Value>, Builder&) { return {Value()}; }

}  // namespace lathe::nn
