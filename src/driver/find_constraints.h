#pragma once

#include <vector>

#include "lathe/ir/program.h"
#include "lathe/runtime/plan.h"

namespace lathe {

/// The size constraints of a program and of the functions that it calls, as a plan holds them. The
/// program is the same afterwards. Throws where an operation can not be right.
std::vector<runtime::PlanConstraint> FindConstraints(Program& program);

/// Those that the symbols decide.
std::vector<runtime::PlanConstraint> ConstraintsOn(
    const std::vector<runtime::PlanSymbol>& symbols,
    const std::vector<runtime::PlanConstraint>& constraints);

}  // namespace lathe
