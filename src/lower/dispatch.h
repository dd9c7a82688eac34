#pragma once

#include <span>

#include "lathe/ir/block.h"
#include "lathe/lower/condition.h"

namespace lathe::lower {

/// Loops for the extents where a condition holds.
struct Variant {
  Condition where;
  Block* body;
};

/// Writes into `body`, whose arguments are those of the variants: the first variant whose condition
/// holds runs, and gives the results. The variants are used up.
void WriteDispatch(std::span<const Variant> variants, Block* body);

}  // namespace lathe::lower
