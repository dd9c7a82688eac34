#pragma once

#include <llvm/IR/Module.h>

#include "lathe/codegen/code_generator.h"

namespace lathe::codegen {

/// Adds the function of `source`, a KernelFunction, to `module`. Throws codegen/unsupported.
void EmitKernel(llvm::Module& module, const KernelSource& source, const Target& target);

/// Sets what the kernel takes as buffers behind its outputs.
void DescribeMemory(const KernelSource& source, CodeImage::Entry& entry);

}  // namespace lathe::codegen
