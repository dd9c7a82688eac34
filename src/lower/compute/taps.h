#pragma once

#include <functional>
#include <span>
#include <vector>

#include "src/lower/compute/scalars.h"

/// Elements between the elements of a tensor, as weighted sums of those around. Places and shares
/// are computed in f64 as the interpreter does, so that the same neighbors are found.
namespace lathe::lower {

/// An element along an axis that counts in such a sum.
struct Tap {
  Dim at;
  Value there;  ///< whether it counts; null: always
  Value share;
};

/// Over all elements that are at a tap of each axis: the product of the shares and of `element`, 0
/// if one of the taps is not there; in f64. `place` says where on the axes before.
Value SumOfTaps(const Scalars& s, std::span<const std::vector<Tap>> axes, Place place,
                const std::function<Value(const Place& at)>& element);

/// The share of an element `distance` (>= 0) away in a cubic convolution with that coefficient, and
/// 0 from 2 on [Keys: Cubic Convolution Interpolation for Digital Image Processing, 1981].
Value CubicShare(const Scalars& s, Value distance, double coefficient);

}  // namespace lathe::lower
