#include "lathe/dialect/nn/norm.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "lathe/dialect/arithmetic.h"
#include "lathe/dialect/eval_util.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/nn/layout.h"

namespace lathe::nn {
namespace {

struct Moments {
  double mean = 0;
  double variance = 0;  // of the population
};

Moments MomentsOf(std::span<const double> values) {
  Moments m;
  const auto count = static_cast<double>(values.size());
  for (double v : values) m.mean += v;
  m.mean /= count;
  for (double v : values) m.variance += (v - m.mean) * (v - m.mean);
  m.variance /= count;
  return m;
}

double InverseDeviation(const Moments& m, double epsilon) {
  return 1 / std::sqrt(m.variance + epsilon);
}

// Shape rule of the ops with channels: x is [N, C, ...], the other operands [C].
Dim InferChannels(InferShapeContext& c, size_t least_rank, const Layout& layout = std::nullopt) {
  const SymShape x = ToChannelsFirst(ExpectMinRank(c, 0, least_rank, "the input"), layout);
  Dim channels = x.rank() > 1 ? x.dims[1] : x.ranked ? Dim(1) : Dim();
  for (size_t i = 1; i < c.num_inputs(); ++i) {
    const SymShape shape = ExpectRank(c, i, 1, "a statistic or factor");
    channels = ExpectEqual(channels, shape.dims[0], "shape/channels",
                           StrCat("the input has ", channels.ToString(), " channels, operand ", i,
                                  " has ", shape.dims[0].ToString(), " entries"));
  }
  c.SetShape(0, c.shape(0));
  return channels;
}

// An input [N, C, ...] as doubles.
struct Channels {
  int64_t images, count, size;
  std::vector<double> x;

  [[nodiscard]] std::span<double> Plane(int64_t image, int64_t channel) {
    return std::span(x).subspan(static_cast<size_t>((image * count + channel) * size),
                                static_cast<size_t>(size));
  }
};

Channels ChannelsOf(EvalContext& c, int64_t least_rank, const Layout& layout = std::nullopt) {
  const Tensor x = ToChannelsFirst(c.input(0), layout);
  if (x.rank() < least_rank) {
    c.Fail("shape/rank",
           StrCat("the input has rank ", x.rank(), ", at least ", least_rank, " is expected"));
  }
  const int64_t count = x.rank() > 1 ? x.dim(1) : 1;
  for (size_t i = 1; i < c.num_inputs(); ++i) {
    if (c.input(i).num_elements() == count && c.input(i).rank() == 1) continue;
    c.Fail("shape/channels", StrCat("the input has ", count, " channels, operand ", i, " is ",
                                    c.input(i).TypeString()));
  }
  const int64_t planes = x.dim(0) * count;
  return {x.dim(0), count, planes == 0 ? 0 : x.num_elements() / planes, ToDoubles(x)};
}

void SetLike(EvalContext& c, size_t i, const Tensor& like, std::span<const double> values) {
  c.SetOutput(i, eval::FromDoubles(like.element_type(), like.shape(), values));
}

// ---- lines along one axis -----------------------------------------------------------------------

void InferAlongAxis(InferShapeContext& c, int64_t axis) {
  const SymShape x = c.shape(0);
  if (x.ranked) static_cast<void>(InferAxis(c, axis, x.rank()));
  c.SetShape(0, x);
}

// Replaces every line of the input along `axis` by what f makes of it.
void MapLines(EvalContext& c, int64_t axis, const std::function<void(std::span<double>)>& f) {
  const Tensor& x = c.input(0);
  const auto at = static_cast<size_t>(eval::NormalizeAxis(axis, x.rank()));
  if (x.num_elements() == 0) return c.SetOutput(0, x);  // its other extents may be absurd
  std::vector<double> values = ToDoubles(x);
  const int64_t length = x.shape()[at];
  const int64_t inner = eval::Product(x.shape(), at + 1, x.shape().size());
  std::vector<double> line(static_cast<size_t>(length));
  for (int64_t i = 0; i < x.num_elements() / length; ++i) {
    double* first = values.data() + i / inner * length * inner + i % inner;
    for (int64_t k = 0; k < length; ++k) line[static_cast<size_t>(k)] = first[k * inner];
    f(line);
    for (int64_t k = 0; k < length; ++k) first[k * inner] = line[static_cast<size_t>(k)];
  }
  SetLike(c, 0, x, values);
}

double Greatest(std::span<const double> line) {
  double greatest = line[0];
  for (double v : line) greatest = eval::NanMax(greatest, v);
  return greatest;
}

void SoftmaxLine(std::span<double> line) {
  const double greatest = Greatest(line);
  double sum = 0;
  for (double& v : line) sum += v = std::exp(v - greatest);
  for (double& v : line) v /= sum;
}

void LogSoftmaxLine(std::span<double> line) {
  const double greatest = Greatest(line);
  double sum = 0;
  for (double v : line) sum += std::exp(v - greatest);
  const double shift = greatest + std::log(sum);
  for (double& v : line) v -= shift;
}

// As for ArgMax, NaN is greater than any number.
void HardmaxLine(std::span<double> line) {
  const auto less = [](double a, double b) { return a < b || (std::isnan(b) && !std::isnan(a)); };
  const auto first = std::max_element(line.begin(), line.end(), less);
  const auto index = first - line.begin();
  std::fill(line.begin(), line.end(), 0.0);
  line[static_cast<size_t>(index)] = 1;
}

void NormalizeLine(std::span<double> line, int64_t p) {
  double norm = 0;
  for (double v : line) norm += p == 1 ? std::fabs(v) : v * v;
  if (p == 2) norm = std::sqrt(norm);
  for (double& v : line) v = norm == 0 ? 0 : v / norm;
}

// ---- rows of the last dims ----------------------------------------------------------------------

SymShape InferRows(InferShapeContext& c, int64_t axis, size_t first_factor) {
  const SymShape x = c.shape(0);
  if (x.ranked) static_cast<void>(InferAxis(c, axis, x.rank()));
  for (size_t i = first_factor; i < c.num_inputs(); ++i) {
    if (c.HasInput(i)) ExpectBroadcastableTo(c, i, x, i == 1 ? "the scale" : "the bias");
  }
  c.SetShape(0, x);
  return x;
}

std::vector<double> BroadcastDoubles(EvalContext& c, size_t i, double absent) {
  const Shape& shape = c.input(0).shape();
  if (!c.HasInput(i)) return std::vector<double>(static_cast<size_t>(NumElements(shape)), absent);
  return ToDoubles(eval::BroadcastTo(c.input(i), shape));
}

// The shape of statistics over the dims from `axis` on.
Shape StatisticsShape(const Shape& shape, size_t axis) {
  Shape result = shape;
  std::fill(result.begin() + static_cast<std::ptrdiff_t>(axis), result.end(), 1);
  return result;
}

}  // namespace

// ---- per channel --------------------------------------------------------------------------------

void BatchNormalizationOp::InferShape(InferShapeContext& c) {
  const Dim channels = InferChannels(c, 1, BatchNormalizationOp(c.op()).layout());
  c.SetShape(kRunningMean, {channels});
  c.SetShape(kRunningVar, {channels});
}

void BatchNormalizationOp::Learned(LearnedContext& c) {
  c.Weights({kScale, kB});
  c.State(kMean, kRunningMean, c.Flag(kTrainingModeAttr));
  c.State(kVar, kRunningVar, c.Flag(kTrainingModeAttr));
}

// A product and a sum, with what belongs to a channel worked out before.
Dim BatchNormalizationOp::Flops(Operation* op) { return 2 * ElementsOf(op->operand(kX).type()); }
void BatchNormalizationOp::Eval(EvalContext& c) {
  const BatchNormalizationOp op(c.op());
  Channels x = ChannelsOf(c, 1, op.layout());
  const std::vector<double> scale = ToDoubles(c.input(kScale));
  const std::vector<double> bias = ToDoubles(c.input(kB));
  std::vector<double> mean = ToDoubles(c.input(kMean));
  std::vector<double> var = ToDoubles(c.input(kVar));
  for (int64_t i = 0; i < x.count; ++i) {
    const auto at = static_cast<size_t>(i);
    Moments m{mean[at], var[at]};
    if (op.training_mode()) {
      std::vector<double> all;
      for (int64_t n = 0; n < x.images; ++n) {
        const auto plane = x.Plane(n, i);
        all.insert(all.end(), plane.begin(), plane.end());
      }
      m = MomentsOf(all);
      mean[at] = mean[at] * op.momentum() + m.mean * (1 - op.momentum());
      var[at] = var[at] * op.momentum() + m.variance * (1 - op.momentum());
    }
    const double factor = InverseDeviation(m, op.epsilon()) * scale[at];
    for (int64_t n = 0; n < x.images; ++n) {
      for (double& v : x.Plane(n, i)) v = (v - m.mean) * factor + bias[at];
    }
  }
  const Tensor first = ToChannelsFirst(c.input(kX), op.layout());
  const Tensor y = eval::FromDoubles(first.element_type(), first.shape(), x.x);
  c.SetOutput(kY, FromChannelsFirst(y, op.layout()));
  SetLike(c, kRunningMean, c.input(kMean), mean);
  SetLike(c, kRunningVar, c.input(kVar), var);
}

namespace {

// Normalizes groups of `per_group` channels of each image, then scales and shifts each channel.
void NormalizeGroups(EvalContext& c, int64_t per_group, double epsilon) {
  Channels x = ChannelsOf(c, 2);
  const std::vector<double> scale = ToDoubles(c.input(1));
  const std::vector<double> bias = ToDoubles(c.input(2));
  for (int64_t n = 0; n < x.images; ++n) {
    for (int64_t first = 0; first < x.count; first += per_group) {
      const std::span<double> group(x.Plane(n, first).data(),
                                    static_cast<size_t>(per_group * x.size));
      const Moments m = MomentsOf(group);
      const double factor = InverseDeviation(m, epsilon);
      for (int64_t i = first; i < first + per_group; ++i) {
        const auto at = static_cast<size_t>(i);
        for (double& v : x.Plane(n, i)) v = (v - m.mean) * factor * scale[at] + bias[at];
      }
    }
  }
  SetLike(c, 0, c.input(0), x.x);
}

}  // namespace

void InstanceNormalizationOp::InferShape(InferShapeContext& c) {
  static_cast<void>(InferChannels(c, 2));
}
void InstanceNormalizationOp::Learned(LearnedContext& c) { c.Weights({kScale, kB}); }
// The sum, the difference from the mean, its square, their sum, the division; scale and shift.
Dim InstanceNormalizationOp::Flops(Operation* op) { return 7 * ElementsOf(op->operand(kX).type()); }
void InstanceNormalizationOp::Eval(EvalContext& c) {
  NormalizeGroups(c, 1, InstanceNormalizationOp(c.op()).epsilon());
}

void GroupNormalizationOp::InferShape(InferShapeContext& c) {
  const Dim channels = InferChannels(c, 2);
  const int64_t groups = GroupNormalizationOp(c.op()).num_groups();
  const char* hint = "choose num_groups so that it divides the channels";
  const auto message = [&] {
    return StrCat(channels.ToString(), " channels do not divide into ", groups, " groups");
  };
  if (groups < 1) c.Fail("shape/groups", message(), hint);
  Assume(SizeCondition::Divides(groups, channels), "shape/groups", message, hint);
}
void GroupNormalizationOp::Learned(LearnedContext& c) { c.Weights({kScale, kB}); }
// As of instances.
Dim GroupNormalizationOp::Flops(Operation* op) { return 7 * ElementsOf(op->operand(kX).type()); }
void GroupNormalizationOp::Eval(EvalContext& c) {
  const GroupNormalizationOp op(c.op());
  const int64_t groups = op.num_groups();
  const int64_t channels = c.input(kX).rank() > 1 ? c.input(kX).dim(1) : 1;
  if (groups < 1 || channels % groups != 0) {
    c.Fail("shape/groups", StrCat(channels, " channels do not divide into ", groups, " groups"));
  }
  NormalizeGroups(c, std::max<int64_t>(channels / groups, 1), op.epsilon());
}

// ---- rows ---------------------------------------------------------------------------------------

void LayerNormalizationOp::InferShape(InferShapeContext& c) {
  const int64_t axis = LayerNormalizationOp(c.op()).axis();
  SymShape statistics = InferRows(c, axis, kScale);
  if (statistics.ranked) {
    for (size_t d = InferAxis(c, axis, statistics.rank()); d < statistics.rank(); ++d) {
      statistics.dims[d] = 1;
    }
  }
  c.SetShape(kMean, statistics);
  c.SetShape(kInvStdDev, statistics);
}

void LayerNormalizationOp::Learned(LearnedContext& c) { c.Weights({kScale, kB}); }
// As of instances.
Dim LayerNormalizationOp::Flops(Operation* op) { return 7 * ElementsOf(op->operand(kX).type()); }
void LayerNormalizationOp::Eval(EvalContext& c) {
  const LayerNormalizationOp op(c.op());
  const Tensor& x = c.input(kX);
  const auto axis = static_cast<size_t>(eval::NormalizeAxis(op.axis(), x.rank()));
  const Shape shape = StatisticsShape(x.shape(), axis);
  const std::vector<double> scale = BroadcastDoubles(c, kScale, 1);
  const std::vector<double> bias = BroadcastDoubles(c, kB, 0);
  std::vector<double> y = ToDoubles(x);
  std::vector<double> mean(static_cast<size_t>(NumElements(shape)));
  std::vector<double> inverse(mean.size());
  const size_t length = mean.empty() ? 0 : y.size() / mean.size();
  for (size_t row = 0; row < mean.size(); ++row) {
    const std::span<double> line = std::span(y).subspan(row * length, length);
    const Moments m = MomentsOf(line);
    mean[row] = m.mean;
    inverse[row] = InverseDeviation(m, op.epsilon());
    for (size_t i = 0; i < length; ++i) {
      const size_t at = row * length + i;
      line[i] = (line[i] - m.mean) * inverse[row] * scale[at] + bias[at];
    }
  }
  SetLike(c, kY, x, y);
  c.SetOutput(kMean, eval::FromDoubles(op.stash_type(), shape, mean));
  c.SetOutput(kInvStdDev, eval::FromDoubles(op.stash_type(), shape, inverse));
}

void RmsNormalizationOp::InferShape(InferShapeContext& c) {
  static_cast<void>(InferRows(c, RmsNormalizationOp(c.op()).axis(), kScale));
}

void RmsNormalizationOp::Learned(LearnedContext& c) { c.Weights({kScale}); }
// The square, their sum, the division, the scale.
Dim RmsNormalizationOp::Flops(Operation* op) { return 4 * ElementsOf(op->operand(kX).type()); }
void RmsNormalizationOp::Eval(EvalContext& c) {
  const RmsNormalizationOp op(c.op());
  const Tensor& x = c.input(kX);
  const auto axis = static_cast<size_t>(eval::NormalizeAxis(op.axis(), x.rank()));
  const std::vector<double> scale = BroadcastDoubles(c, kScale, 1);
  std::vector<double> y = ToDoubles(x);
  const int64_t length = eval::Product(x.shape(), axis, x.shape().size());
  for (size_t row = 0; row < y.size(); row += static_cast<size_t>(length)) {
    const std::span<double> line = std::span(y).subspan(row, static_cast<size_t>(length));
    double squares = 0;
    for (double v : line) squares += v * v;
    const double rms = std::sqrt(squares / static_cast<double>(length) + op.epsilon());
    for (size_t i = 0; i < line.size(); ++i) line[i] = line[i] / rms * scale[row + i];
  }
  c.SetOutput(kY, eval::FromDoubles(c.input(kScale).element_type(), x.shape(), y));
}

// ---- along axes ---------------------------------------------------------------------------------

void MeanVarianceNormalizationOp::InferShape(InferShapeContext& c) {
  const SymShape x = c.shape(kX);
  for (int64_t axis : MeanVarianceNormalizationOp(c.op()).axes()) {
    if (x.ranked) static_cast<void>(InferAxis(c, axis, x.rank()));
  }
  c.SetShape(kY, x);
}

// As of instances, but for scale and shift.
Dim MeanVarianceNormalizationOp::Flops(Operation* op) {
  return 5 * ElementsOf(op->operand(kX).type());
}
void MeanVarianceNormalizationOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kX);
  const std::vector<int64_t> axes =
      eval::NormalizeAxes(MeanVarianceNormalizationOp(c.op()).axes(), x.rank());
  Shape kept = x.shape();
  for (int64_t axis : axes) kept[static_cast<size_t>(axis)] = 1;
  // Each element knows its group: its position in `kept`, broadcast.
  std::vector<int64_t> numbers(static_cast<size_t>(NumElements(kept)));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i);
  const Tensor group = eval::BroadcastTo(Tensor::Of<int64_t>(kept, numbers), x.shape());
  const auto of = group.data<int64_t>();
  std::vector<double> y = ToDoubles(x);
  std::vector<std::vector<double>> members(numbers.size());
  for (size_t i = 0; i < y.size(); ++i) members[static_cast<size_t>(of[i])].push_back(y[i]);
  std::vector<Moments> moments;
  for (const auto& values : members) moments.push_back(MomentsOf(values));
  for (size_t i = 0; i < y.size(); ++i) {
    const Moments& m = moments[static_cast<size_t>(of[i])];
    y[i] = (y[i] - m.mean) / (std::sqrt(m.variance) + 1e-9);
  }
  SetLike(c, kY, x, y);
}

void LrnOp::InferShape(InferShapeContext& c) {
  c.SetShape(kY, ExpectMinRank(c, kX, 2, "the input"));
}

// The square, the sum of `size` of them, the factor, the bias, the power, the division.
Dim LrnOp::Flops(Operation* o) {
  const LrnOp op(o);
  return (op.size() + 4) * ElementsOf(op.x().type());
}
void LrnOp::Eval(EvalContext& c) {
  const LrnOp op(c.op());
  Channels x = ChannelsOf(c, 2);
  const int64_t size = op.size();
  if (size < 1) c.Fail("shape/lrn", StrCat("size is ", size), "it must be at least 1");
  const double alpha = op.alpha() / static_cast<double>(size);
  const double beta = op.beta();
  const double bias = op.bias();
  std::vector<double> y;
  y.reserve(x.x.size());
  for (int64_t n = 0; n < x.images; ++n) {
    for (int64_t i = 0; i < x.count; ++i) {
      const int64_t low = std::max<int64_t>(0, i - (size - 1) / 2);
      const int64_t high = std::min(x.count - 1, size / 2 < x.count ? i + size / 2 : x.count - 1);
      for (size_t k = 0; k < static_cast<size_t>(x.size); ++k) {
        double squares = 0;
        for (int64_t j = low; j <= high; ++j) squares += x.Plane(n, j)[k] * x.Plane(n, j)[k];
        y.push_back(x.Plane(n, i)[k] / std::pow(bias + alpha * squares, beta));
      }
    }
  }
  SetLike(c, kY, c.input(kX), y);
}

namespace {

void CheckPower(const LpNormalizationOp& op) {
  if (op.p() == 1 || op.p() == 2) return;
  eval::FailShape("shape/lp-normalization", StrCat("p is ", op.p()), "use 1 or 2");
}

}  // namespace

void LpNormalizationOp::InferShape(InferShapeContext& c) {
  const LpNormalizationOp op(c.op());
  CheckPower(op);
  InferAlongAxis(c, op.axis());
}
// The power, their sum, the division.
Dim LpNormalizationOp::Flops(Operation* op) { return 3 * ElementsOf(op->operand(kX).type()); }
void LpNormalizationOp::Eval(EvalContext& c) {
  const LpNormalizationOp op(c.op());
  CheckPower(op);
  MapLines(c, op.axis(), [p = op.p()](std::span<double> line) { NormalizeLine(line, p); });
}

void SoftmaxOp::InferShape(InferShapeContext& c) { InferAlongAxis(c, SoftmaxOp(c.op()).axis()); }
// The greatest, the difference from it, exp, the sum, the division.
Dim SoftmaxOp::Flops(Operation* op) { return 5 * ElementsOf(op->operand(kX).type()); }
void SoftmaxOp::Eval(EvalContext& c) { MapLines(c, SoftmaxOp(c.op()).axis(), SoftmaxLine); }

void LogSoftmaxOp::InferShape(InferShapeContext& c) {
  InferAlongAxis(c, LogSoftmaxOp(c.op()).axis());
}
// The greatest, the difference from it, exp, the sum, the second difference.
Dim LogSoftmaxOp::Flops(Operation* op) { return 5 * ElementsOf(op->operand(kX).type()); }
void LogSoftmaxOp::Eval(EvalContext& c) {
  MapLines(c, LogSoftmaxOp(c.op()).axis(), LogSoftmaxLine);
}

void HardmaxOp::InferShape(InferShapeContext& c) { InferAlongAxis(c, HardmaxOp(c.op()).axis()); }
void HardmaxOp::Eval(EvalContext& c) { MapLines(c, HardmaxOp(c.op()).axis(), HardmaxLine); }

}  // namespace lathe::nn
