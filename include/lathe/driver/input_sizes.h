#pragma once

#include <span>

#include "lathe/ir/program.h"
#include "lathe/runtime/constraints.h"

namespace lathe {

/// Throws what a run on inputs of these sizes would, shape/..., where they contradict what the
/// program's operations rely on.
void CheckSizes(const Program& program, std::span<const runtime::BoundSymbol> sizes);

}  // namespace lathe
