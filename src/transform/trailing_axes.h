#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lathe/ir/value.h"

namespace lathe {

/// Number k >= 1 such that `axes` are the last k dims of `value`, in any order, each once.
std::optional<int64_t> TrailingAxes(std::vector<int64_t> axes, Value value);
/// The axis counted from the front; none if it is out of range or the rank is not known.
std::optional<int64_t> AxisFromFront(int64_t axis, Value value);
/// Rank of a tensor value, if known.
std::optional<int64_t> RankOf(Value value);
/// Dims of a tensor value; none if its rank is not known.
std::span<const Dim> DimsOf(Value value);

}  // namespace lathe
