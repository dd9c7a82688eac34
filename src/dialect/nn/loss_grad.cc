#include <optional>
#include <utility>

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

// One at each target, and zero at all other classes.
Term HotOf(const Loss& loss, Value targets, Builder& b) {
  const Value extents = ShapeOp::Create(b, loss.scores).extents();
  const Value classes = GatherOp::Create(b, extents, IntConstant(b, 1)).output();
  const ElementType type = loss.scores.type().cast<AnyTensorType>().element();
  const Tensor off_on = Cast(Tensor::Of<double>({2}, {0, 1}), type);
  const Value values = builtin::ConstantOp::Create(b, {.value = off_on}).result();
  return {b, OneHotOp::Create(b, targets, classes, values, {.axis = 1}).output()};
}

// `part`, which has no classes, for all of them.
Term ForClasses(Term part) {
  Builder& b = part.builder();
  const int64_t axis[] = {1};
  return {b, UnsqueezeOp::Create(b, part, IntsConstant(b, axis)).expanded()};
}

// `part`, which has no classes, at each target, and zeros at all other classes.
Term AtTargets(const Loss& loss, Value targets, Term part) {
  Builder& b = part.builder();
  return {b, Typed(HotOf(loss, targets, b) * ForClasses(part), loss.scores)};
}

Term SumOfAll(Term x) {
  return {x.builder(), ReduceSumOp::Create(x.builder(), x, Value(), {.keepdims = false}).reduced()};
}

// How much the loss of each target counts, times its gradient; `targets` become safe to index with.
Term PartOf(const Loss& loss, Value g, Value& targets, Builder& b) {
  const Term weights = WeightsOf(loss, targets, b);
  return (loss.reduction == "mean" ? weights / SumOfAll(weights) : weights) * Term(b, g);
}

// The gradient of the log-probabilities: -weight at each target.
Term OfLogProbabilities(const Loss& loss, Value g, Builder& b) {
  Value targets;
  const Term part = PartOf(loss, g, targets, b);
  return AtTargets(loss, targets, -part);
}

// Where the targets are, and PartOf for all classes.
std::pair<Term, Term> PartsOfTargets(const Loss& loss, Value g, Builder& b) {
  Value targets;
  const Term part = ForClasses(PartOf(loss, g, targets, b));
  return {HotOf(loss, targets, b), part};
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

// Of the loss alone, with the parts w of the targets: (softmax - 1 at the target) w, in one step.
std::vector<Value> SoftmaxCrossEntropyLossOp::Grad(Operation* o, std::span<const Value> g,
                                                   Builder& b) {
  const SoftmaxCrossEntropyLossOp op(o);
  const Loss loss{op.scores(), op.labels(), op.weights(), op.ignore_index(), op.reduction()};
  const Term log(b, LogSoftmaxOp::Create(b, op.scores(), {.axis = 1}).y());
  const Value of_weights = g[0] ? OfWeights(loss, log, op.output(), g[0], b) : Value();
  if (g.size() < 2 || !g[1]) {
    const auto [hot, part] = PartsOfTargets(loss, g[0], b);
    return {Typed((Exp(log) - hot) * part, op.scores()), Value(), of_weights};
  }
  Term grad(b, g[1]);
  if (g[0]) grad = grad + OfLogProbabilities(loss, g[0], b);
  const int64_t axis[] = {1};
  const Term sum(b, ReduceSumOp::Create(b, grad, IntsConstant(b, axis)).reduced());
  return {Typed(grad - Exp(log) * sum, op.scores()), Value(), of_weights};
}

}  // namespace lathe::nn
