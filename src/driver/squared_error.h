#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "lathe/support/tensor.h"

namespace lathe {

/// How far numbers are from exact ones: sums of squares, and the largest of each.
struct SquaredError {
  double difference = 0, size = 0;
  double largest = 0, largest_size = 0;

  /// Where the exact value is not a finite number, nothing is said of the other one.
  void Add(double exact, double other) {
    if (!std::isfinite(exact)) return;
    difference += (exact - other) * (exact - other);
    size += exact * exact;
    largest = std::max(largest, std::fabs(exact - other));
    largest_size = std::max(largest_size, std::fabs(exact));
  }
  void Add(const Tensor& exact, const Tensor& other) {
    const std::vector<double> a = ToDoubles(exact), b = ToDoubles(other);
    for (size_t i = 0; i < a.size(); ++i) Add(a[i], b[i]);
  }
  /// The root of the sum of squared differences over that of squared values.
  double Relative() const {
    if (difference == 0) return 0;
    return size > 0 ? std::sqrt(difference / size) : INFINITY;
  }
  /// The largest difference over the largest value.
  double RelativeLargest() const {
    if (largest == 0) return 0;
    return largest_size > 0 ? largest / largest_size : INFINITY;
  }
};

}  // namespace lathe
