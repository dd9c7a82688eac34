#pragma once

#include <llvm/IR/IRBuilder.h>

#include "src/codegen/llvm/straight_line.h"

/// Functions of f64 scalars and vectors as straight-line code; docs/decisions/0007-loops.md has
/// their largest errors. Rounded to f32 they are at most 0.51 units in the last place of that away
/// (pow 0.52). NaN gives NaN; infinities, zeros and the ends of domains are exact.
namespace lathe::codegen {

/// ln 2 in two parts: the first has zeros at its end, so that n * kLn2High64 is exact.
inline constexpr double kLn2High64 = 0x1.62e42feep-1;
inline constexpr double kLn2Low64 = 0x1.a39ef35793c76p-33;

/// mantissa * 2^exponent, the mantissa in [sqrt(1/2), sqrt 2); both f64.
struct Scaled {
  llvm::Value *exponent, *mantissa;
};
/// Of a positive finite x.
Scaled SplitExponent64(const StraightLine& m, llvm::Value* x);

llvm::Value* EmitExp64(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitLog64(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitSinh64(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitCosh64(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitTanh64(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitSigmoid64(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitErf64(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitAsinh64(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitAcosh64(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitAtanh64(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitAsin64(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitAcos64(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitAtan64(llvm::IRBuilder<>& b, llvm::Value* x);
/// As C's pow, special cases included, at most 0.6 units in the last place away.
llvm::Value* EmitPow64(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y);
/// The same to be rounded to f32: shorter, and with an error of some hundred units.
llvm::Value* EmitPowForF32(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y);
/// x^y of f32 or f64 for a `y` that takes only products and roots, as exactly as those above and
/// with the same special cases; null for others.
llvm::Value* EmitPowOfConstant(llvm::IRBuilder<>& b, llvm::Value* x, double y);

/// Of an f32 as f64, for a result in f32: off by at most 2^-33 of it.
llvm::Value* EmitAcosOfF32(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitAsinOfF32(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* EmitAtanOfF32(llvm::IRBuilder<>& b, llvm::Value* x);

}  // namespace lathe::codegen
