#pragma once

#include <utility>
#include <vector>

#include "lathe/ir/program.h"
#include "lathe/ir/stated_constraints.h"

namespace lathe {

/// What must hold of sizes that only a run knows, so that every operation of the program's block is
/// right: what it states, what the rules of shapes assume, that no extent is negative, and that
/// results have the extents that they are declared with. In program order, each condition once.
/// Operations within regions are left out, for they may never run, and so are those of functions.
///
/// Throws where an operation cannot be right whatever the sizes are. The program is the same
/// afterwards.
std::vector<SizeConstraint> FindSizeConstraints(Program& program);

/// The same of the operations of one block, such as the body of a function.
std::vector<SizeConstraint> FindSizeConstraints(Program& program, Block* block);

/// The same of each block within a region of the program's block, in program order: what must hold
/// where the region runs. An operation that cannot be right is a condition that never holds.
std::vector<std::pair<Block*, std::vector<SizeConstraint>>> FindRegionConstraints(Program& program);

}  // namespace lathe
