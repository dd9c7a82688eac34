#pragma once

#include <cstdint>

#include "lathe/support/dim.h"

namespace lathe::nn {

/// The elements of an axis that a slice takes: first, first + step, ...
struct SliceSpan {
  int64_t first = 0;
  int64_t count = 0;
};

/// Elements start, start + step, ... before end, on an axis of the given extent. Bounds as in
/// numpy; `step` is not 0.
SliceSpan SliceRange(int64_t extent, int64_t start, int64_t end, int64_t step);
/// How many these are, if that can be said. A step 0 is an error.
Dim SliceCount(const Dim& extent, const Dim& start, const Dim& end, const Dim& step);

}  // namespace lathe::nn
