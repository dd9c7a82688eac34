#pragma once

#include <string>

#include "lathe/support/dim.h"
#include "lathe/support/tensor.h"

// Zero points and scales of the integer convolutions and matrix products, in f64 tensors. Throws
// Error kShape without a place; `what` names the operand.
namespace lathe::nn {

// `shape` is one element, or one for each of `channels`.
void CheckPerChannel(const SymShape& shape, const Dim& channels, const std::string& what);

// A tensor of one element, or of shape.dim(axis) elements, as f64 that broadcasts along `axis` to
// tensors of `shape`.
Tensor AlongAxis(const Tensor& value, const Shape& shape, size_t axis, const std::string& what);

// The only element.
double ScalarOf(const Tensor& value, const std::string& what);

// values - zero_point, exact for 8-bit types; values * factor. The second operand is f64 and
// broadcasts to the first.
Tensor Centered(const Tensor& values, const Tensor& zero_point);
Tensor Scaled(const Tensor& values, const Tensor& factor);

// round(value / scale) + zero_point, half to even, clamped to the range of an integer `type`; not
// rounded to an integer for a float `type`, but saturated.
Tensor Requantize(const Tensor& values, double scale, double zero_point, ElementType type);

}  // namespace lathe::nn
