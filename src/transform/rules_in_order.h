#pragma once

#include <vector>

#include "lathe/pass/rule.h"

namespace lathe {

/// Applies `rules` to the top block in one walk in program order and infers types again on the way,
/// so that what a rewrite says of shapes helps what comes after it; then as ApplyRules. For rules
/// that make a shape simpler than inference can know it. Returns the number of rewrites.
int64_t ApplyRulesInOrder(Program& program, Pass* pass, std::vector<Rule> rules);

}  // namespace lathe
