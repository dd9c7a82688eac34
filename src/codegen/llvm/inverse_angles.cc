#include <cmath>
#include <numbers>

#include "src/codegen/llvm/math64.h"
#include "src/codegen/llvm/straight_line.h"

// Polynomials were fitted for the least largest error relative to the function.
namespace lathe::codegen {
namespace {

using llvm::Value;

constexpr double kHalfPi = std::numbers::pi / 2;

// asin of a t up to 1/2, of its square: off by 2^-40.
Value* SmallAsin(const StraightLine& m, Value* t, Value* square) {
  const double c[] = {1.0000000000009148,   0.1666666660863893,    0.07500006048582643,
                      0.044640438219475234, 0.030430116763775168,  0.0218386208358998,
                      0.020762567076040867, 0.0017149959632579992, 0.03315876931968016};
  return m.Mul(t, m.Poly(square, c));
}

// Above 1/2 the half angle of what is left to 1.
struct HalfAngle {
  Value *large, *asin;  // of |x|, or of the square root of (1 - |x|) / 2
};

HalfAngle HalfOf(const StraightLine& m, Value* x) {
  Value* size = m.Abs(x);
  Value* large = m.Less(m.F(0.5), size);
  Value* square = m.Select(large, m.Mul(m.Sub(m.F(1), size), m.F(0.5)), m.Mul(x, x));
  Value* t = m.Select(large, m.Sqrt(square), size);
  return {large, SmallAsin(m, t, square)};
}

}  // namespace

Value* EmitAsinOfF32(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  const HalfAngle half = HalfOf(m, x);
  Value* other = m.MulAdd(half.asin, m.F(-2), m.F(kHalfPi));
  return m.WithSign(m.Select(half.large, other, half.asin), x);
}

Value* EmitAcosOfF32(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  const HalfAngle half = HalfOf(m, x);
  Value* twice = m.Add(half.asin, half.asin);
  Value* large = m.Select(m.Less(x, m.F(0)), m.Sub(m.F(std::numbers::pi), twice), twice);
  return m.Select(half.large, large, m.Sub(m.F(kHalfPi), m.WithSign(half.asin, x)));
}

// atan x = pi/2 - atan 1/x; up to 1 a polynomial that is off by 2^-34.
Value* EmitAtanOfF32(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  const double c[] = {0.9999999999412368,   -0.33333331571192004,  0.1999991205082412,
                      -0.14283980754015335, 0.1109324124231887,    -0.08980239101012856,
                      0.0724571845302788,   -0.054279111409563416, 0.034209613539814845,
                      -0.01611168428359314, 0.004850935018767878,  -0.0006847926548739562};
  Value* size = m.Abs(x);
  Value* large = m.Less(m.F(1), size);
  Value* t = m.Select(large, m.Div(m.F(1), size), size);
  Value* angle = m.Mul(t, m.Poly(m.Mul(t, t), c));
  return m.WithSign(m.Select(large, m.Sub(m.F(kHalfPi), angle), angle), x);
}

}  // namespace lathe::codegen
