#include <algorithm>
#include <numeric>

#include "lathe/dialect/nn/norm.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/pool.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/support/text.h"
#include "src/dialect/nn/grad_parts.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {
namespace {

std::vector<int64_t> AxesFrom(int64_t first, int64_t rank) {
  std::vector<int64_t> axes(static_cast<size_t>(std::max<int64_t>(rank - first, 0)));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

// Along axes, which stay with extent 1.
Term Mean(Term x, Value axes) {
  const ReduceMeanAttrs keep{.keepdims = true};
  return {x.builder(), ReduceMeanOp::Create(x.builder(), x, axes, keep).reduced()};
}
Term Sum(Term x, Value axes) {
  const ReduceSumAttrs keep{.keepdims = true};
  return {x.builder(), ReduceSumOp::Create(x.builder(), x, axes, keep).reduced()};
}

// x normalized over axes, with what its gradient needs.
struct Normalized {
  Normalized(Term x, const std::vector<int64_t>& over, double epsilon, bool centered = true)
      : axes(IntsConstant(x.builder(), over)), value(x), inverse(x), centered_(centered) {
    const Term middle = centered ? x - Mean(x, axes) : x;
    inverse = x.Number(1) / Sqrt(Mean(middle * middle, axes) + epsilon);
    value = Term(x.builder(), Typed(middle * inverse, x));
  }
  // The gradient of x, given that of `value`.
  Value Of(Term grad) const {
    const Term along = value * Mean(grad * value, axes);
    const Term rest = centered_ ? grad - Mean(grad, axes) - along : grad - along;
    return Typed(inverse * rest, value);
  }

  Value axes;
  Term value, inverse;

 private:
  bool centered_;
};

// A vector with an entry per channel, to broadcast to [N, C, D1, ...].
Term PerChannel(Builder& b, Value v, int64_t rank) {
  std::vector<int64_t> shape(static_cast<size_t>(rank), 1);
  shape[1] = -1;
  return {b, ReshapeOp::Create(b, v, IntsConstant(b, shape)).reshaped()};
}

// Summed over all but the channels, as the vector `like`.
Value ToChannels(Term grad, Value like, int64_t rank) {
  std::vector<int64_t> axes{0};
  for (int64_t i = 2; i < rank; ++i) axes.push_back(i);
  const Term sum = Sum(grad, IntsConstant(grad.builder(), axes));
  return ReshapeLike(grad.builder(), sum, like);
}

void ExpectOneType(const Operation* op) {
  const auto type = op->operand(0).type().cast<AnyTensorType>();
  for (size_t i = 1; i < op->num_operands(); ++i) {
    const Value v = op->operand(i);
    if (v && v.type().cast<AnyTensorType>().element() != type.element()) {
      FailGradient(op, "has a gradient only if all its operands have one element type");
    }
  }
}

void ExpectOnlyFirst(const Operation* op, std::span<const Value> g) {
  for (size_t i = 1; i < g.size(); ++i) {
    if (g[i]) FailGradient(op, StrCat("has no gradient for result ", i));
  }
}

}  // namespace

// ---- softmax ----

std::vector<Value> SoftmaxOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), y(b, SoftmaxOp(o).y());
  const int64_t axis[] = {SoftmaxOp(o).axis()};
  return {Typed(y * (dy - Sum(dy * y, IntsConstant(b, axis))), y)};
}

std::vector<Value> LogSoftmaxOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term dy(b, g[0]), y(b, LogSoftmaxOp(o).y());
  const int64_t axis[] = {LogSoftmaxOp(o).axis()};
  return {Typed(dy - Exp(y) * Sum(dy, IntsConstant(b, axis)), y)};
}

// ---- normalizations ----

std::vector<Value> LayerNormalizationOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const LayerNormalizationOp op(o);
  ExpectOnlyFirst(o, g);
  const int64_t rank = KnownRank(op.x());
  const Term dy(b, g[0]), scale(b, op.scale());
  const Normalized n(Term(b, op.x()), AxesFrom(FrontAxis(op.axis(), rank), rank), op.epsilon());
  std::vector<Value> grads{n.Of(dy * scale), SumTo(b, dy * n.value, op.scale())};
  if (op.b()) grads.push_back(SumTo(b, dy, op.b()));
  return grads;
}

std::vector<Value> RmsNormalizationOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const RmsNormalizationOp op(o);
  ExpectOneType(o);
  const int64_t rank = KnownRank(op.x());
  const Term dy(b, g[0]), scale(b, op.scale());
  const Normalized n(Term(b, op.x()), AxesFrom(FrontAxis(op.axis(), rank), rank), op.epsilon(),
                     /*centered=*/false);
  return {n.Of(dy * scale), SumTo(b, dy * n.value, op.scale())};
}

std::vector<Value> InstanceNormalizationOp::Grad(Operation* o, std::span<const Value> g,
                                                 Builder& b) {
  const InstanceNormalizationOp op(o);
  const int64_t rank = KnownRank(op.x());
  const Term dy(b, g[0]);
  const Normalized n(Term(b, op.x()), AxesFrom(2, rank), op.epsilon());
  return {n.Of(dy * PerChannel(b, op.scale(), rank)), ToChannels(dy * n.value, op.scale(), rank),
          ToChannels(dy, op.b(), rank)};
}

std::vector<Value> GroupNormalizationOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const GroupNormalizationOp op(o);
  const int64_t rank = KnownRank(op.x());
  const Term dy(b, g[0]);
  const int64_t shape[] = {0, op.num_groups(), -1};
  const auto grouped = [&](Value v) {
    return Term(b, ReshapeOp::Create(b, v, IntsConstant(b, shape)).reshaped());
  };
  const Normalized n(grouped(op.x()), {2}, op.epsilon());
  const Term value(b, ReshapeLike(b, n.value, op.x()));
  const Value dx = n.Of(grouped(dy * PerChannel(b, op.scale(), rank)));
  return {ReshapeLike(b, dx, op.x()), ToChannels(dy * value, op.scale(), rank),
          ToChannels(dy, op.b(), rank)};
}

// By given statistics: y = (x - mean) / sqrt(var + epsilon) * scale + b, each operand a variable.
std::vector<Value> BatchNormalizationOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const BatchNormalizationOp op(o);
  ExpectOnlyFirst(o, g);
  ExpectOneType(o);
  const int64_t rank = KnownRank(op.x());
  if (rank < 2) FailGradient(o, "has a gradient only from rank 2 on");
  const Term dy(b, g[0]), x(b, op.x()), scale = PerChannel(b, op.scale(), rank);
  const auto channels = [&](Term t, Value like) { return ToChannels(t, like, rank); };
  if (op.training_mode()) {
    std::vector<int64_t> axes = AxesFrom(1, rank);
    axes[0] = 0;
    const Normalized n(x, axes, op.epsilon());
    return {n.Of(dy * scale), channels(dy * n.value, op.scale()), channels(dy, op.b()), Value(),
            Value()};
  }
  const Term middle = x - PerChannel(b, op.mean(), rank);
  const Term inverse = scale.Number(1) / Sqrt(PerChannel(b, op.var(), rank) + op.epsilon());
  const Term dx(b, Typed(dy * scale * inverse, op.x()));
  return {dx, channels(dy * middle * inverse, op.scale()), channels(dy, op.b()),
          channels(-dx, op.mean()), channels(-0.5 * (dx * middle * inverse * inverse), op.var())};
}

// ---- across channels ----

std::vector<Value> HardmaxOp::Grad(Operation*, std::span<const Value>, Builder&) {
  return {Value()};
}

// The sums over neighboring channels are means of windows, with the channels as a spatial dim.
std::vector<Value> LrnOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const LrnOp op(o);
  const auto rank = static_cast<size_t>(KnownRank(op.x()));
  return GradByParts(o, g, b, [&](Builder& inner, std::span<const Value> operands) {
    const Term x(inner, operands[0]);
    const int64_t second[] = {1};
    const Value axes = IntsConstant(inner, second);
    std::vector<int64_t> kernel(rank - 1, 1), pads(2 * (rank - 1), 0);
    kernel[0] = op.size();
    pads[0] = (op.size() - 1) / 2;
    pads[rank - 1] = op.size() - 1 - pads[0];
    const Value squares = UnsqueezeOp::Create(inner, x * x, axes).expanded();
    const Value means =
        AveragePoolOp::Create(inner, squares,
                              {.kernel_shape = kernel, .pads = pads, .count_include_pad = true})
            .y();
    const Term mean(inner, SqueezeOp::Create(inner, means, axes).squeezed());
    const Term base = mean * op.alpha() + op.bias();
    return std::vector<Value>{x * base.Call(nn::kPow, {base.Number(-op.beta())})};
  });
}

}  // namespace lathe::nn
