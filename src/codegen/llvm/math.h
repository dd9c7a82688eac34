#pragma once

#include <llvm/IR/IRBuilder.h>

#include "lathe/codegen/target.h"

/// Functions of f32 scalars and vectors as straight-line code. Errors in units in the last place
/// were measured over all floats of the range; docs/decisions/0007-loops.md has the table. NaN
/// gives NaN; infinities and zeros are exact.
namespace lathe::codegen {

llvm::Value* EmitExp(llvm::IRBuilder<>& b, const Target& target, llvm::Value* x);
llvm::Value* EmitLog(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitTanh(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitErf(llvm::IRBuilder<>& b, llvm::Value* x);
/// 1 / (1 + e^-x).
llvm::Value* EmitSigmoid(llvm::IRBuilder<>& b, const Target& target, llvm::Value* x);

}  // namespace lathe::codegen
