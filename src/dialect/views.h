#pragma once

#include "lathe/support/tensor.h"

/// Views at run time: for each element of the view, its index in row-major order in the tensor that
/// is viewed.
namespace lathe {

/// 0, 1, 2, ... in that shape: the view that shows everything.
Tensor ElementIndices(const Shape& shape);
/// The elements of `base` that the view shows.
Tensor GatherElements(const Tensor& base, const Tensor& indices);
/// Writes `value`, which has the shape of `indices`, to the places that the view shows.
void ScatterElements(Tensor& base, const Tensor& indices, const Tensor& value);

}  // namespace lathe
