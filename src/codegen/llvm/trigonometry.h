#pragma once

#include <llvm/IR/IRBuilder.h>

/// Sine, cosine and tangent of f32 scalars and vectors as straight-line code, whatever their size:
/// computed in f64, and rounded at most 0.51 units in the last place away. NaN and infinities give
/// NaN.
namespace lathe::codegen {

llvm::Value* EmitSin(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitCos(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitTan(llvm::IRBuilder<>& b, llvm::Value* x);

/// Of f64 scalars and vectors, whatever their size: at most 1 unit in the last place away, tan 2.
llvm::Value* EmitSin64(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitCos64(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitTan64(llvm::IRBuilder<>& b, llvm::Value* x);

}  // namespace lathe::codegen
