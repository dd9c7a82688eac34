#include "src/transform/trailing_axes.h"

#include <algorithm>

#include "lathe/ir/type.h"

namespace lathe {

std::optional<int64_t> RankOf(Value value) {
  const auto type = value.type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank()) return std::nullopt;
  return static_cast<int64_t>(type.rank());
}

std::optional<int64_t> AxisFromFront(int64_t axis, Value value) {
  const std::optional<int64_t> rank = RankOf(value);
  if (!rank || axis < -*rank || axis >= *rank) return std::nullopt;
  return axis < 0 ? axis + *rank : axis;
}

std::optional<int64_t> TrailingAxes(std::vector<int64_t> axes, Value value) {
  const auto count = static_cast<int64_t>(axes.size());
  for (int64_t& axis : axes) {
    if (axis < 0) continue;
    const std::optional<int64_t> rank = RankOf(value);
    if (!rank) return std::nullopt;
    axis -= *rank;
  }
  std::sort(axes.begin(), axes.end());
  for (int64_t i = 0; i < count; ++i) {
    if (axes[static_cast<size_t>(i)] != i - count) return std::nullopt;
  }
  return count == 0 ? std::nullopt : std::optional<int64_t>(count);
}

std::span<const Dim> DimsOf(Value value) { return value.type().cast<AnyTensorType>().dims(); }

}  // namespace lathe
