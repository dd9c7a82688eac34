#pragma once

#include <llvm/IR/IRBuilder.h>

#include "lathe/codegen/target.h"
#include "lathe/support/element_type.h"

/// f16 and bf16 are held as 16-bit integers, computed in f32 and rounded once.
namespace lathe::codegen {

inline bool IsHalf(ElementType element) {
  return element == ElementType::kF16 || element == ElementType::kBF16;
}

/// The f32 of each lane.
llvm::Value* FromHalf(llvm::IRBuilder<>& b, const Target& target, ElementType element,
                      llvm::Value* x);
/// The f32 next to an f64, whose last bit is 1 unless both are equal: rounding that to a narrower
/// type is like rounding once.
llvm::Value* RoundedToOdd(llvm::IRBuilder<>& b, llvm::Value* x);
/// f32 or f64, with one rounding to nearest even.
llvm::Value* ToHalf(llvm::IRBuilder<>& b, const Target& target, ElementType element,
                    llvm::Value* x);

}  // namespace lathe::codegen
