#pragma once

#include <llvm/IR/IRBuilder.h>

namespace lathe::codegen {

/// The entries of a table of 256 bytes at `table`, for a vector of at most 64 bytes, by the
/// permutations of AVX512-VBMI.
llvm::Value* EntriesOfBytes(llvm::IRBuilder<>& b, llvm::Value* table, llvm::Value* bytes);

}  // namespace lathe::codegen
