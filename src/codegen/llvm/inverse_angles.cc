#include <cmath>
#include <numbers>

#include "src/codegen/llvm/math64.h"
#include "src/codegen/llvm/straight_line.h"

// Polynomials were fitted for the least relative error, by Remez exchange.
namespace lathe::codegen {
namespace {

using llvm::Value;

constexpr double kHalfPi = std::numbers::pi / 2;

// asin of a t up to 1/2, of its square: off by 2^-40.
Value* SmallAsin(const StraightLine& m, Value* t, Value* square) {
  const double c[] = {0x1.0000000001018p+0, 0x1.555555416528ep-3,  0x1.3333436fc11c9p-4,
                      0x1.6db1c8c76a88ap-5, 0x1.f2912914168a2p-6,  0x1.65cdd091ea6f9p-6,
                      0x1.542c84a4a5825p-6, 0x1.c1936e4cc3a85p-10, 0x1.0fa2fab9b75fap-5};
  return m.Mul(t, m.Poly(square, c));
}

// Above 1/2 the half angle of what is left to 1.
struct Half {
  Value *large, *asin;  // of |x|, or of the square root of (1 - |x|) / 2
};

Half HalfOf(const StraightLine& m, Value* x) {
  Value* size = m.Abs(x);
  Value* large = m.Less(m.F(0.5), size);
  Value* square = m.Select(large, m.Mul(m.Sub(m.F(1), size), m.F(0.5)), m.Mul(x, x));
  Value* t = m.Select(large, m.Sqrt(square), size);
  return {large, SmallAsin(m, t, square)};
}

}  // namespace

Value* EmitAsinOfF32(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  const Half half = HalfOf(m, x);
  Value* other = m.MulAdd(half.asin, m.F(-2), m.F(kHalfPi));
  return m.WithSign(m.Select(half.large, other, half.asin), x);
}

Value* EmitAcosOfF32(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  const Half half = HalfOf(m, x);
  Value* twice = m.Add(half.asin, half.asin);
  Value* large = m.Select(m.Less(x, m.F(0)), m.Sub(m.F(std::numbers::pi), twice), twice);
  return m.Select(half.large, large, m.Sub(m.F(kHalfPi), m.WithSign(half.asin, x)));
}

// atan x = pi/2 - atan 1/x; up to 1 a polynomial that is off by 2^-34.
Value* EmitAtanOfF32(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  const double c[] = {0x1.ffffffff7ec74p-1,  -0x1.555554269989cp-2, 0x1.9999238e7e470p-3,
                      -0x1.2489326f9d7a0p-3, 0x1.c66110b6c89edp-4,  -0x1.6fd4a1c7db929p-4,
                      0x1.28c8dd5eaf3eep-4,  -0x1.bca78c0b853eep-5, 0x1.183ec26b97fdap-5,
                      -0x1.07f94d4537749p-6, 0x1.3de92f42b8981p-8,  -0x1.6707507532337p-11};
  Value* size = m.Abs(x);
  Value* large = m.Less(m.F(1), size);
  Value* t = m.Select(large, m.Div(m.F(1), size), size);
  Value* angle = m.Mul(t, m.Poly(m.Mul(t, t), c));
  return m.WithSign(m.Select(large, m.Sub(m.F(kHalfPi), angle), angle), x);
}

}  // namespace lathe::codegen
