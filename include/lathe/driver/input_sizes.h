#pragma once

#include <span>
#include <vector>

#include "lathe/ir/program.h"
#include "lathe/runtime/constraints.h"

namespace lathe {

/// Throws what a run on inputs of these sizes would, shape/..., where they contradict what the
/// program's operations rely on.
void CheckSizes(const Program& program, std::span<const runtime::BoundSymbol> sizes);

/// Adds sizes for symbols of an input's type that have none, as such inputs usually have them: one
/// sample, a picture of 224 by 224, a sequence of 32.
void AddUsualSizes(Type input, std::vector<Dim::Binding>& sizes);

}  // namespace lathe
