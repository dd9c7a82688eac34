#pragma once

#include <llvm/IR/IRBuilder.h>

#include <vector>

namespace lathe::codegen {

/// How many lanes a vector has; 0 for a scalar.
unsigned LanesOf(const llvm::Value* v);

/// Lanes [begin, begin + count) of a vector.
llvm::Value* Lanes(llvm::IRBuilder<>& b, llvm::Value* x, unsigned begin, unsigned count);

/// n vectors of n lanes, n a power of two: lane i of result j is lane j of row i.
std::vector<llvm::Value*> Transposed(llvm::IRBuilder<>& b, std::vector<llvm::Value*> rows);

/// n vectors of m lanes as one: lane i * n + j is lane i of part j.
llvm::Value* TakingTurns(llvm::IRBuilder<>& b, const std::vector<llvm::Value*>& parts);

}  // namespace lathe::codegen
