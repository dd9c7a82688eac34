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

namespace {

/// Whether what the axes that stay leave to the -1 of `target` is `rest`.
bool IsRest(const SymShape& from, std::span<const int64_t> target, const Dim& rest) {
  Dim left = 1, others = rest;
  for (size_t i = 0; i < std::max(from.rank(), target.size()); ++i) {
    const bool stays = i < target.size() && target[i] == 0;
    if (i < from.rank() && !stays) left *= from.dims[i];
    if (i < target.size() && target[i] > 0) others *= target[i];
  }
  return ProvablyEqual(left, others);
}

}  // namespace

std::optional<std::vector<int64_t>> ReshapeTarget(const SymShape& from, const std::vector<Dim>& to,
                                                  bool fits) {
  std::vector<int64_t> target;
  std::optional<Dim> rest;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].is_constant() && to[i].value() > 0) {
      target.push_back(to[i].value());
    } else if (i < from.rank() && ProvablyEqual(to[i], from.dims[i])) {
      target.push_back(0);
    } else if (!rest && (!to[i].is_constant() || to[i].IsConstant(-1))) {
      target.push_back(-1);
      rest = to[i];
    } else {
      return std::nullopt;
    }
  }
  const bool copies = std::ranges::count(target, 0) > 0;
  const bool is_rest = !rest || rest->IsConstant(-1) || (fits && !copies);
  return is_rest || IsRest(from, target, *rest) ? std::optional(target) : std::nullopt;
}

bool SameKnownShape(Value a, Value b) {
  if (!a || !b || !RankOf(a) || RankOf(a) != RankOf(b)) return false;
  return std::ranges::equal(DimsOf(a), DimsOf(b), ProvablyEqual);
}

bool SameKnownType(Value a, Value b) { return SameKnownShape(a, b) && a.type() == b.type(); }

}  // namespace lathe
