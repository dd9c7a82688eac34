#include "test/differential/random_data.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lathe/support/error.h"

namespace lathe::testing {

namespace {

double Special(RandomStream& random) {
  static constexpr double kInf = std::numeric_limits<double>::infinity();
  static constexpr double kNumbers[] = {
      kInf, -kInf, std::numeric_limits<double>::quiet_NaN(), -0.0, 1e4, -6e4, 1e-7, 1e15};
  return kNumbers[random.Int(0, std::size(kNumbers) - 1)];
}

double FloatOf(DataStyle style, RandomStream& random) {
  if (style == DataStyle::kUniform) return random.Uniform(-2, 2);
  if (style == DataStyle::kSpecial && random.Int(0, 15) == 0) return Special(random);
  return static_cast<double>(random.Int(-12, 12)) / 4;
}

Tensor Integers(ElementType element, const Shape& shape, DataStyle style, RandomStream& random) {
  std::vector<int64_t> values(static_cast<size_t>(NumElements(shape)));
  const int64_t low = IsSigned(element) ? -4 : 0;
  for (int64_t& v : values) {
    v = random.Int(low, 9);
    // Narrow types keep the low bits: all of them come by.
    if (style == DataStyle::kSpecial && random.Int(0, 7) == 0)
      v = static_cast<int64_t>(random.NextU64());
  }
  return Cast(Tensor::Of<int64_t>(shape, values), element);
}

}  // namespace

Tensor RandomData(ElementType element, Shape shape, DataStyle style, RandomStream& random) {
  if (element == ElementType::kString || IsComplex(element) || element == ElementType::kF8E8M0) {
    return RandomTensor(element, std::move(shape), random.NextU64());
  }
  if (element == ElementType::kBool) {
    Tensor result(element, shape);
    for (bool& v : result.mutable_data<bool>()) v = random.Int(0, 1) == 1;
    return result;
  }
  if (!IsFloat(element)) return Integers(element, shape, style, random);
  std::vector<double> values(static_cast<size_t>(NumElements(shape)));
  for (double& v : values) v = FloatOf(style, random);
  return Cast(Tensor::Of<double>(shape, values), element, false);
}

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

}  // namespace lathe::testing
