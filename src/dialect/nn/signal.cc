#include "lathe/dialect/nn/signal.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/operand_shape.h"

namespace lathe::nn {
namespace {

using Complex = std::complex<double>;

Complex Root(size_t n, size_t length, int sign) {
  const double angle =
      sign * 2 * std::numbers::pi * static_cast<double>(n) / static_cast<double>(length);
  return {std::cos(angle), std::sin(angle)};
}

// By the definition.
std::vector<Complex> PlainTransform(std::span<const Complex> in, int sign) {
  std::vector<Complex> roots;
  for (size_t n = 0; n < in.size(); ++n) roots.push_back(Root(n, in.size(), sign));
  std::vector<Complex> out(in.size());
  for (size_t k = 0; k < in.size(); ++k) {
    for (size_t n = 0; n < in.size(); ++n) out[k] += roots[k * n % in.size()] * in[n];
  }
  return out;
}

// out[k] = sum over n of exp(sign 2 pi i k n / N) in[n]. Even lengths are halved (Cooley and Tukey,
// 1965), which ends after at most 62 levels.
std::vector<Complex> Transform(std::span<const Complex> in, int sign) {
  if (in.size() % 2 != 0) return PlainTransform(in, sign);
  const size_t half = in.size() / 2;
  std::vector<Complex> parts[2];
  for (size_t n = 0; n < in.size(); ++n) parts[n % 2].push_back(in[n]);
  const std::vector<Complex> even = Transform(parts[0], sign), odd = Transform(parts[1], sign);
  std::vector<Complex> out(in.size());
  for (size_t k = 0; k < half; ++k) {
    const Complex turned = Root(k, in.size(), sign) * odd[k];
    out[k] = even[k] + turned;
    out[k + half] = even[k] - turned;
  }
  return out;
}

// ---- dft ----------------------------------------------------------------------------------------

struct DftSpec {
  bool inverse, onesided;
  size_t axis;
};

size_t DftAxis(int64_t axis, size_t rank) {
  const auto at = static_cast<size_t>(eval::NormalizeAxis(axis, static_cast<int64_t>(rank)));
  if (at + 1 < rank) return at;
  eval::FailShape("shape/axis", "the last dim holds the parts of a complex number",
                  "choose another axis");
}

SymShape DftShape(const DftSpec& spec, SymShape x, const std::optional<Dim>& given) {
  const Dim& parts = x.dims.back();
  Assume(SizeCondition::BroadcastTo(parts, 2), "shape/dft",
         [&] { return StrCat("the last dim is ", parts.ToString(), ", not 1 or 2"); });
  const bool to_real = spec.inverse && spec.onesided;
  if (spec.onesided && !spec.inverse) {
    Assume(SizeCondition::Equal(parts, 1), "shape/dft",
           [] { return std::string("a onesided transform takes a real input"); });
  }
  const Dim extent = x.dims[spec.axis];
  const Dim length = given.value_or(to_real ? Dim(2) * (extent - Dim(1)) : extent);
  x.dims[spec.axis] = spec.onesided && !spec.inverse ? FloorDiv(length, 2) + Dim(1) : length;
  x.dims.back() = to_real ? 1 : 2;
  return x;
}

// The odd factor of a length costs its square.
int64_t CheckLength(int64_t length) {
  constexpr int64_t kLongest = int64_t{1} << 26, kLargestFactor = int64_t{1} << 15;
  int64_t odd = length;
  while (odd > 0 && odd % 2 == 0) odd /= 2;
  if (length >= 1 && length <= kLongest && odd <= kLargestFactor) return length;
  throw Error(ErrorCode::kUnsupported, "dft/length",
              StrCat("a transform of length ", length, " is not supported"))
      .Hint(StrCat("lengths up to ", kLongest, " with odd factors up to ", kLargestFactor));
}

// One line of the input, cut or continued to `length`; of a onesided spectrum, all of it.
std::vector<Complex> LineOf(const double* x, int64_t stride, int64_t parts, int64_t extent,
                            int64_t length, bool half) {
  std::vector<Complex> line(static_cast<size_t>(length));
  const int64_t given = std::min(extent, half ? length / 2 + 1 : length);
  for (int64_t n = 0; n < given; ++n) {
    const double* p = x + n * stride;
    line[static_cast<size_t>(n)] = Complex(p[0], parts == 2 ? p[1] : 0);
  }
  if (!half) return line;
  for (int64_t n = 1; n < length - n; ++n) {
    line[static_cast<size_t>(length - n)] = std::conj(line[static_cast<size_t>(n)]);
  }
  return line;
}

// ---- stft ---------------------------------------------------------------------------------------

struct Frames {
  Dim batch, count, length;
};

Frames FramesOf(const std::vector<SymShape>& shapes, const Dim& step,
                const std::optional<Dim>& given, bool onesided) {
  const SymShape signal = WithRank(shapes[0], 3, "the signal");
  const Dim& parts = signal.dims[2];
  Assume(SizeCondition::BroadcastTo(parts, onesided ? 1 : 2), "shape/stft", [&] {
    return StrCat("the last dim of the signal is ", parts.ToString(),
                  onesided ? ", not 1" : ", not 1 or 2");
  });
  Dim length = given.value_or(signal.dims[1]);
  if (shapes[2].ranked) {
    const Dim window = WithRank(shapes[2], 1, "the window").dims[0];
    if (!given) length = window;
    Unify(length, window, "the frame length");
  }
  return {signal.dims[0], FloorDiv(signal.dims[1] - length, step) + Dim(1), length};
}

SymShape StftShape(const Frames& f, bool onesided) {
  return {f.batch, f.count, onesided ? FloorDiv(f.length, 2) + Dim(1) : f.length, 2};
}

std::optional<Dim> ScalarDim(const InferShapeContext& c, size_t i) {
  if (!c.HasInput(i)) return std::nullopt;
  const auto contents = c.Contents(i);
  return contents && contents->size() == 1 ? (*contents)[0] : Dim();
}

// ---- mel_weight_matrix --------------------------------------------------------------------------

double Mel(double hertz) { return 2595 * std::log10(1 + hertz / 700); }
double Hertz(double mel) { return 700 * (std::pow(10, mel / 2595) - 1); }

double FloatOf(EvalContext& c, size_t i) {
  if (c.input(i).num_elements() == 1) return ToDoubles(c.input(i))[0];
  c.Fail("shape/scalar", StrCat("operand ", i, " is ", c.input(i).TypeString()));
}

std::vector<int64_t> MelEdges(EvalContext& c, int64_t bins, int64_t length, int64_t rate) {
  const double low = Mel(FloatOf(c, MelWeightMatrixOp::kLowerEdgeHertz));
  const double high = Mel(FloatOf(c, MelWeightMatrixOp::kUpperEdgeHertz));
  const double step = (high - low) / static_cast<double>(bins + 2);
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double hertz = Hertz(low + static_cast<double>(i) * step);
    const double bin =
        std::floor((static_cast<double>(length) + 1) * hertz / static_cast<double>(rate));
    const int64_t last = length / 2;
    if (!(bin >= 0 && bin <= static_cast<double>(last))) {
      c.Fail("mel/edges", StrCat("an edge at ", hertz, " Hz is outside the spectrum"),
             "edges lie between 0 and half of sample_rate");
    }
    edges.push_back(static_cast<int64_t>(bin));
  }
  return edges;
}

// ---- det ----------------------------------------------------------------------------------------

SymShape DetShape(SymShape x) {
  if (!x.ranked) return x;
  const size_t rank = x.rank();
  const auto message = [&] {
    return StrCat("the input has shape ", x.ToString(),
                  ", square matrices [..., M, M] are expected");
  };
  if (rank < 2) eval::FailShape("shape/det", message());
  Assume(SizeCondition::Equal(x.dims[rank - 1], x.dims[rank - 2]), "shape/det", message);
  x.dims.resize(rank - 2);
  return x;
}

double Determinant(double* a, int64_t n) {
  double det = 1;
  for (int64_t k = 0; k < n; ++k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < n; ++i) {
      if (std::fabs(a[i * n + k]) > std::fabs(a[best * n + k])) best = i;
    }
    if (best != k) {
      std::swap_ranges(a + k * n, a + k * n + n, a + best * n);
      det = -det;
    }
    const double pivot = a[k * n + k];
    det *= pivot;
    if (pivot == 0) return 0;
    for (int64_t i = k + 1; i < n; ++i) {
      const double factor = a[i * n + k] / pivot;
      for (int64_t j = k; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
    }
  }
  return det;
}

}  // namespace

void DftOp::InferShape(InferShapeContext& c) {
  const DftOp op(c.op());
  ExpectScalar(c, kDftLength, "dft_length");
  ExpectScalar(c, kAxis, "axis");
  const SymShape x = ExpectMinRank(c, kInput, 2, "the input");
  if (!x.ranked) return c.SetShape(kOutput, x);
  std::optional<int64_t> axis = -2;
  if (c.HasInput(kAxis)) {
    const auto given = c.ConstantInts(kAxis);
    axis = given && given->size() == 1 ? std::optional((*given)[0]) : std::nullopt;
  }
  if (axis) {
    const DftSpec spec{op.inverse(), op.onesided(), DftAxis(*axis, x.rank())};
    return c.SetShape(kOutput, DftShape(spec, x, ScalarDim(c, kDftLength)));
  }
  SymShape unknown = SymShape::OfRank(x.rank());
  unknown.dims.back() = op.inverse() && op.onesided() ? 1 : 2;
  c.SetShape(kOutput, unknown);
}

void DftOp::Eval(EvalContext& c) {
  const DftOp op(c.op());
  const Tensor& x = c.input(kInput);
  if (x.rank() < 2) c.Fail("shape/rank", StrCat("the input is ", x.TypeString()));
  const int64_t axis = c.HasInput(kAxis) ? eval::ScalarInt(c.input(kAxis), "axis") : -2;
  const DftSpec spec{op.inverse(), op.onesided(), DftAxis(axis, x.shape().size())};
  std::optional<Dim> given;
  if (c.HasInput(kDftLength)) given = eval::ScalarInt(c.input(kDftLength), "dft_length");
  const Shape shape = ConstantsOf(DftShape(spec, SymShape::FromConstants(x.shape()), given));
  const bool to_real = spec.inverse && spec.onesided;
  const int64_t extent = x.shape()[spec.axis];
  const int64_t length = CheckLength(given ? given->value() : to_real ? 2 * (extent - 1) : extent);
  const std::vector<double> values = ToDoubles(x);
  std::vector<double> y(static_cast<size_t>(NumElements(shape)));
  const int64_t parts = x.dim(-1), out_parts = shape.back(), count = shape[spec.axis];
  const int64_t inner = eval::Product(shape, spec.axis + 1, shape.size() - 1);
  const int64_t lines = count * out_parts == 0 ? 0 : NumElements(shape) / (count * out_parts);
  const double factor = spec.inverse ? 1 / static_cast<double>(length) : 1;
  for (int64_t at = 0; at < lines; ++at) {
    const int64_t outer = at / inner, column = at % inner;
    const double* from =
        extent == 0 ? nullptr : values.data() + (outer * extent * inner + column) * parts;
    const auto line = LineOf(from, inner * parts, parts, extent, length, to_real);
    const auto out = Transform(line, spec.inverse ? 1 : -1);
    double* to = y.data() + (outer * count * inner + column) * out_parts;
    for (int64_t k = 0; k < count; ++k) {
      double* p = to + k * inner * out_parts;
      p[0] = out[static_cast<size_t>(k)].real() * factor;
      if (out_parts == 2) p[1] = out[static_cast<size_t>(k)].imag() * factor;
    }
  }
  c.SetOutput(kOutput, eval::FromDoubles(x.element_type(), shape, y));
}

void StftOp::InferShape(InferShapeContext& c) {
  const bool onesided = StftOp(c.op()).onesided();
  ExpectScalar(c, kFrameStep, "frame_step");
  ExpectScalar(c, kFrameLength, "frame_length");
  const Dim step = ScalarDim(c, kFrameStep).value_or(Dim());
  if (step.is_constant() && step.value() < 1) {
    c.Fail("shape/stft", StrCat("frame_step is ", step.value()), "it must be at least 1");
  }
  const Frames f = FramesOf(OperandShapes(c, 4), step, ScalarDim(c, kFrameLength), onesided);
  c.SetShape(kOutput, StftShape(f, onesided));
}

void StftOp::Eval(EvalContext& c) {
  const bool onesided = StftOp(c.op()).onesided();
  const Tensor& signal = c.input(kSignal);
  const int64_t step = eval::ScalarInt(c.input(kFrameStep), "frame_step");
  if (step < 1) c.Fail("shape/stft", StrCat("frame_step is ", step), "it must be at least 1");
  std::optional<Dim> given;
  if (c.HasInput(kFrameLength)) given = eval::ScalarInt(c.input(kFrameLength), "frame_length");
  const Frames f = FramesOf(OperandShapes(c, 4), step, given, onesided);
  const Shape shape = ConstantsOf(StftShape(f, onesided));
  const int64_t length = CheckLength(f.length.value());
  const int64_t extent = signal.dim(1), parts = signal.dim(2);
  const std::vector<double> x = ToDoubles(signal);
  const std::vector<double> window = c.HasInput(kWindow)
                                         ? ToDoubles(c.input(kWindow))
                                         : std::vector<double>(static_cast<size_t>(length), 1.0);
  std::vector<double> y;
  y.reserve(static_cast<size_t>(NumElements(shape)));
  for (int64_t at = 0; at < shape[0] * shape[1]; ++at) {
    const int64_t first = at / shape[1] * extent + at % shape[1] * step;
    auto line = LineOf(x.data() + first * parts, parts, parts, length, length, false);
    for (size_t n = 0; n < line.size(); ++n) line[n] *= window[n];
    const std::vector<Complex> out = Transform(line, -1);
    for (const Complex& v : std::span(out).first(static_cast<size_t>(shape[2]))) {
      y.push_back(v.real());
      y.push_back(v.imag());
    }
  }
  c.SetOutput(kOutput, eval::FromDoubles(signal.element_type(), shape, y));
}

void MelWeightMatrixOp::InferShape(InferShapeContext& c) {
  for (size_t i = 0; i < 5; ++i) ExpectScalar(c, i, "an operand");
  const Dim length = ScalarDim(c, kDftLength).value_or(Dim());
  c.SetShape(kOutput, {FloorDiv(length, 2) + Dim(1), ScalarDim(c, kNumMelBins).value_or(Dim())});
}

void MelWeightMatrixOp::Eval(EvalContext& c) {
  const int64_t bins = eval::ScalarInt(c.input(kNumMelBins), "num_mel_bins");
  const int64_t length = eval::ScalarInt(c.input(kDftLength), "dft_length");
  const int64_t rate = eval::ScalarInt(c.input(kSampleRate), "sample_rate");
  if (bins < 1 || length < 0 || rate < 1) {
    c.Fail("mel/sizes", StrCat(bins, " bins, dft_length ", length, ", sample_rate ", rate));
  }
  const Shape shape = ConstantsOf({length / 2 + 1, bins});
  const std::vector<int64_t> edges = MelEdges(c, bins, length, rate);
  Tensor weights(ElementType::kF64, shape);
  double* w = weights.mutable_data<double>().data();
  for (int64_t i = 0; i < bins; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t low = edges[at], middle = edges[at + 1], high = edges[at + 2];
    for (int64_t j = low; j < middle; ++j) {
      w[j * bins + i] = static_cast<double>(j - low) / static_cast<double>(middle - low);
    }
    w[middle * bins + i] = 1;
    for (int64_t j = middle; j < high; ++j) {
      w[j * bins + i] = static_cast<double>(high - j) / static_cast<double>(high - middle);
    }
  }
  c.SetOutput(kOutput, Cast(weights, MelWeightMatrixOp(c.op()).output_datatype()));
}

void DetOp::InferShape(InferShapeContext& c) { c.SetShape(kY, DetShape(c.shape(kX))); }

void DetOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kX);
  const Shape shape = ConstantsOf(DetShape(SymShape::FromConstants(x.shape())));
  std::vector<double> values = ToDoubles(x);
  std::vector<double> y(static_cast<size_t>(NumElements(shape)));
  const int64_t n = x.dim(-1);
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = Determinant(values.data() + static_cast<int64_t>(i) * n * n, n);
  }
  c.SetOutput(kY, eval::FromDoubles(x.element_type(), shape, y));
}

}  // namespace lathe::nn
