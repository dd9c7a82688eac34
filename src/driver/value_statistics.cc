#include "lathe/driver/value_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lathe {

std::optional<ValueStatistics> StatisticsOf(const Tensor& tensor) {
  if (tensor.element_type() == ElementType::kString || IsComplex(tensor.element_type())) return {};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  ValueStatistics s{.minimum = kInfinity, .maximum = -kInfinity};
  int64_t count = 0;
  double sum = 0;
  for (const double value : ToDoubles(tensor)) {
    if (std::isnan(value)) {
      ++s.nan;
      continue;
    }
    s.minimum = std::min(s.minimum, value);
    s.maximum = std::max(s.maximum, value);
    s.infinite += std::isinf(value) ? 1 : 0;
    sum += value;
    ++count;
  }
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (count == 0) s.minimum = s.maximum = kNone;
  s.mean = count == 0 ? kNone : sum / static_cast<double>(count);
  return s;
}

}  // namespace lathe
