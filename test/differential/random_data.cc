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

}  // namespace lathe::testing
