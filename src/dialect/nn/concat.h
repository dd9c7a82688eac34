#pragma once

#include <span>

#include "lathe/support/dim.h"

namespace lathe::nn {

/// The shape of tensors joined along an axis; throws shape/concat where they do not fit.
SymShape ConcatRule(std::span<const SymShape> inputs, int64_t axis);

}  // namespace lathe::nn
