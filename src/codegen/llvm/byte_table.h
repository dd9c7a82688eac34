#pragma once

#include <llvm/IR/IRBuilder.h>

#include "lathe/codegen/target.h"

namespace lathe::codegen {

/// The entries of a table of 256 bytes at `table`, for a vector of at most 64 bytes, by
/// permutations of registers of 64 bytes: `target` permutes words at least.
llvm::Value* EntriesOfBytes(llvm::IRBuilder<>& b, const Target& target, llvm::Value* table,
                            llvm::Value* bytes);

}  // namespace lathe::codegen
