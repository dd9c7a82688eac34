#include "lathe/support/repeat.h"

#include <algorithm>

#include "lathe/support/error.h"

namespace lathe {

Tensor Repeated(const Tensor& pattern, const Shape& shape) {
  if (pattern.shape() == shape) return pattern;
  Tensor result(pattern.element_type(), shape);
  const int64_t count = pattern.num_elements();
  LATHE_CHECK(count > 0 || result.num_elements() == 0);
  if (pattern.element_type() == ElementType::kString) {
    const Elements<std::string> from(pattern);
    auto to = result.mutable_data<std::string>();
    for (size_t i = 0; i < to.size(); ++i) to[i] = from[static_cast<int64_t>(i) % count];
    return result;
  }
  if (IsSubByte(pattern.element_type())) {
    const std::vector<double> from = ToDoubles(pattern);
    std::vector<double> to(static_cast<size_t>(result.num_elements()));
    for (size_t i = 0; i < to.size(); ++i) to[i] = from[i % from.size()];
    return Cast(Tensor::Of<double>(shape, to), pattern.element_type());
  }
  const size_t bytes = static_cast<size_t>(BitWidth(pattern.element_type()) / 8);
  std::byte* to = result.mutable_raw();
  for (int64_t i = 0; i < result.num_elements(); ++i) {
    std::copy_n(pattern.raw() + static_cast<size_t>(i % count) * bytes, bytes,
                to + static_cast<size_t>(i) * bytes);
  }
  return result;
}

}  // namespace lathe
