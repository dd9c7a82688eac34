#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "lathe/runtime/plan.h"

namespace lathe::runtime {

/// A symbol of the dims of the inputs, and what it is in a run.
struct BoundSymbol {
  std::string_view name;
  int64_t value;
  std::string_view input;  ///< whose shape says so; empty: the program computes it
};

/// Throws the error of the first constraint that does not hold, with the sizes that decide. One
/// with a symbol that is not bound is left to whoever runs the operation.
void CheckConstraints(std::span<const PlanConstraint> constraints,
                      std::span<const BoundSymbol> symbols);

}  // namespace lathe::runtime
