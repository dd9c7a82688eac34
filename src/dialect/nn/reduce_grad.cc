#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {
namespace {

// A reduction, its result and its gradient with the reduced axes kept as 1.
struct Reduction {
  template <class OpT>
  Reduction(OpT op, Value g, Builder& builder)
      : b(builder), x(builder, op.data()), y(builder, op.reduced()), dy(builder, g) {
    axes = op.axes();
    noop = op.noop_with_empty_axes();
    if (op.keepdims()) return;
    const Value extents = ShapeOp::Create(b, Sum(x)).extents();
    y = Term(b, ReshapeOp::Create(b, y, extents, {.allowzero = true}).reshaped());
    dy = Term(b, ReshapeOp::Create(b, dy, extents, {.allowzero = true}).reshaped());
  }
  Term Sum(Term of) const {
    return {b, ReduceSumOp::Create(b, of, axes, {.keepdims = true, .noop_with_empty_axes = noop})
                   .reduced()};
  }
  // In the shape of x.
  std::vector<Value> Of(Term grad) const { return {Typed(grad * Term(b, FilledLike(b, x, 1)), x)}; }
  Term ShareOfExtreme() const {
    const Term has = AsNumbers(Equal(x, y), x);
    return dy * has / Sum(has);
  }

  Builder& b;
  Term x, y, dy;
  Value axes;
  bool noop = false;
};

Term SignOf(const Reduction& r) { return {r.b, SignOp::Create(r.b, r.x).y()}; }

}  // namespace

std::vector<Value> ReduceSumOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Reduction r(ReduceSumOp(o), g[0], b);
  return r.Of(r.dy);
}

std::vector<Value> ReduceMeanOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Reduction r(ReduceMeanOp(o), g[0], b);
  return r.Of(r.dy / r.Sum(Term(b, FilledLike(b, r.x, 1))));
}

std::vector<Value> ReduceMaxOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Reduction r(ReduceMaxOp(o), g[0], b);
  return r.Of(r.ShareOfExtreme());
}

std::vector<Value> ReduceMinOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Reduction r(ReduceMinOp(o), g[0], b);
  return r.Of(r.ShareOfExtreme());
}

// The product of the other elements, found without dividing by zero: where one element is zero, it
// has that of all that are not; where two are, there is none.
std::vector<Value> ReduceProdOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Reduction r(ReduceProdOp(o), g[0], b);
  const Term zero = r.x.Number(0);
  const Value is_zero = Equal(r.x, zero);
  const Term others = Select(is_zero, r.x.Number(1), r.x), zeros = AsNumbers(is_zero, r.x);
  const Term product(
      b, ReduceProdOp::Create(b, others, r.axes, {.keepdims = true, .noop_with_empty_axes = r.noop})
             .reduced());
  const Value none_left = Equal(r.Sum(zeros) - zeros, zero);
  return r.Of(r.dy * Select(none_left, product / others, zero));
}

std::vector<Value> ReduceL1Op::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Reduction r(ReduceL1Op(o), g[0], b);
  return r.Of(r.dy * SignOf(r));
}

std::vector<Value> ReduceL2Op::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Reduction r(ReduceL2Op(o), g[0], b);
  const Value is_zero = Equal(r.y, r.y.Number(0));  // there the gradient is 0
  return r.Of(r.dy * r.x / Select(is_zero, r.y.Number(1), r.y));
}

std::vector<Value> ReduceLogSumOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Reduction r(ReduceLogSumOp(o), g[0], b);
  return r.Of(r.dy / Exp(r.y));
}

std::vector<Value> ReduceLogSumExpOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Reduction r(ReduceLogSumExpOp(o), g[0], b);
  return r.Of(r.dy * Exp(r.x - r.y));
}

std::vector<Value> ReduceSumSquareOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Reduction r(ReduceSumSquareOp(o), g[0], b);
  return r.Of(2 * (r.dy * r.x));
}

}  // namespace lathe::nn
