#pragma once

#include <llvm/IR/IRBuilder.h>

#include "lathe/codegen/target.h"

namespace lathe::codegen {

/// loop.dot: `sum` plus the products of the groups of four bytes of `a`, unsigned, and `x`, signed.
/// One group of `a` is multiplied by each group of `x`.
llvm::Value* Dot(llvm::IRBuilder<>& b, const Target& target, llvm::Value* a, llvm::Value* x,
                 llvm::Value* sum);

/// loop.dot_pairs of 16-bit integers: `sum` plus the products of the pairs of `a` and `x`.
/// One pair of `a` is multiplied by each pair of `x`.
llvm::Value* DotWords(llvm::IRBuilder<>& b, const Target& target, llvm::Value* a, llvm::Value* x,
                      llvm::Value* sum);

}  // namespace lathe::codegen
