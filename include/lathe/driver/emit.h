#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lathe/driver/executable.h"

namespace lathe {

/// The stages of a compilation, to look at.
enum class Stage : uint8_t {
  kLoops,     ///< the program with its functions as loops
  kLlvm,      ///< the loops as LLVM has optimized them
  kAssembly,  ///< machine code to read
  kObject,    ///< the same as an object file
};

/// "loops", "llvm", "asm", "obj"; in the order of the stages.
std::span<const std::string_view> StageNames();
/// An unknown name is an error (compile/stage).
Stage ParseStage(const std::string& name);

/// A program at a stage, for any target. Errors: those of the passes, codegen/...
std::string EmitStage(const Program& program, const CompileOptions& options, Stage stage);

/// Compiles for a target that need not run here, and writes an executable; returns what it holds.
/// Errors: those of the passes, codegen/..., save/interpreted, io/...
std::shared_ptr<const runtime::Plan> CompileToFile(const Program& program,
                                                   const CompileOptions& options,
                                                   const std::string& path);

}  // namespace lathe
