#pragma once

#include <cstdint>

#include "lathe/support/random.h"
#include "lathe/support/tensor.h"

namespace lathe::testing {

/// What the floating-point numbers of a program look like.
enum class DataStyle : uint8_t {
  kQuarters,  ///< multiples of 1/4 within [-3, 3]: sums and products of few of them are exact
  kUniform,   ///< in [-2, 2)
  kSpecial,   ///< quarters with some NaN, infinities, -0.0 and large numbers
};

/// Integers are small, now and then the extremes of the type.
Tensor RandomData(ElementType element, Shape shape, DataStyle style, RandomStream& random);

}  // namespace lathe::testing
