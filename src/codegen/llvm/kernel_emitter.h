#pragma once

#include <llvm/IR/Module.h>

#include "lathe/codegen/code_generator.h"

namespace lathe::codegen {

/// Adds the function of `source`, a KernelFunction, to `module`. Throws codegen/unsupported.
void EmitKernel(llvm::Module& module, const KernelSource& source, const Target& target);

}  // namespace lathe::codegen
