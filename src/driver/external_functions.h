#pragma once

#include "src/driver/compiled_program.h"

namespace lathe {

/// Marks what the compiler of the options takes.
void MarkExternal(Program& program, const CompileOptions& options);

/// Moves the functions that are marked for external compilers through them. Errors:
/// lower/no-compiler, those of the compilers.
void CompileExternal(CompiledProgram& compiled);

}  // namespace lathe
