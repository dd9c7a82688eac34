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
/// The `shape` operand of a reshape of `from` to those extents: numbers, 0 for an extent of the
/// input at the same place, one -1 for an extent that is provably what is left, or for a -1. None
/// if that does not say it for all sizes, 0 included. With `fits`, both are known to have as many
/// elements, which is proof enough where no extent is copied.
std::optional<std::vector<int64_t>> ReshapeTarget(const SymShape& from, const std::vector<Dim>& to,
                                                  bool fits);
/// All extents are known, be it as symbols, and the same. That types are equal does not say it:
/// they are where both extents are unknown.
bool SameKnownShape(Value a, Value b);
/// The same for tensors whose elements are the same, too.
bool SameKnownType(Value a, Value b);

}  // namespace lathe
