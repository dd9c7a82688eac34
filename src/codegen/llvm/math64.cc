#include "src/codegen/llvm/math64.h"

#include <cmath>
#include <numbers>

#include "src/codegen/llvm/straight_line.h"

namespace lathe::codegen {
namespace {

using llvm::Value;

constexpr double kRound64 = 0x1.8p52;  // adding it leaves an integer in the low bits

}  // namespace

// e^x = 2^n e^r with |r| <= ln 2 / 2. Where the result is 0, so is a factor; see EmitExp.
Value* EmitExp64(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  Value* is_zero = m.Less(x, m.F(-746));
  x = m.Select(is_zero, m.F(-746), x);
  x = m.Select(m.Less(m.F(710), x), m.F(710), x);
  Value* shifted = m.MulAdd(x, m.F(std::numbers::log2e), m.F(kRound64));
  Value* n = b.CreateSub(m.Bits(shifted), m.Bits(m.F(kRound64)));
  Value* n_float = m.Sub(shifted, m.F(kRound64));
  Value* r = m.MulAdd(n_float, m.F(-kLn2High64), x);
  r = m.MulAdd(n_float, m.F(-kLn2Low64), r);
  std::vector<double> c;
  double factorial = 2;
  for (int i = 3; i < 15; ++i) c.push_back(1 / factorial), factorial *= i;
  Value* p = m.MulAdd(m.Mul(r, r), m.Poly(r, c), r);
  p = m.Add(p, m.F(1));
  Value* half = b.CreateAShr(n, m.I(1));
  Value* rest = m.Select(is_zero, m.F(0), m.PowerOfTwo(b.CreateSub(n, half)));
  return m.Mul(m.Mul(p, m.PowerOfTwo(half)), rest);
}

Scaled SplitExponent64(const StraightLine& m, Value* x) {
  llvm::IRBuilder<>& b = m.b();
  constexpr int64_t kRootHalf = 0x3fe6a09e667f3bcd, kOne = 0x3ff0000000000000;
  Value* small = m.Less(x, m.F(0x1p-1022));
  Value* bits = m.Bits(m.Select(small, m.Mul(x, m.F(0x1p54)), x));
  bits = b.CreateAdd(bits, m.I(kOne - kRootHalf));
  // An integer of 52 bits under the exponent of 2^52 is that number more than 2^52.
  Value* exponent = b.CreateOr(b.CreateLShr(bits, m.I(52)), m.I(0x4330000000000000));
  Value* k = m.Sub(m.FromBits(exponent), m.F(0x1p52 + 1023));
  k = m.Sub(k, m.Select(small, m.F(54), m.F(0)));
  Value* mantissa = b.CreateAdd(b.CreateAnd(bits, m.I(0x000fffffffffffff)), m.I(kRootHalf));
  return {k, m.FromBits(mantissa)};
}

// log x = k ln 2 + log(1 + f) with 1 + f in [sqrt(1/2), sqrt 2), by the series of (1+s) / (1-s).
Value* EmitLog64(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  const auto [k, mantissa] = SplitExponent64(m, x);
  Value* f = m.Sub(mantissa, m.F(1));
  Value* s = m.Div(f, m.Add(m.F(2), f));
  Value* z = m.Mul(s, s);
  std::vector<double> c;
  for (int i = 3; i < 27; i += 2) c.push_back(2.0 / i);
  Value* series = m.Mul(z, m.Poly(z, c));
  Value* half_square = m.Mul(m.Mul(f, f), m.F(0.5));
  Value* tail = m.MulAdd(s, m.Add(half_square, series), m.Mul(k, m.F(kLn2Low64)));
  Value* result = m.Sub(m.Mul(k, m.F(kLn2High64)), m.Sub(m.Sub(half_square, tail), f));
  result = m.Select(m.Is(x, INFINITY), x, result);
  result = m.Select(m.Is(x, 0), m.F(-INFINITY), result);
  return m.Select(b.CreateFCmpOGE(x, m.F(0)), result, m.F(NAN));
}

namespace {

// log(1 + x), with what 1 + x loses.
Value* Log1p(const StraightLine& m, Value* x) {
  Value* u = m.Add(m.F(1), x);
  Value* lost = m.Div(m.Sub(x, m.Sub(u, m.F(1))), u);
  Value* log = EmitLog64(m.b(), u);
  Value* ends = m.b().CreateOr(m.Is(u, 0), m.Is(u, INFINITY));
  return m.Select(ends, log, m.Add(log, lost));
}

// sinh of |x| < 1.
Value* SmallSinh(const StraightLine& m, Value* x) {
  std::vector<double> c;
  double factorial = 1;
  for (int i = 1; i < 20; i += 2) c.push_back(1 / factorial), factorial *= (i + 1) * (i + 2);
  return m.Mul(x, m.Poly(m.Mul(x, x), c));
}

// Of arguments so large that squares overflow: log 2x.
Value* LogOfTwice(const StraightLine& m, Value* x) {
  return m.Add(EmitLog64(m.b(), x), m.F(std::numbers::ln2));
}

// Half of e^x, where e^x itself may overflow.
Value* HalfExp(const StraightLine& m, Value* x) {
  Value* half = EmitExp64(m.b(), m.Mul(x, m.F(0.5)));
  Value* large = m.Mul(m.Mul(half, m.F(0.5)), half);
  Value* usual = m.Mul(EmitExp64(m.b(), x), m.F(0.5));
  return m.Select(m.Less(m.F(709), x), large, usual);
}

}  // namespace

Value* EmitSinh64(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  Value* size = m.Abs(x);
  Value* half = HalfExp(m, size);
  Value* large = m.WithSign(m.Sub(half, m.Div(m.F(0.25), half)), x);
  return m.Select(m.Less(size, m.F(1)), SmallSinh(m, x), large);
}

Value* EmitCosh64(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  Value* half = HalfExp(m, m.Abs(x));
  return m.Add(half, m.Div(m.F(0.25), half));
}

Value* EmitTanh64(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  Value* size = m.Abs(x);
  Value* e = EmitExp64(b, m.Add(size, size));
  Value* large = m.Sub(m.F(1), m.Div(m.F(2), m.Add(e, m.F(1))));
  Value* sinh = SmallSinh(m, x);
  Value* small = m.Div(sinh, m.Sqrt(m.MulAdd(sinh, sinh, m.F(1))));
  return m.Select(m.Less(size, m.F(0.9)), small, m.WithSign(large, x));
}

Value* EmitSigmoid64(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  Value* e = EmitExp64(b, b.CreateFNeg(m.Abs(x)));
  return m.Div(m.Select(m.Less(x, m.F(0)), e, m.F(1)), m.Add(m.F(1), e));
}

Value* EmitAsinh64(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  Value* size = m.Abs(x);
  Value* root = m.Sqrt(m.MulAdd(size, size, m.F(1)));
  Value* more = m.Mul(size, m.Div(size, m.Add(m.F(1), root)));
  Value* usual = Log1p(m, m.Add(size, more));
  return m.WithSign(m.Select(m.Less(m.F(1e8), size), LogOfTwice(m, size), usual), x);
}

Value* EmitAcosh64(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  Value* t = m.Sub(x, m.F(1));
  Value* usual = Log1p(m, m.Add(t, m.Sqrt(m.Mul(t, m.Add(x, m.F(1))))));
  Value* y = m.Select(m.Less(m.F(1e8), x), LogOfTwice(m, x), usual);
  return m.Select(m.Less(x, m.F(1)), m.F(NAN), y);
}

Value* EmitAtanh64(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  Value* size = m.Abs(x);
  Value* y = Log1p(m, m.Div(m.Add(size, size), m.Sub(m.F(1), size)));
  return m.Select(m.Less(m.F(1), size), m.F(NAN), m.WithSign(m.Mul(y, m.F(0.5)), x));
}

// Below 3 a series of positive terms times e^(-x^2); above, a continued fraction of what is left.
Value* EmitErf64(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  Value* size = m.Abs(x);
  Value* near = m.Select(m.Less(size, m.F(3)), size, m.F(3));
  std::vector<double> c;
  double term = 2 / std::sqrt(std::numbers::pi);
  for (int n = 0; n < 64; ++n) c.push_back(term), term *= 2.0 / (2 * n + 3);
  Value* square = m.Mul(near, near);
  Value* small = m.Mul(m.Mul(near, EmitExp64(b, b.CreateFNeg(square))), m.Poly(square, c));
  Value* far = m.Select(m.Less(size, m.F(3)), m.F(3), size);
  far = m.Select(m.Less(m.F(6), far), m.F(6), far);
  Value* inverse = m.Div(m.F(0.5), m.Mul(far, far));
  Value* fraction = m.F(1);
  for (int n = 40; n > 0; --n) {
    fraction = m.Add(m.F(1), m.Div(m.Mul(m.F(n), inverse), fraction));
  }
  Value* power = EmitExp64(b, b.CreateFNeg(m.Mul(far, far)));
  Value* rest = m.Div(power, m.Mul(m.Mul(far, m.F(std::sqrt(std::numbers::pi))), fraction));
  Value* y = m.Select(m.Less(size, m.F(3)), small, m.Sub(m.F(1), rest));
  y = m.Select(b.CreateFCmpUNO(x, x), x, y);
  return m.WithSign(y, x);
}

// atan x = pi/2 - atan 1/x, and twice the half angle twice; then |x| <= tan(pi/16).
Value* EmitAtan64(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  Value* size = m.Abs(x);
  Value* large = m.Less(m.F(1), size);
  Value* t = m.Select(large, m.Div(m.F(1), size), size);
  for (int i = 0; i < 2; ++i) t = m.Div(t, m.Add(m.F(1), m.Sqrt(m.MulAdd(t, t, m.F(1)))));
  std::vector<double> c;
  for (int i = 1; i < 25; i += 2) c.push_back((i % 4 == 1 ? 4.0 : -4.0) / i);
  Value* angle = m.Mul(t, m.Poly(m.Mul(t, t), c));
  angle = m.Select(large, m.Sub(m.F(std::numbers::pi / 2), angle), angle);
  return m.WithSign(angle, x);
}

Value* EmitAsin64(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  return EmitAtan64(b, m.Div(x, m.Sqrt(m.Mul(m.Sub(m.F(1), x), m.Add(m.F(1), x)))));
}

Value* EmitAcos64(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  Value* half = EmitAtan64(b, m.Sqrt(m.Div(m.Sub(m.F(1), x), m.Add(m.F(1), x))));
  return m.Add(half, half);
}

}  // namespace lathe::codegen
