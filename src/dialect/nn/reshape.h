#pragma once

#include <vector>

#include "lathe/support/dim.h"

namespace lathe::nn {

/// The shape that a reshape of `in` to `target` gives: one entry may be -1; an entry 0 copies the
/// extent of the input unless `allow_zero`. Throws Error kShape.
SymShape ReshapeRule(const SymShape& in, std::vector<Dim> target, bool allow_zero);

}  // namespace lathe::nn
