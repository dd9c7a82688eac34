#pragma once

#include <cstdint>

#include "lathe/ir/operation.h"

namespace lathe {

/// Name of the runtime attribute (an integer from 1 on) on an operation that computes a second time
/// what another one has computed, so that nobody had to keep it. Operations of one number are
/// computed at one point of the program, for what comes there; none of them may move before it.
inline constexpr const char* kRecomputed = "recomputed";

/// 0 for all other operations.
inline int64_t RecomputedAt(const Operation* op) {
  const auto point = op->attribute(kRecomputed).dyn_cast<IntAttribute>();
  return point ? point.value() : 0;
}

}  // namespace lathe
