#include <optional>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/loss.h"
#include "lathe/dialect/nn/norm.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {
namespace {

// The parts of a loss that its gradient is made of.
struct Loss {
  Value scores, targets, weight;  // `weight` may be absent
  std::optional<int64_t> ignored;
  std::string_view reduction;
};

// The weight of each target, 0 for one that is ignored; `targets` become safe to index with.
Term WeightsOf(const Loss& loss, Value& targets, Builder& b) {
  const Term like(b, loss.scores);
  Value ignored;
  targets = CastOp::Create(b, loss.targets, {.to = ElementType::kI64}).output();
  if (loss.ignored) {
    const Term numbers(b, targets);
    ignored = Equal(numbers, Term(b, IntConstant(b, *loss.ignored)));
    targets = Select(ignored, Term(b, IntConstant(b, 0)), numbers);
  }
  const Value ones = CastOp::Create(b, FilledLike(b, targets, 1),
                                    {.to = loss.scores.type().cast<AnyTensorType>().element()})
                         .output();
  const Term weights(b, loss.weight ? GatherOp::Create(b, loss.weight, targets).output() : ones);
  return ignored ? Select(ignored, like.Number(0), weights) : weights;
}

// `part`, which has no classes, at each target, and zeros at all other classes.
Term AtTargets(const Loss& loss, Value targets, Term part) {
  Builder& b = part.builder();
  const Value extents = ShapeOp::Create(b, loss.scores).extents();
  const Value classes = GatherOp::Create(b, extents, IntConstant(b, 1)).output();
  const ElementType type = loss.scores.type().cast<AnyTensorType>().element();
  const Tensor off_on = Cast(Tensor::Of<double>({2}, {0, 1}), type);
  const Value values = builtin::ConstantOp::Create(b, {.value = off_on}).result();
  const Term hot(b, OneHotOp::Create(b, targets, classes, values, {.axis = 1}).output());
  const int64_t axis[] = {1};
  const Term spread(b, UnsqueezeOp::Create(b, part, IntsConstant(b, axis)).expanded());
  return {b, Typed(hot * spread, loss.scores)};
}

Term SumOfAll(Term x) {
  return {x.builder(), ReduceSumOp::Create(x.builder(), x, Value(), {.keepdims = false}).reduced()};
}

// The gradient of the log-probabilities: -weight at each target.
Term OfLogProbabilities(const Loss& loss, Value g, Builder& b) {
  Value targets;
  Term part = WeightsOf(loss, targets, b);
  if (loss.reduction == "mean") part = part / SumOfAll(part);
  return AtTargets(loss, targets, -(part * Term(b, g)));
}

// The gradient of the weights: what each class adds to the loss, for the mean against the share
// that its weight has in the divisor.
Value OfWeights(const Loss& loss, Value log, Value y, Value g, Builder& b) {
  if (!loss.weight) return {};
  Value targets;
  Loss plain = loss;
  plain.weight = Value();
  const Term valid = WeightsOf(plain, targets, b), dy(b, g);
  std::vector<int64_t> axes{0};
  for (int64_t i = 2; i < KnownRank(loss.scores); ++i) axes.push_back(i);
  const auto by_class = [&](Term t) {
    const Value sum =
        ReduceSumOp::Create(b, t, IntsConstant(b, axes), {.keepdims = false}).reduced();
    return Term(b, Typed(sum, loss.weight));
  };
  const Term added = by_class(-(AtTargets(loss, targets, valid * dy) * Term(b, log)));
  if (loss.reduction != "mean") return added;
  const Term weights = WeightsOf(loss, targets, b);
  const Term share = by_class(AtTargets(loss, targets, valid * dy * Term(b, y)));
  return (added - share) / SumOfAll(weights);
}

}  // namespace

std::vector<Value> NegativeLogLikelihoodLossOp::Grad(Operation* o, std::span<const Value> g,
                                                     Builder& b) {
  const NegativeLogLikelihoodLossOp op(o);
  const Loss loss{op.input(), op.target(), op.weight(), op.ignore_index(), op.reduction()};
  return {OfLogProbabilities(loss, g[0], b), Value(),
          OfWeights(loss, op.input(), op.loss(), g[0], b)};
}

std::vector<Value> SoftmaxCrossEntropyLossOp::Grad(Operation* o, std::span<const Value> g,
                                                   Builder& b) {
  const SoftmaxCrossEntropyLossOp op(o);
  const Loss loss{op.scores(), op.labels(), op.weights(), op.ignore_index(), op.reduction()};
  const Value log = LogSoftmaxOp::Create(b, op.scores(), {.axis = 1}).y();
  const bool both = g.size() > 1 && g[1];
  Term grad(b, both ? g[1] : Value());
  if (g[0]) {
    const Term of_loss = OfLogProbabilities(loss, g[0], b);
    grad = both ? grad + of_loss : of_loss;
  }
  const int64_t axis[] = {1};
  const Term sum(b, ReduceSumOp::Create(b, grad, IntsConstant(b, axis)).reduced());
  const Value scores = Typed(grad - Exp(Term(b, log)) * sum, op.scores());
  return {scores, Value(), g[0] ? OfWeights(loss, log, op.output(), g[0], b) : Value()};
}

}  // namespace lathe::nn
