#pragma once

#include <span>
#include <vector>

#include "lathe/ir/block.h"

namespace lathe {

/// Moves the operations of each group next to each other, each after what it reads. Inputs and
/// outputs keep their order, everything else as far as values allow. The groups must be convex and
/// the block without operations that have effects.
void MakeContiguous(Block* block, std::span<const std::vector<Operation*>> groups);

}  // namespace lathe
