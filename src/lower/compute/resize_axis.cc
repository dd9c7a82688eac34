#include "src/lower/compute/resize_axis.h"

#include <algorithm>
#include <cmath>

#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "src/dialect/nn/resize_extent.h"
#include "src/lower/compute/scalars.h"

namespace lathe::lower {
namespace {

nn::ResizeOp OpOf(const Operation& op) { return nn::ResizeOp(&op); }

std::vector<size_t> AxesOf(const Operation& op) {
  const size_t rank = DimsOf(op.result(0)).size();
  std::vector<size_t> axes;
  if (const auto given = OpOf(op).axes()) {
    for (const int64_t axis : *given) axes.push_back(AxisOf(axis, rank));
    return axes;
  }
  for (size_t a = 0; a < rank; ++a) axes.push_back(a);
  return axes;
}

// The whole number that one extent is of the other, if it is one whatever the symbols are.
std::optional<double> KnownRatio(const Dim& in, const Dim& out) {
  constexpr int64_t kMostTimes = 8;
  if (in.IsConstant(0)) return std::nullopt;
  for (int64_t times = 1; times <= kMostTimes; ++times) {
    if (in * Dim(times) == out) return static_cast<double>(times);
  }
  return std::nullopt;
}

// The factor of entry `i` of the axes, if that is known.
std::optional<double> KnownScale(const Operation& op, size_t i) {
  const nn::ResizeOp resize = OpOf(op);
  if (resize.scales()) {
    const Tensor* scales = ConstantOf(op.operand(nn::ResizeOp::kScales));
    return scales == nullptr ? std::nullopt : std::optional(ToDoubles(*scales)[i]);
  }
  if (resize.keep_aspect_ratio_policy() == "stretch") return std::nullopt;
  const std::vector<int64_t> sizes = *ConstantInts(op, nn::ResizeOp::kSizes);
  const std::vector<size_t> axes = AxesOf(op);
  std::optional<double> factor;
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t extent = DimsOf(op.operand(0))[axes[k]].value();
    const double own =
        extent == 0 ? 1 : static_cast<double>(sizes[k]) / static_cast<double>(extent);
    const bool smaller = resize.keep_aspect_ratio_policy() == "not_larger";
    if (!factor || (smaller ? own < *factor : *factor < own)) factor = own;
  }
  return factor;
}

}  // namespace

bool CropsRegion(const Operation& op) {
  return OpOf(op).coordinate_transformation_mode() == "tf_crop_and_resize";
}

bool SaysExtentOfResize(const Operation& op) {
  return OpOf(op).scales() || OpOf(op).keep_aspect_ratio_policy() == "stretch";
}

Value ResizedExtentAt(Elements& e, const Operation& op, size_t axis) {
  const std::vector<size_t> axes = AxesOf(op);
  const auto entry = static_cast<size_t>(std::ranges::find(axes, axis) - axes.begin());
  const Dim in = e.Dims(op.operand(0))[axis];
  if (entry == axes.size()) return e.Int(in);
  const Place at{static_cast<int64_t>(entry)};
  if (OpOf(op).sizes()) return ToInt64(e, e.At(op.operand(nn::ResizeOp::kSizes), at));
  const auto known = KnownScale(op, entry);
  const Dim scaled = known ? nn::ScaledExtent(in, *known) : Dim::Unknown();
  if (!scaled.is_unknown()) return e.Int(scaled);
  const Scalars s(e);
  const Value scale =
      known ? s.Number(kWide, *known) : s.Cast(e.At(op.operand(nn::ResizeOp::kScales), at), kWide);
  return s.Cast(s.Floor(s.Mul(s.Number(kWide, in), scale)), ElementType::kI64);
}

Value ResampledCast(LoopBuilder& lb, Value sum, ElementType to) {
  const AnyTensorType type = TensorOf(sum);
  if (!IsInteger(to) || type.element() != kWide) return SaturatedCast(lb, sum, to);
  const int64_t lanes = type.rank() == 0 ? 0 : type.dims()[0].value();
  const auto number = [&](double value) { return lb.Splat(kWide, value, lanes); };
  const Value parts = nn::MulOp::Create(lb.b(), sum, number(nn::kPartsOfInteger)).c();
  const Value nearest =
      nn::FloorOp::Create(lb.b(), nn::AddOp::Create(lb.b(), parts, number(0.5)).c()).y();
  const Value whole = nn::MulOp::Create(lb.b(), nearest, number(1 / nn::kPartsOfInteger)).c();
  return SaturatedCast(lb, whole, to);
}

Value Ceil(const Scalars& s, Value x) {
  const Value zero = s.Number(kWide, 0.0);
  return s.Sub(zero, s.Floor(s.Sub(zero, x)));
}

std::vector<ResizedAxis> ResizedAxes(const Operation& op, const std::vector<Dim>& in,
                                     const std::vector<Dim>& out) {
  const std::vector<size_t> axes = AxesOf(op);
  const bool crops = CropsRegion(op);
  std::vector<ResizedAxis> resized;
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t a = axes[i];
    ResizedAxis axis{a, in[a], out[a], KnownScale(op, i), std::nullopt, i, i + axes.size()};
    if (!axis.known && OpOf(op).scales()) axis.computed = i;
    if (!axis.known && !axis.computed) axis.known = KnownRatio(in[a], out[a]);
    if (in[a] == out[a] && axis.known.value_or(1) == 1 && !axis.computed && !crops) continue;
    resized.push_back(std::move(axis));
  }
  return resized;
}

Value AxisTaps::Given(size_t operand, size_t entry) const {
  return s_.Cast(e_.At(op_->operand(operand), {static_cast<int64_t>(entry)}), kWide);
}

Value AxisTaps::Scale() const {
  if (axis_.known) return Number(*axis_.known);
  if (axis_.computed) return Given(nn::ResizeOp::kScales, *axis_.computed);
  return s_.Div(s_.Number(kWide, axis_.out), s_.Number(kWide, axis_.in));
}

// (o + 1/2) / scale lies strictly between whole numbers if the scale is one.
std::optional<int64_t> RepeatsOf(const Operation& op, const ResizedAxis& axis) {
  const double scale = axis.known.value_or(0);
  if (scale != std::floor(scale) || scale < 1) return std::nullopt;
  const std::string_view how = OpOf(op).coordinate_transformation_mode();
  const std::string_view nearest = OpOf(op).nearest_mode();
  const bool rounds = nearest == "round_prefer_floor" || nearest == "round_prefer_ceil";
  const bool is_half = how == "half_pixel" || how == "half_pixel_symmetric";
  const bool repeats = how == "asymmetric" ? nearest == "floor" : rounds && is_half;
  return repeats ? std::optional(static_cast<int64_t>(scale)) : std::nullopt;
}

Dim AxisTaps::Picked(const Dim& at) const {
  if (const auto times = RepeatsOf(*op_.operation(), axis_)) return e_.space().Div(at, Dim(*times));
  return s_.Inside(Nearest(Coordinate(at)), axis_.in);
}

Value AxisTaps::Coordinate(const Dim& at) const {
  const std::string_view how = op_.coordinate_transformation_mode();
  const Value x = s_.Number(kWide, at), in = s_.Number(kWide, axis_.in), scale = Scale();
  if (how == "asymmetric") return s_.Div(x, scale);
  const Value length = s_.Mul(scale, in), one = Number(1);
  if (how == "align_corners") {
    const Value inner = s_.Div(s_.Mul(x, s_.Sub(in, one)), s_.Sub(length, one));
    return s_.Select(s_.Equal(length, one), Number(0), inner);
  }
  if (how == "tf_crop_and_resize") return InRegion(x);
  const Value half = s_.Sub(s_.Div(s_.Add(x, Number(0.5)), scale), Number(0.5));
  if (how == "pytorch_half_pixel") {
    return s_.Select(s_.Equal(s_.Number(kWide, axis_.out), one), Number(0), half);
  }
  if (how != "half_pixel_symmetric") return half;
  const Value share = s_.Div(s_.Number(kWide, axis_.out), length);
  return s_.Add(s_.Mul(s_.Div(in, Number(2)), s_.Sub(one, share)), half);
}

Value AxisTaps::InRegion(Value x) const {
  const Value in = s_.Number(kWide, axis_.in), one = Number(1), length = s_.Mul(Scale(), in);
  const Value first = Given(nn::ResizeOp::kRoi, axis_.first);
  const Value region = s_.Sub(Given(nn::ResizeOp::kRoi, axis_.last), first),
              reach = s_.Sub(in, one);
  const Value middle = s_.Div(s_.Mul(region, reach), Number(2));
  const Value inner = s_.Div(s_.Mul(s_.Mul(x, region), reach), s_.Sub(length, one));
  const Value within = s_.Select(s_.Equal(length, one), middle, inner);
  return s_.Add(within, s_.Mul(first, reach));
}

Value AxisTaps::Nearest(Value x) const {
  const std::string_view how = op_.nearest_mode();
  if (how == "floor") return s_.Floor(x);
  if (how == "ceil") return Ceil(s_, x);
  if (how == "round_prefer_ceil") return s_.Floor(s_.Add(x, Number(0.5)));
  return Ceil(s_, s_.Sub(x, Number(0.5)));
}

Value AxisTaps::Kernel(Value distance) const {
  const Value x = s_.Abs(distance);
  if (op_.mode() == "linear") return s_.Max(Number(0), s_.Sub(Number(1), x));
  return CubicShare(s_, x, op_.cubic_coeff_a());
}

Value AxisTaps::IsOutside(Value place) const {
  const Value last = s_.Number(kWide, axis_.in - 1);
  return s_.Or(s_.Less(place, Number(0)), s_.Less(last, place));
}

std::vector<Tap> AxisTaps::Taps(const Dim& element, ElementType type) const {
  const bool linear = op_.mode() == "linear";
  // Far outside nothing but the edge is seen.
  const Value far = Number(linear ? 2 : 4), last = s_.Number(kWide, axis_.in - 1);
  const Value x = s_.Max(s_.Min(Coordinate(element), s_.Add(last, far)), s_.Sub(Number(0), far));
  const Value low = s_.Floor(x);
  std::vector<Tap> taps;
  Value sum;
  for (int64_t i = linear ? 0 : -1; i <= (linear ? 1 : 2); ++i) {
    const Value at = s_.Add(low, Number(static_cast<double>(i)));
    Value weight = Kernel(s_.Sub(at, x));
    if (op_.exclude_outside()) weight = s_.Select(IsOutside(at), Number(0), weight);
    taps.push_back({s_.Inside(at, axis_.in), {}, weight});
    sum = sum ? s_.Add(sum, weight) : weight;
  }
  for (Tap& tap : taps) {
    if (op_.exclude_outside()) tap.share = s_.Div(tap.share, sum);
    tap.share = s_.Cast(tap.share, type);
  }
  return taps;
}

}  // namespace lathe::lower
