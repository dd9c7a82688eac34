#include "lathe/dialect/nn/resize.h"

#include <cmath>

#include "src/lower/compute/compute.h"
#include "src/lower/compute/taps.h"

// Resampled tensors, one element at a time. Coordinates are computed in f64 as the interpreter
// does, so that the same elements are picked.
namespace lathe::lower {
namespace {

constexpr ElementType kWide = ElementType::kF64;

using Op = nn::ResizeOp;

Op OpOf(const Operation& op) { return Op(const_cast<Operation*>(&op)); }

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

// The factor of entry `i` of the axes, if that is known.
std::optional<double> KnownScale(const Operation& op, size_t i) {
  const Op resize = OpOf(op);
  if (resize.scales()) return ToDoubles(*ConstantOf(op.operand(Op::kScales)))[i];
  if (resize.keep_aspect_ratio_policy() == "stretch") return std::nullopt;
  const std::vector<int64_t> sizes = *ConstantInts(op, Op::kSizes);
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

bool Crops(const Op& op) { return op.coordinate_transformation_mode() == "tf_crop_and_resize"; }

std::string Refuse(const Operation& op) {
  const Op resize = OpOf(op);
  if (std::string why = NeedConstants<Op::kScales, Op::kSizes>(op); !why.empty()) return why;
  if (Crops(resize) && ConstantOf(op.operand(Op::kRoi)) == nullptr) return "regions are computed";
  const bool one_factor = resize.sizes() && resize.keep_aspect_ratio_policy() != "stretch";
  return !one_factor || TensorOf(op.operand(0)).is_static() ? "" : "the factor is not known";
}

// One axis that is resampled.
struct Axis {
  size_t axis;
  Dim in, out;
  std::optional<double> known;  // scale
  Value scale;
  double first = 0, last = 0;  // the region that is cut out
};

class Resized {
 public:
  explicit Resized(const ElementOf& c) : c_(c), s_(c.e), op_(OpOf(*c.op)) {}

  Value Element() {
    const std::vector<size_t> axes = AxesOf(*c_.op);
    const std::vector<Dim> in = c_.Dims(0), out = c_.ResultDims();
    for (size_t i = 0; i < axes.size(); ++i) {
      const size_t a = axes[i];
      const std::optional<double> known = KnownScale(*c_.op, i);
      if (in[a] == out[a] && known.value_or(1) == 1 && !Crops(op_)) continue;
      const Value scale = known ? s_.Number(kWide, *known)
                                : s_.Div(s_.Number(kWide, out[a]), s_.Number(kWide, in[a]));
      axes_.push_back({a, in[a], out[a], known, scale});
      if (!Crops(op_)) continue;
      const std::vector<double> region = ToDoubles(*ConstantOf(c_.op->operand(Op::kRoi)));
      axes_.back().first = region[i];
      axes_.back().last = region[i + axes.size()];
    }
    place_ = c_.at;
    return Crops(op_) ? InRegion() : Resampled();
  }

 private:
  Value Resampled() {
    if (op_.mode() == "nearest") return Picked();
    type_ = IsFloat(c_.Element()) ? SumType(c_.Element()) : kWide;
    if (op_.antialias()) {
      for (const Axis& axis : axes_) wide_taps_.push_back(WideTapsAt(axis));
      return s_.Cast(Filtered(0), c_.Element());
    }
    for (const Axis& axis : axes_) taps_.push_back(TapsAt(axis));
    return s_.Cast(Interpolated(0), c_.Element());
  }

  // What lies outside of the region's picture has one value.
  Value InRegion() {
    Value inside;
    for (const Axis& axis : axes_) {
      const Value x = Coordinate(axis), last = s_.Number(kWide, axis.in - 1);
      const Value here = s_.And(s_.AtMost(Number(0), x), s_.AtMost(x, last));
      inside = inside ? s_.And(inside, here) : here;
    }
    const Value other = s_.Cast(Number(op_.extrapolation_value()), c_.Element());
    return inside ? s_.Select(inside, Resampled(), other) : Resampled();
  }

  Value Number(double value) const { return s_.Number(kWide, value); }

  Value Picked() {
    for (const Axis& axis : axes_) {
      place_[axis.axis] =
          IsRepeated(axis)
              ? c_.e.space().Div(c_.at[axis.axis], Dim(static_cast<int64_t>(*axis.known)))
              : s_.Inside(Nearest(Coordinate(axis)), axis.in);
    }
    return c_.Operand(0, place_);
  }

  // Whether each element is repeated a whole number of times: (o + 1/2) / scale lies strictly
  // between whole numbers then.
  bool IsRepeated(const Axis& axis) const {
    if (!axis.known || *axis.known != std::floor(*axis.known) || *axis.known < 1) return false;
    const std::string_view how = op_.coordinate_transformation_mode(), nearest = op_.nearest_mode();
    if (how == "asymmetric") return nearest == "floor";
    const bool rounds = nearest == "round_prefer_floor" || nearest == "round_prefer_ceil";
    return rounds && (how == "half_pixel" || how == "half_pixel_symmetric");
  }

  // Where the element lies along the axis of the input.
  Value Coordinate(const Axis& axis) const {
    const std::string_view how = op_.coordinate_transformation_mode();
    const Value x = s_.Number(kWide, c_.at[axis.axis]), in = s_.Number(kWide, axis.in);
    if (how == "asymmetric") return s_.Div(x, axis.scale);
    const Value length = s_.Mul(axis.scale, in), one = Number(1);
    if (how == "align_corners") {
      const Value inner = s_.Div(s_.Mul(x, s_.Sub(in, one)), s_.Sub(length, one));
      return s_.Select(s_.Equal(length, one), Number(0), inner);
    }
    if (Crops(op_)) {
      const Value region = Number(axis.last - axis.first), reach = s_.Sub(in, one);
      const Value middle = s_.Div(s_.Mul(region, reach), Number(2));
      const Value inner = s_.Div(s_.Mul(s_.Mul(x, region), reach), s_.Sub(length, one));
      const Value within = s_.Select(s_.Equal(length, one), middle, inner);
      return s_.Add(within, s_.Mul(Number(axis.first), reach));
    }
    const Value half = s_.Sub(s_.Div(s_.Add(x, Number(0.5)), axis.scale), Number(0.5));
    if (how == "pytorch_half_pixel") {
      return s_.Select(s_.Equal(s_.Number(kWide, axis.out), one), Number(0), half);
    }
    if (how != "half_pixel_symmetric") return half;
    const Value share = s_.Div(s_.Number(kWide, axis.out), length);
    return s_.Add(s_.Mul(s_.Div(in, Number(2)), s_.Sub(one, share)), half);
  }

  Value Ceil(Value x) const {
    const Value zero = Number(0);
    return s_.Sub(zero, s_.Floor(s_.Sub(zero, x)));
  }

  Value Nearest(Value x) const {
    const std::string_view how = op_.nearest_mode();
    if (how == "floor") return s_.Floor(x);
    if (how == "ceil") return Ceil(x);
    if (how == "round_prefer_ceil") return s_.Floor(s_.Add(x, Number(0.5)));
    return Ceil(s_.Sub(x, Number(0.5)));
  }

  Value Kernel(Value distance) const {
    const Value x = s_.Abs(distance);
    if (op_.mode() == "linear") return s_.Max(Number(0), s_.Sub(Number(1), x));
    return CubicShare(s_, x, op_.cubic_coeff_a());
  }

  std::vector<Tap> TapsAt(const Axis& axis) {
    const bool linear = op_.mode() == "linear";
    const Value last = s_.Number(kWide, axis.in - 1);
    // Far outside nothing but the edge is seen.
    const Value far = Number(linear ? 2 : 4);
    const Value x = s_.Max(s_.Min(Coordinate(axis), s_.Add(last, far)), s_.Sub(Number(0), far));
    const Value low = s_.Floor(x);
    std::vector<Tap> taps;
    Value sum;
    for (int64_t i = linear ? 0 : -1; i <= (linear ? 1 : 2); ++i) {
      const Value at = s_.Add(low, Number(static_cast<double>(i)));
      Value weight = Kernel(s_.Sub(at, x));
      if (op_.exclude_outside()) {
        const Value outside = s_.Or(s_.Less(at, Number(0)), s_.Less(last, at));
        weight = s_.Select(outside, Number(0), weight);
      }
      taps.push_back({s_.Inside(at, axis.in), {}, weight});
      sum = sum ? s_.Add(sum, weight) : weight;
    }
    for (Tap& tap : taps) {
      if (op_.exclude_outside()) tap.share = s_.Div(tap.share, sum);
      tap.share = s_.Cast(tap.share, type_);
    }
    return taps;
  }

  // ---- filters as wide as the axes shrink ----

  struct WideTaps {
    Value first, centre, shrink, sum;
    Dim count;
  };

  Value WeightOf(const Axis& axis, const WideTaps& taps, Value at) const {
    const Value weight = Kernel(s_.Mul(s_.Sub(at, taps.centre), taps.shrink));
    if (!op_.exclude_outside()) return weight;
    const Value last = s_.Number(kWide, axis.in - 1);
    const Value outside = s_.Or(s_.Less(at, Number(0)), s_.Less(last, at));
    return s_.Select(outside, Number(0), weight);
  }

  WideTaps WideTapsAt(const Axis& axis) {
    WideTaps taps;
    taps.shrink = s_.Min(axis.scale, Number(1));
    const Value reach = s_.Div(Number(op_.mode() == "linear" ? 1 : 2), taps.shrink);
    const Value far = s_.Mul(Number(2), reach), last = s_.Number(kWide, axis.in - 1);
    taps.centre = s_.Max(s_.Min(Coordinate(axis), s_.Add(last, far)), s_.Sub(Number(0), far));
    taps.first = Ceil(s_.Sub(taps.centre, reach));
    const Value span = s_.Sub(s_.Floor(s_.Add(taps.centre, reach)), taps.first);
    constexpr int64_t kMost = int64_t{1} << 40;
    taps.count = c_.e.Loaded(s_.Cast(s_.Add(span, Number(1)), ElementType::kI64), kMost);
    taps.sum = c_.e.Reduce({taps.count}, Number(0), [&](const Place& i, Value so_far) {
      const Value at = s_.Add(taps.first, s_.Number(kWide, i[0]));
      return s_.Add(so_far, WeightOf(axis, taps, at));
    });
    return taps;
  }

  // Over the axes from number `i` on; as deep as there are axes.
  Value Filtered(size_t i) {
    if (i == axes_.size()) return s_.Cast(c_.Operand(0, place_), type_);
    const WideTaps& taps = wide_taps_[i];
    return c_.e.Reduce({taps.count}, s_.Number(type_, 0.0), [&](const Place& k, Value so_far) {
      const Value at = s_.Add(taps.first, s_.Number(kWide, k[0]));
      const Value weight = s_.Div(WeightOf(axes_[i], taps, at), taps.sum);
      place_[axes_[i].axis] = s_.Inside(at, axes_[i].in);
      return s_.Add(so_far, s_.Mul(s_.Cast(weight, type_), Filtered(i + 1)));
    });
  }

  // Over the axes from number `i` on; as deep as there are axes.
  Value Interpolated(size_t i) {
    if (i == axes_.size()) return s_.Cast(c_.Operand(0, place_), type_);
    Value sum;
    for (const Tap& tap : taps_[i]) {
      place_[axes_[i].axis] = tap.at;
      const Value part = s_.Mul(tap.share, Interpolated(i + 1));
      sum = sum ? s_.Add(sum, part) : part;
    }
    return sum;
  }

  const ElementOf& c_;
  Scalars s_;
  Op op_;
  std::vector<Axis> axes_;
  std::vector<std::vector<Tap>> taps_;  // per axis
  std::vector<WideTaps> wide_taps_;     // per axis
  Place place_;
  ElementType type_ = ElementType::kUndefined;
};

Value Resample(const ElementOf& c) { return Resized(c).Element(); }

constexpr Compute kComputes[] = {
    {"nn.resize", Resample, Refuse},
};

}  // namespace

std::span<const Compute> ResizeComputes() { return kComputes; }

}  // namespace lathe::lower
