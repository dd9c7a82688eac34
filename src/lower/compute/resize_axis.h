#pragma once

#include <optional>
#include <vector>

#include "lathe/dialect/nn/resize.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/taps.h"

/// What a resize reads along each of its axes. Coordinates and shares are computed in f64 as the
/// interpreter does, so that the same elements are picked.
namespace lathe::lower {

/// An axis that is resampled.
struct ResizedAxis {
  size_t axis;
  Dim in, out;
  std::optional<double> known;     ///< scale
  std::optional<size_t> computed;  ///< entry of computed scales; neither: out / in
  size_t first, last;              ///< entries of the region that is cut out
};

/// The axes of which not all elements just stay where they are, for operands and results of those
/// dims.
std::vector<ResizedAxis> ResizedAxes(const Operation& op, const std::vector<Dim>& in,
                                     const std::vector<Dim>& out);

/// The taps of result elements at `at` along an axis. Linear and cubic interpolation only.
class AxisTaps {
 public:
  AxisTaps(Elements& e, const Operation& op, ResizedAxis axis)
      : e_(e), s_(e), op_(&op), axis_(std::move(axis)) {}

  const ResizedAxis& axis() const { return axis_; }
  Value Scale() const;
  /// Where the element lies along the axis of the input.
  Value Coordinate(const Dim& at) const;
  /// The element that nearest picks.
  Dim Picked(const Dim& at) const;
  /// What linear and cubic sum up, none of their filters being widened; shares are of that type.
  std::vector<Tap> Taps(const Dim& at, ElementType type) const;
  size_t num_taps() const { return op_.mode() == "nearest" ? 1 : op_.mode() == "linear" ? 2 : 4; }
  /// The share of what lies that far away.
  Value Kernel(Value distance) const;
  Value IsOutside(Value place) const;

 private:
  Value Nearest(Value x) const;
  Value InRegion(Value x) const;
  Value Given(size_t operand, size_t entry) const;
  Value Number(double value) const { return s_.Number(ElementType::kF64, value); }

  Elements& e_;
  Scalars s_;
  nn::ResizeOp op_;
  ResizedAxis axis_;
};

/// How often nearest takes each element of the axis, if that is always the same.
std::optional<int64_t> RepeatsOf(const Operation& op, const ResizedAxis& axis);
/// Whether its factors or sizes say how long the result is.
bool SaysExtentOfResize(const Operation& op);
/// How long an axis of the result of such an operation is.
Value ResizedExtentAt(Elements& e, const Operation& op, size_t axis);
/// Whether a region is cut out and resampled.
bool CropsRegion(const Operation& op);
/// What shares of elements sum up to, as an element: of integers, as nn::kPartsOfInteger says.
Value ResampledCast(LoopBuilder& lb, Value sum, ElementType to);
/// The largest whole number that is not less.
Value Ceil(const Scalars& s, Value x);

}  // namespace lathe::lower
