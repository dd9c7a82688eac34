#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {

std::vector<Value> ReshapeOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {ReshapeLike(b, g[0], o->operand(0))};
}

std::vector<Value> FlattenOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {ReshapeLike(b, g[0], o->operand(0))};
}

std::vector<Value> SqueezeOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {ReshapeLike(b, g[0], o->operand(0))};
}

std::vector<Value> UnsqueezeOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {ReshapeLike(b, g[0], o->operand(0))};
}

std::vector<Value> ExpandOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const auto known = g[0].type().cast<AnyTensorType>(),
             x = o->operand(0).type().cast<AnyTensorType>();
  if (known.is_static() && x.has_rank()) return {SumTo(b, g[0], o->operand(0))};
  return {GradOfSelection(o, g[0], b)};
}

std::vector<Value> TransposeOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const auto perm = TransposeOp(o).perm();
  if (!perm) return {Typed(TransposeOp::Create(b, g[0]).transposed(), o->operand(0))};
  std::vector<int64_t> inverse(perm->size());
  for (size_t i = 0; i < perm->size(); ++i) {
    const int64_t axis = FrontAxis((*perm)[i], static_cast<int64_t>(perm->size()));
    inverse[static_cast<size_t>(axis)] = static_cast<int64_t>(i);
  }
  return {Typed(TransposeOp::Create(b, g[0], {.perm = inverse}).transposed(), o->operand(0))};
}

// Through a conversion to integers nothing flows.
std::vector<Value> CastOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const ElementType from = o->operand(0).type().cast<AnyTensorType>().element();
  if (!IsFloat(from)) return {Value()};
  return {CastOp::Create(b, g[0], {.to = from}).output()};
}

// start + i delta; the limit only decides how many there are.
std::vector<Value> RangeOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const RangeOp op(o);
  const Term dy(b, g[0]);
  const Term numbers(b, CastOp::Create(b, Numbers(b, op.output()), {.to = dy.element()}).output());
  const auto sum = [&](const Term& x) {
    return Value(Term(b, ReduceSumOp::Create(b, x, Value(), {.keepdims = false}).reduced()));
  };
  return {sum(dy), Value(), sum(dy * numbers)};
}

}  // namespace lathe::nn
