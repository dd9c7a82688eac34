#pragma once

#include <llvm/IR/IRBuilder.h>

#include "lathe/support/element_type.h"
#include "lathe/support/float_types.h"

/// Floats of at most eight bits are held as their bits in 8-bit integers. There is no arithmetic on
/// them: they are moved, and cast by way of f32 with one rounding.
namespace lathe::codegen {

bool IsSmallFloat(ElementType element);

/// How a number becomes one of them: attributes of nn.cast.
struct SmallFloatRounding {
  bool saturate = true;
  PowerRounding power = PowerRounding::kUp;
};

/// The f32 of each lane.
llvm::Value* FromSmallFloat(llvm::IRBuilder<>& b, ElementType element, llvm::Value* x);
/// f32 or f64, rounded as the interpreter does (float_types.h).
llvm::Value* ToSmallFloat(llvm::IRBuilder<>& b, ElementType element, llvm::Value* x,
                          const SmallFloatRounding& rounding);

}  // namespace lathe::codegen
