#include "lathe/dialect/nn/loss.h"

#include <cmath>
#include <optional>

#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/norm.h"
#include "lathe/support/text.h"
#include "src/dialect/nn/operand_shape.h"

namespace lathe::nn {
namespace {

// The shape of the loss of each target.
SymShape TargetShape(const std::vector<SymShape>& shapes) {
  const SymShape& input = shapes[0];
  if (!input.ranked) return shapes[1];
  if (input.rank() < 2) {
    eval::FailShape("shape/rank",
                    StrCat("the input has shape ", input.ToString(), ", [N, C, ...] is expected"));
  }
  SymShape target = input;
  target.dims.erase(target.dims.begin() + 1);
  ExpectShape(shapes[1], target, "the target");
  ExpectShape(shapes[2], {input.dims[1]}, "the weight");
  return target;
}

SymShape LossShape(const std::vector<SymShape>& shapes, std::string_view reduction) {
  SymShape target = TargetShape(shapes);
  return reduction == "none" ? target : SymShape::OfRank(0);
}

// An input [N, C, D...] as N blocks of C rows of `inner` positions.
struct Classes {
  int64_t count, inner;
  std::vector<double> values;

  explicit Classes(const Tensor& x)
      : count(x.dim(1)),
        inner(eval::Product(x.shape(), 2, x.shape().size())),
        values(ToDoubles(x)) {}
  // The element of class `k` at position `at` of the targets.
  [[nodiscard]] double& At(int64_t at, int64_t k) {
    return values[static_cast<size_t>((at / inner * count + k) * inner + at % inner)];
  }
};

void LogSoftmax(Classes& x, int64_t positions) {
  for (int64_t at = 0; at < positions && x.count > 0; ++at) {
    double greatest = x.At(at, 0);
    for (int64_t k = 1; k < x.count; ++k) greatest = eval::NanMax(greatest, x.At(at, k));
    double sum = 0;
    for (int64_t k = 0; k < x.count; ++k) sum += std::exp(x.At(at, k) - greatest);
    for (int64_t k = 0; k < x.count; ++k) x.At(at, k) -= greatest + std::log(sum);
  }
}

Tensor Loss(EvalContext& c, Classes& x, std::optional<int64_t> ignored,
            std::string_view reduction) {
  const Tensor& target = c.input(1);
  const std::vector<int64_t> targets = ToInt64s(target);
  std::vector<double> weights;
  if (c.HasInput(2)) weights = ToDoubles(c.input(2));
  std::vector<double> loss(targets.size(), 0.0);
  double sum = 0, total = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    const int64_t k = targets[i];
    if (ignored && k == *ignored) continue;
    if (k < 0 || k >= x.count) {
      c.Fail("shape/loss-target", StrCat("target ", k, " among ", x.count, " classes"));
    }
    const double weight = weights.empty() ? 1 : weights[static_cast<size_t>(k)];
    loss[i] = -x.At(static_cast<int64_t>(i), k) * weight;
    sum += loss[i];
    total += weight;
  }
  const ElementType type = c.input(0).element_type();
  if (reduction == "none") return eval::FromDoubles(type, target.shape(), loss);
  const double result = reduction == "sum" ? sum : sum / total;
  return eval::FromDoubles(type, {}, {&result, 1});
}

}  // namespace

void NegativeLogLikelihoodLossOp::InferShape(InferShapeContext& c) {
  const NegativeLogLikelihoodLossOp op(c.op());
  c.SetShape(kLoss, LossShape(OperandShapes(c, 3), op.reduction()));
}

void NegativeLogLikelihoodLossOp::Eval(EvalContext& c) {
  const NegativeLogLikelihoodLossOp op(c.op());
  static_cast<void>(TargetShape(OperandShapes(c, 3)));
  Classes x(c.input(kInput));
  c.SetOutput(kLoss, Loss(c, x, op.ignore_index(), op.reduction()));
}

void SoftmaxCrossEntropyLossOp::InferShape(InferShapeContext& c) {
  const SoftmaxCrossEntropyLossOp op(c.op());
  c.SetShape(kOutput, LossShape(OperandShapes(c, 3), op.reduction()));
  c.SetShape(kLogProb, c.shape(kScores));
}

void SoftmaxCrossEntropyLossOp::Eval(EvalContext& c) {
  const SoftmaxCrossEntropyLossOp op(c.op());
  static_cast<void>(TargetShape(OperandShapes(c, 3)));
  const Tensor& scores = c.input(kScores);
  Classes x(scores);
  LogSoftmax(x, c.input(kLabels).num_elements());
  if (c.WantsOutput(kOutput)) c.SetOutput(kOutput, Loss(c, x, op.ignore_index(), op.reduction()));
  c.SetOutput(kLogProb, eval::FromDoubles(scores.element_type(), scores.shape(), x.values));
}

// ---- what it is made of ----

std::vector<Value> SoftmaxCrossEntropyLossOp::Decompose(Operation* o, Builder& b) {
  const SoftmaxCrossEntropyLossOp op(o);
  const Value log = LogSoftmaxOp::Create(b, op.scores(), {.axis = 1}).y();
  const Value loss = NegativeLogLikelihoodLossOp::Create(b, log, op.labels(), op.weights(),
                                                         {.ignore_index = op.ignore_index(),
                                                          .reduction = std::string(op.reduction())})
                         .loss();
  std::vector<Value> results{loss};
  if (o->num_results() > 1) results.push_back(log);
  return results;
}

}  // namespace lathe::nn
