#pragma once

#include "lathe/support/tensor.h"

namespace lathe {

/// The elements of `pattern` again and again, or the first of them, in another shape. Precondition:
/// `pattern` has elements, or the shape has none.
[[nodiscard]] Tensor Repeated(const Tensor& pattern, const Shape& shape);

}  // namespace lathe
