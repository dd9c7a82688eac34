#pragma once

#include <span>
#include <string_view>

#include "lathe/support/tensor.h"

namespace lathe::nn {

/// A copy of `data` in which element i of `updates` has gone to (or, unless `reduction` is none,
/// has been combined with) element places[i], in order. Places are in range.
Tensor Scatter(const Tensor& data, const Tensor& updates, std::span<const int64_t> places,
               std::string_view reduction);

}  // namespace lathe::nn
