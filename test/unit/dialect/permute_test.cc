#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "src/dialect/move.h"

namespace lathe::eval {
namespace {

/// 0, 1, 2, ... in a type that holds `bits` of each.
Tensor Counting(ElementType type, const Shape& shape) {
  std::vector<int64_t> values(static_cast<size_t>(NumElements(shape)));
  std::iota(values.begin(), values.end(), 0);
  const int bits = std::min(BitWidth(type), 7);
  for (int64_t& v : values) v = (v * 7 + v / 16) & ((1 << (bits - 1)) - 1);
  return Cast(Tensor::Of<int64_t>(shape, values), type);
}

/// One element after the other.
Tensor Slowly(const Tensor& tensor, const std::vector<size_t>& perm) {
  Shape shape;
  for (const size_t axis : perm) shape.push_back(tensor.shape()[axis]);
  Tensor result(tensor.element_type(), shape);
  const ElementMover mover(tensor, result);
  for (int64_t to = 0; to < NumElements(shape); ++to) {
    std::vector<int64_t> index(perm.size());
    int64_t rest = to;
    for (size_t i = perm.size(); i-- > 0; rest /= shape[i]) index[perm[i]] = rest % shape[i];
    int64_t from = 0;
    for (size_t i = 0; i < perm.size(); ++i) from = from * tensor.shape()[i] + index[i];
    mover.Copy(to, from);
  }
  return result;
}

TEST(Permute, EveryOrderOfAxesAndEverySizeOfElements) {
  const Shape shapes[] = {{33, 18}, {1, 40}, {3, 17, 35}, {2, 1, 19, 16}, {2, 3, 5, 7, 2}};
  const ElementType types[] = {ElementType::kF32, ElementType::kI8,   ElementType::kF16,
                               ElementType::kF64, ElementType::kC128, ElementType::kI4,
                               ElementType::kBool};
  for (const Shape& shape : shapes) {
    for (const ElementType type : types) {
      const Tensor tensor = Counting(type, shape);
      std::vector<size_t> perm(shape.size());
      std::iota(perm.begin(), perm.end(), size_t{0});
      do {
        EXPECT_EQ(Permute(tensor, perm), Slowly(tensor, perm))
            << tensor.TypeString() << " " << ShapeToString(Shape(perm.begin(), perm.end()));
      } while (std::next_permutation(perm.begin(), perm.end()));
    }
  }
}

}  // namespace
}  // namespace lathe::eval
