#pragma once

#include "lathe/ir/operation.h"

namespace lathe::lower {

/// About how many instructions one element of an elementwise operation's result takes.
int InstructionsOf(const Operation& op);

}  // namespace lathe::lower
