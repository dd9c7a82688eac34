#include "lathe/dialect/nn/resize.h"

#include "lathe/dialect/nn/op_names.h"
#include "src/lower/compute/resize_axis.h"
#include "src/lower/compute/resize_filters.h"

// Resampled tensors, one element at a time.
namespace lathe::lower {
namespace {

std::string Refuse(const Operation& op) {
  const nn::ResizeOp resize(&op);
  const bool one_factor = !resize.scales() && resize.keep_aspect_ratio_policy() != "stretch";
  if (one_factor && ConstantOf(op.operand(nn::ResizeOp::kSizes)) == nullptr)
    return "sizes are computed";
  return !one_factor || TensorOf(op.operand(0)).is_static() ? "" : "the factor is not known";
}

class Resized {
 public:
  explicit Resized(const ElementOf& c) : c_(c), s_(c.e), op_(c.op), place_(c.at) {
    for (const ResizedAxis& axis : ResizedAxes(*c.op, c.Dims(0), c.ResultDims())) {
      axes_.emplace_back(c.e, *c.op, axis);
    }
  }

  Value Element() { return CropsRegion(*c_.op) ? InRegion() : Resampled(); }

 private:
  Dim At(const AxisTaps& axis) const { return c_.at[axis.axis().axis]; }

  Value Resampled() {
    if (op_.mode() == "nearest") return Picked();
    type_ = IsFloat(c_.Element()) ? SumType(c_.Element()) : kWide;
    if (op_.antialias()) {
      for (const AxisTaps& axis : axes_) wide_taps_.push_back(WideTapsAt(axis));
      return Narrowed(Filtered(0));
    }
    for (const AxisTaps& axis : axes_) taps_.push_back(axis.Taps(At(axis), type_));
    return Narrowed(Interpolated(0));
  }

  // What lies outside of the region's picture has one value.
  Value InRegion() {
    Value inside;
    for (const AxisTaps& axis : axes_) {
      const Value x = axis.Coordinate(At(axis)), last = s_.Number(kWide, axis.axis().in - 1);
      const Value here = s_.And(s_.AtMost(Number(0), x), s_.AtMost(x, last));
      inside = inside ? s_.And(inside, here) : here;
    }
    const Value other = Narrowed(Number(op_.extrapolation_value()));
    return inside ? s_.Select(inside, Resampled(), other) : Resampled();
  }

  Value Number(double value) const { return s_.Number(kWide, value); }

  Value Narrowed(Value v) const { return ResampledCast(c_.e.lb(), v, c_.Element()); }

  Value Picked() {
    for (const AxisTaps& axis : axes_) place_[axis.axis().axis] = axis.Picked(At(axis));
    return c_.Operand(0, place_);
  }

  // ---- filters as wide as the axes shrink ----

  struct WideTaps {
    Value first, center, shrink, sum;
    Dim count;
  };

  Value WeightOf(const AxisTaps& axis, const WideTaps& taps, Value at) const {
    const Value weight = axis.Kernel(s_.Mul(s_.Sub(at, taps.center), taps.shrink));
    return op_.exclude_outside() ? s_.Select(axis.IsOutside(at), Number(0), weight) : weight;
  }

  WideTaps WideTapsAt(const AxisTaps& axis) {
    WideTaps taps;
    taps.shrink = s_.Min(axis.Scale(), Number(1));
    const Value reach = s_.Div(Number(op_.mode() == "linear" ? 1 : 2), taps.shrink);
    const Value far = s_.Mul(Number(2), reach), last = s_.Number(kWide, axis.axis().in - 1);
    const Value x = axis.Coordinate(At(axis));
    taps.center = s_.Max(s_.Min(x, s_.Add(last, far)), s_.Sub(Number(0), far));
    taps.first = Ceil(s_, s_.Sub(taps.center, reach));
    const Value span = s_.Sub(s_.Floor(s_.Add(taps.center, reach)), taps.first);
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
    const ResizedAxis& axis = axes_[i].axis();
    return c_.e.Reduce({taps.count}, s_.Number(type_, 0.0), [&](const Place& k, Value so_far) {
      const Value at = s_.Add(taps.first, s_.Number(kWide, k[0]));
      const Value weight = s_.Div(WeightOf(axes_[i], taps, at), taps.sum);
      place_[axis.axis] = s_.Inside(at, axis.in);
      return s_.Add(so_far, s_.Mul(s_.Cast(weight, type_), Filtered(i + 1)));
    });
  }

  // Over the axes from number `i` on; as deep as there are axes.
  Value Interpolated(size_t i) {
    if (i == axes_.size()) return s_.Cast(c_.Operand(0, place_), type_);
    Value sum;
    for (const Tap& tap : taps_[i]) {
      place_[axes_[i].axis().axis] = tap.at;
      const Value part = s_.Mul(tap.share, Interpolated(i + 1));
      sum = sum ? s_.Add(sum, part) : part;
    }
    return sum;
  }

  const ElementOf& c_;
  Scalars s_;
  nn::ResizeOp op_;
  Place place_;
  std::vector<AxisTaps> axes_;
  std::vector<std::vector<Tap>> taps_;  // per axis
  std::vector<WideTaps> wide_taps_;     // per axis
  ElementType type_ = ElementType::kUndefined;
};

Value Resample(const ElementOf& c) { return Resized(c).Element(); }

constexpr Compute kResizeComputes[] = {
    {.op = nn::kResize,
     .element = Resample,
     .refuse = Refuse,
     .whole = WriteFiltered,
     .prefers_whole = HasFilterTables},
};

}  // namespace

std::span<const Compute> ResizeComputes() { return kResizeComputes; }

}  // namespace lathe::lower
