#pragma once

#include "lathe/lower/lower_function.h"

namespace lathe::lower {

/// As Pack, into a tensor of the layout's shape that holds zeros.
void PackInto(const Tensor& tensor, const PackedLayout& layout, Tensor& packed);

}  // namespace lathe::lower
