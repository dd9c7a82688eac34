#pragma once

#include <llvm/IR/IRBuilder.h>

#include <vector>

#include "lathe/codegen/target.h"

namespace lathe::codegen {

/// loop.narrow: f32 as bf16, which are held as 16-bit integers; lanes of several vectors take
/// turns.
llvm::Value* Narrow(llvm::IRBuilder<>& b, const Target& target, std::vector<llvm::Value*> parts);
/// The same, `cut`: their upper halves.
llvm::Value* UpperHalves(llvm::IRBuilder<>& b, std::vector<llvm::Value*> parts);

/// loop.dot_pairs: `sum` plus the products of the pairs of `a` and `x`. One pair of `a` is
/// multiplied by each pair of `x`.
llvm::Value* DotPairs(llvm::IRBuilder<>& b, const Target& target, llvm::Value* a, llvm::Value* x,
                      llvm::Value* sum);

}  // namespace lathe::codegen
