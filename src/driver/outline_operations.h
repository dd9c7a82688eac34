#pragma once

#include "src/driver/compiled_program.h"

namespace lathe {

/// Operations that no function holds become calls of functions of their own, which a plan
/// evaluates, and so do constants whose elements are strings.
void OutlineOperations(CompiledProgram& compiled);

}  // namespace lathe
