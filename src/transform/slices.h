#pragma once

#include <cstdint>
#include <optional>

#include "lathe/ir/program.h"

namespace lathe {

/// Every `step`th of `count` elements from `begin` on, along one axis of `whole`.
struct SliceOf {
  Value whole;
  int64_t axis;  ///< from the front
  int64_t begin;
  int64_t count;
  int64_t step;
};
/// What an nn.slice along one axis, by constants, or a result of an nn.split takes from its input;
/// the extent of the axis must be known.
std::optional<SliceOf> AsSlice(const Program& program, Value value);

}  // namespace lathe
