#include "src/dialect/views.h"

#include <numeric>

#include "src/dialect/move.h"

namespace lathe {

Tensor ElementIndices(const Shape& shape) {
  Tensor result(ElementType::kI64, shape);
  const auto data = result.mutable_data<int64_t>();
  std::iota(data.begin(), data.end(), 0);
  return result;
}

Tensor GatherElements(const Tensor& base, const Tensor& indices) {
  Tensor result(base.element_type(), indices.shape());
  const eval::ElementMover mover(base, result);
  int64_t to = 0;
  for (const int64_t from : indices.data<int64_t>()) mover.Copy(to++, from);
  return result;
}

void ScatterElements(Tensor& base, const Tensor& indices, const Tensor& value) {
  const eval::ElementMover mover(value, base);
  int64_t from = 0;
  for (const int64_t to : indices.data<int64_t>()) mover.Copy(to, from++);
}

}  // namespace lathe
