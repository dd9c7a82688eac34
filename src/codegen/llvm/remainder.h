#pragma once

#include <llvm/IR/IRBuilder.h>

/// What is left of a division of f32 or f64 scalars or vectors towards zero, exactly, as C's fmod.
namespace lathe::codegen {

llvm::Value* EmitRemainder(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y);

}  // namespace lathe::codegen
