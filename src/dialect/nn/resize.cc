#include "lathe/dialect/nn/resize.h"

#include <algorithm>
#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/operand_shape.h"
#include "src/dialect/nn/resize_extent.h"

namespace lathe::nn {
namespace {

// The axes to resample, in the order of the operands.
std::vector<size_t> AxesOf(const ResizeOp& op, size_t rank) {
  std::vector<size_t> axes;
  if (const auto given = op.axes()) {
    for (int64_t axis : eval::NormalizeAxes(*given, static_cast<int64_t>(rank))) {
      axes.push_back(static_cast<size_t>(axis));
    }
    return axes;
  }
  for (size_t i = 0; i < rank; ++i) axes.push_back(i);
  return axes;
}

void CheckOperands(const ResizeOp& op, const std::vector<SymShape>& shapes, size_t axes) {
  if (!op.scales() && !op.sizes()) {
    eval::FailShape("shape/resize", "scales or sizes must be given");
  }
  const auto count = static_cast<int64_t>(axes);
  ExpectShape(shapes[ResizeOp::kScales], {count}, "scales");
  ExpectShape(shapes[ResizeOp::kSizes], {count}, "sizes");
  const bool crops = op.coordinate_transformation_mode() == "tf_crop_and_resize";
  if (crops && !op.roi()) eval::FailShape("shape/resize", "tf_crop_and_resize needs roi");
  if (crops) ExpectShape(shapes[ResizeOp::kRoi], {2 * count}, "roi");
}

// Extent and factor of each axis that is resampled.
struct Target {
  size_t axis;
  int64_t in, out;
  double scale;
  double first = 0, last = 0;  // the region of interest

  [[nodiscard]] double Growth() const {
    return static_cast<double>(out) / static_cast<double>(std::max<int64_t>(in, 1));
  }
};

int64_t Extent(double value) {
  constexpr double kMost = 1e15;
  if (!(value >= 0) || value > kMost) {
    eval::FailShape("shape/resize", StrCat("an extent of ", value));
  }
  return static_cast<int64_t>(value);
}

void CheckScale(double scale) {
  if (scale > 0 && std::isfinite(scale)) return;
  eval::FailShape("shape/resize", StrCat("a scale of ", scale), "scales are greater than 0");
}

std::vector<Target> ByScales(std::span<const size_t> axes, std::span<const int64_t> in,
                             const Tensor& scales) {
  std::vector<Target> targets;
  const std::vector<double> values = ToDoubles(scales);
  for (size_t i = 0; i < axes.size(); ++i) {
    CheckScale(values[i]);
    const int64_t extent = in[axes[i]];
    const double out = std::floor(static_cast<double>(extent) * values[i]);
    targets.push_back({axes[i], extent, Extent(out), values[i]});
  }
  return targets;
}

std::vector<Target> BySizes(std::span<const size_t> axes, std::span<const int64_t> in,
                            std::span<const int64_t> sizes, std::string_view policy) {
  std::vector<Target> targets;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t extent = in[axes[i]];
    if (sizes[i] < 0) eval::FailShape("shape/resize", StrCat("a size of ", sizes[i]));
    const double scale =
        extent == 0 ? 1 : static_cast<double>(sizes[i]) / static_cast<double>(extent);
    targets.push_back({axes[i], extent, sizes[i], scale});
  }
  if (policy == "stretch" || targets.empty()) return targets;
  const auto less = [](const Target& a, const Target& b) { return a.scale < b.scale; };
  const double scale = policy == "not_larger"
                           ? std::min_element(targets.begin(), targets.end(), less)->scale
                           : std::max_element(targets.begin(), targets.end(), less)->scale;
  for (Target& t : targets) {
    t.scale = scale;
    t.out = Extent(std::floor(static_cast<double>(t.in) * scale + 0.5));
  }
  return targets;
}

void SetRegion(std::span<const double> roi, std::vector<Target>& targets) {
  for (size_t i = 0; i < targets.size(); ++i) {
    targets[i].first = roi[i];
    targets[i].last = roi[i + targets.size()];
  }
}

// What sizes say beside scales follows from these.
void CheckSizes(std::span<const Target> targets, std::span<const int64_t> sizes) {
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].out == sizes[i]) continue;
    eval::FailShape("shape/resize", StrCat("size ", i, " is ", sizes[i], ", but a scale of ",
                                           targets[i].scale, " makes it ", targets[i].out));
  }
}

// ---- filters ------------------------------------------------------------------------------------

struct Tap {
  int64_t at;  // inside the input
  double weight;
};
using Taps = std::vector<Tap>;

struct Filter {
  std::string_view mode, nearest, coordinates;
  bool antialias, exclude_outside;
  double cubic;
  double extrapolation;
};

// Where output element `i` lies.
double Coordinate(const Filter& f, const Target& t, int64_t i) {
  const auto x = static_cast<double>(i);
  const auto in = static_cast<double>(t.in);
  const double out = t.scale * in;
  if (f.coordinates == "asymmetric") return x / t.scale;
  if (f.coordinates == "align_corners") return out == 1 ? 0 : x * (in - 1) / (out - 1);
  if (f.coordinates == "pytorch_half_pixel" && t.out == 1) return 0;
  if (f.coordinates == "tf_crop_and_resize") {
    const double region = t.last - t.first;
    const double inside = out == 1 ? region * (in - 1) / 2 : x * region * (in - 1) / (out - 1);
    return inside + t.first * (in - 1);
  }
  const double half_pixel = (x + 0.5) / t.scale - 0.5;
  if (f.coordinates != "half_pixel_symmetric") return half_pixel;
  return in / 2 * (1 - static_cast<double>(t.out) / out) + half_pixel;
}

double NearestPlace(std::string_view how, double x) {
  if (how == "floor") return std::floor(x);
  if (how == "ceil") return std::ceil(x);
  return how == "round_prefer_ceil" ? std::floor(x + 0.5) : std::ceil(x - 0.5);
}

double Kernel(const Filter& f, double distance) {
  const double x = std::fabs(distance);
  if (f.mode == "linear") return std::max(0.0, 1 - x);
  const double a = f.cubic;
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

// The shares of the input elements around x. An empty result stands for the extrapolation value.
Taps TapsAt(const Filter& f, const Target& t, double x) {
  const auto last = static_cast<double>(t.in - 1);
  if (f.coordinates == "tf_crop_and_resize" && !(x >= 0 && x <= last)) return {};
  const auto inside = [last](double at) {
    return static_cast<int64_t>(std::max(0.0, std::min(at, last)));
  };
  if (f.mode == "nearest") return {{inside(NearestPlace(f.nearest, x)), 1}};
  const double shrink = f.antialias ? std::min(t.scale, 1.0) : 1.0;
  const double reach = (f.mode == "linear" ? 1 : 2) / shrink;
  Taps taps;
  double sum = 0;
  // Far outside nothing but the edge is seen.
  const double center = std::max(-2 * reach, std::min(x, last + 2 * reach));
  for (double at = std::ceil(center - reach); at <= center + reach; ++at) {
    const bool outside = at < 0 || at > last;
    const double weight = f.exclude_outside && outside ? 0 : Kernel(f, (at - center) * shrink);
    if (weight == 0) continue;
    taps.push_back({inside(at), weight});
    sum += weight;
  }
  if (f.antialias || f.exclude_outside) {
    for (Tap& tap : taps) tap.weight /= sum;
  }
  return taps;
}

std::vector<Taps> TapsOf(const Filter& f, const Target& t) {
  std::vector<Taps> all;
  for (int64_t i = 0; i < t.out; ++i) all.push_back(TapsAt(f, t, Coordinate(f, t, i)));
  return all;
}

// Values along one axis, as [outer, in, inner] -> [outer, out, inner].
std::vector<double> Resample(std::span<const double> x, int64_t outer, int64_t inner,
                             const Target& t, std::span<const Taps> taps, double fallback) {
  std::vector<double> y(static_cast<size_t>(outer * t.out * inner));
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < t.out; ++i) {
      double* to = y.data() + (o * t.out + i) * inner;
      const Taps& row = taps[static_cast<size_t>(i)];
      if (row.empty()) std::fill(to, to + inner, fallback);
      for (const Tap& tap : row) {
        const double* from = x.data() + (o * t.in + tap.at) * inner;
        for (int64_t k = 0; k < inner; ++k) to[k] += tap.weight * from[k];
      }
    }
  }
  return y;
}

// Where something comes out, there is something to resample.
void AssumeSource(const SymShape& x, const SymShape& y, std::span<const size_t> axes) {
  const Dim any = Min(y.NumElements(), 1);
  for (const size_t axis : axes) {
    Assume(SizeCondition::AtLeast(x.dims[axis], any), "shape/resize",
           [] { return std::string("there is nothing to resample along an empty axis"); });
  }
}

// Whether the mode picks elements only, whatever their type.
bool Picks(const Filter& f) { return f.mode == "nearest" && f.coordinates != "tf_crop_and_resize"; }

// Cubic filters go beyond the values that they are between; integers stay in their range.
void CutToIntegers(ElementType type, std::vector<double>& values) {
  if (!IsInteger(type)) return;
  const IntegerLimits limits = LimitsOf(type);
  for (double& v : values) {
    v = eval::Saturated(std::floor(v * kPartsOfInteger + 0.5) / kPartsOfInteger, limits);
  }
}

Tensor Pick(const Tensor& x, const Target& t, std::span<const Taps> taps) {
  std::vector<int64_t> indices;
  for (const Taps& tap : taps) indices.push_back(tap[0].at);
  return eval::Take(x, t.axis, indices);
}

}  // namespace

// A scale is a whole number of parts, of which a power of two make one.
Dim ScaledExtent(const Dim& extent, double scale) {
  constexpr double kMostParts = 1 << 24;  // a scale has no more bits
  int64_t whole = 1;
  while (scale != std::floor(scale) && whole < (int64_t{1} << 32)) {
    scale *= 2;
    whole *= 2;
  }
  if (scale != std::floor(scale) || scale > kMostParts) return {};
  return FloorDiv(extent * Dim(static_cast<int64_t>(scale)), whole);
}

OpKind ResizeOp::Kind(const Operation* op) {
  const ResizeOp resize(op);
  if (resize.mode() == "nearest") return OpKind::kInjective;
  return resize.antialias() ? OpKind::kOpaque : OpKind::kOutElementwiseFusable;
}

void ResizeOp::InferShape(InferShapeContext& c) {
  const ResizeOp op(c.op());
  SymShape shape = c.shape(kX);
  if (!shape.ranked) return c.SetShape(kY, shape);
  const std::vector<size_t> axes = AxesOf(op, shape.rank());
  CheckOperands(op, OperandShapes(c, 4), axes.size());
  std::vector<int64_t> in(shape.rank(), -1);
  bool known = true;
  for (size_t axis : axes) {
    known = known && shape.dims[axis].is_constant();
    if (known) in[axis] = shape.dims[axis].value();
  }
  const Tensor* scales = op.scales() ? c.Constant(kScales) : nullptr;
  if (scales != nullptr)
    ExpectShape(SymShape::FromConstants(scales->shape()), {static_cast<int64_t>(axes.size())},
                "scales");
  const auto sizes = op.sizes() ? c.Contents(kSizes) : std::nullopt;
  const auto ints = op.sizes() ? c.ConstantInts(kSizes) : std::nullopt;
  const bool stretch = op.keep_aspect_ratio_policy() == "stretch";
  for (size_t i = 0; i < axes.size(); ++i) {
    const double scale = scales == nullptr ? 0 : ToDoubles(*scales)[i];
    Dim& d = shape.dims[axes[i]];
    const Dim given = (stretch || op.scales()) && sizes ? (*sizes)[i] : Dim();
    if (scales != nullptr) {
      CheckScale(scale);
      d = ScaledExtent(d, scale);
    }
    if (scales == nullptr || d.is_unknown()) d = given;
  }
  AssumeSource(c.shape(kX), shape, axes);
  std::vector<Target> targets;
  if (known && scales != nullptr) targets = ByScales(axes, in, *scales);
  if (known && ints && !targets.empty()) CheckSizes(targets, *ints);
  if (known && ints && !op.scales())
    targets = BySizes(axes, in, *ints, op.keep_aspect_ratio_policy());
  for (const Target& t : targets) shape.dims[t.axis] = t.out;
  c.SetShape(kY, shape);
}

void ResizeOp::Eval(EvalContext& c) {
  const ResizeOp op(c.op());
  const Tensor& x = c.input(kX);
  const std::vector<size_t> axes = AxesOf(op, x.shape().size());
  CheckOperands(op, OperandShapes(c, 4), axes.size());
  std::vector<Target> targets =
      c.HasInput(kScales)
          ? ByScales(axes, x.shape(), c.input(kScales))
          : BySizes(axes, x.shape(), ToInt64s(c.input(kSizes)), op.keep_aspect_ratio_policy());
  if (c.HasInput(kScales) && c.HasInput(kSizes)) CheckSizes(targets, ToInt64s(c.input(kSizes)));
  const Filter filter{op.mode(),
                      op.nearest_mode(),
                      op.coordinate_transformation_mode(),
                      op.antialias(),
                      op.exclude_outside(),
                      op.cubic_coeff_a(),
                      op.extrapolation_value()};
  if (filter.coordinates == "tf_crop_and_resize") SetRegion(ToDoubles(c.input(kRoi)), targets);
  Shape shape = x.shape();
  for (const Target& t : targets) shape[t.axis] = t.out;
  eval::CheckSize(ElementType::kF64, shape);
  // So that nothing on the way is larger than both ends.
  std::sort(targets.begin(), targets.end(), [](const Target& a, const Target& b) {
    return std::pair(a.Growth(), a.axis) < std::pair(b.Growth(), b.axis);
  });
  Tensor picked = x;
  std::vector<double> values;
  if (!Picks(filter)) values = ToDoubles(x);
  // Made before the taps of its axes, so that an absurd size is refused and not computed.
  Tensor result(x.element_type(), shape);
  if (result.num_elements() == 0) return c.SetOutput(kY, std::move(result));
  shape = x.shape();
  for (const Target& t : targets) {
    if (t.in == 0) c.Fail("shape/resize", "there is nothing to resample along an empty axis");
    const std::vector<Taps> taps = TapsOf(filter, t);
    if (Picks(filter)) {
      picked = Pick(picked, t, taps);
      continue;
    }
    const int64_t outer = eval::Product(shape, 0, t.axis);
    const int64_t inner = eval::Product(shape, t.axis + 1, shape.size());
    values = Resample(values, outer, inner, t, taps, filter.extrapolation);
    shape[t.axis] = t.out;
  }
  CutToIntegers(x.element_type(), values);
  c.SetOutput(kY, Picks(filter) ? picked : eval::FromDoubles(x.element_type(), shape, values));
}

}  // namespace lathe::nn
