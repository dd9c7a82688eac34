#pragma once

#include <cstdint>
#include <optional>

#include "lathe/support/tensor.h"

namespace lathe {

/// What the numbers of a tensor are like. NaN counts for `nan` alone.
struct ValueStatistics {
  double minimum = 0, maximum = 0, mean = 0;  ///< NaN if there are no numbers
  int64_t nan = 0;
  int64_t infinite = 0;
};

/// None for strings and complex numbers. Truth values count as 0 and 1.
std::optional<ValueStatistics> StatisticsOf(const Tensor& tensor);

}  // namespace lathe
