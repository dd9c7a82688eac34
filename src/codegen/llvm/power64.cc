#include <cmath>

#include "src/codegen/llvm/math64.h"
#include "src/codegen/llvm/straight_line.h"

// Powers of doubles. An error of log x is multiplied by y log x, up to 745, so logarithm and
// product are sums of two doubles each, of which the second is what the first has lost to rounding.
namespace lathe::codegen {
namespace {

using llvm::Value;

struct Pair {
  Value *high, *low;
};

class Pairs : public StraightLine {
 public:
  using StraightLine::StraightLine;

  /// x + y of which |x| >= |y| or x is 0; of any x and y.
  Pair FastSum(Value* x, Value* y) const {
    Value* sum = Add(x, y);
    return {sum, Sub(y, Sub(sum, x))};
  }
  Pair Sum(Value* x, Value* y) const {
    Value *sum = Add(x, y), *of_y = Sub(sum, x);
    return {sum, Add(Sub(x, Sub(sum, of_y)), Sub(y, of_y))};
  }
  /// x * y, exactly, by halves of the digits [Dekker 1971].
  Pair Product(Value* x, Value* y) const {
    Value* product = Mul(x, y);
    const Pair a = Halves(x), b = Halves(y);
    Value* rest = Sub(Mul(a.high, b.high), product);
    rest = Add(Add(rest, Mul(a.high, b.low)), Mul(a.low, b.high));
    return {product, Add(rest, Mul(a.low, b.low))};
  }
  Pair Product(const Pair& x, Value* y) const {
    const Pair p = Product(x.high, y);
    return FastSum(p.high, Add(p.low, Mul(x.low, y)));
  }
  Pair Product(const Pair& x, const Pair& y) const {
    const Pair p = Product(x.high, y.high);
    return FastSum(p.high, Add(p.low, Add(Mul(x.high, y.low), Mul(x.low, y.high))));
  }

 private:
  Pair Halves(Value* x) const {
    Value* scaled = Mul(x, F(0x1p27 + 1));
    Value* high = Sub(scaled, Sub(scaled, x));
    return {high, Sub(x, high)};
  }
};

// (m - 1) / (m + 1).
Pair Ratio(const Pairs& m, Value* mantissa) {
  Value* f = m.Sub(mantissa, m.F(1));
  const Pair t = m.Sum(m.F(2), f);
  Value* quotient = m.Div(f, t.high);
  const Pair back = m.Product(quotient, t.high);
  Value* rest = m.Sub(m.Sub(m.Sub(f, back.high), back.low), m.Mul(quotient, t.low));
  return {quotient, m.Div(rest, t.high)};
}

// log m = 2 s (1 + s^2/3 + s^4/5 + ...) for m in [sqrt(1/2), sqrt 2).
Pair LogOfMantissa(const Pairs& m, Value* mantissa) {
  const Pair s = Ratio(m, mantissa);
  const Pair z = m.Product(s, s);
  const Pair third = m.Product(z, Pair{m.F(0x1.5555555555555p-2), m.F(0x1.5555555555555p-56)});
  std::vector<double> c;
  for (int i = 5; i < 31; i += 2) c.push_back(1.0 / i);
  Value* tail = m.Mul(m.Mul(z.high, z.high), m.Poly(z.high, c));
  const Pair more = m.FastSum(third.high, m.Add(third.low, tail));
  const Pair one_and_more = m.FastSum(m.F(1), more.high);
  const Pair factor{one_and_more.high, m.Add(one_and_more.low, more.low)};
  const Pair twice{m.Add(s.high, s.high), m.Add(s.low, s.low)};
  return m.Product(twice, factor);
}

// log x of a positive finite x.
Pair Log(const Pairs& m, Value* x) {
  const auto [k, mantissa] = SplitExponent64(m, x);
  const Pair log = LogOfMantissa(m, mantissa);
  const Pair sum = m.Sum(m.Mul(k, m.F(kLn2High64)), log.high);
  return m.FastSum(sum.high, m.Add(sum.low, m.Add(log.low, m.Mul(k, m.F(kLn2Low64)))));
}

// e^x = 2^n e^r with |r| <= ln 2 / 2.
Value* Exp(const Pairs& m, const Pair& x) {
  llvm::IRBuilder<>& b = m.b();
  constexpr double kRound = 0x1.8p52;  // adding it leaves an integer in the low bits
  Value* bounded = m.Clamp(x.high, -746, 710);
  Value* low = m.Select(b.CreateFCmpOEQ(bounded, x.high), x.low, m.F(0));
  Value* shifted = m.MulAdd(bounded, m.F(0x1.71547652b82fep0), m.F(kRound));
  Value* n = b.CreateSub(m.Bits(shifted), m.Bits(m.F(kRound)));
  Value* n_float = m.Sub(shifted, m.F(kRound));
  Value* near = m.Sub(bounded, m.Mul(n_float, m.F(kLn2High64)));
  const Pair r = m.Sum(near, m.Sub(low, m.Mul(n_float, m.F(kLn2Low64))));
  std::vector<double> c;
  double factorial = 2;
  for (int i = 3; i < 17; ++i) c.push_back(1 / factorial), factorial *= i;
  Value* rest = m.Add(m.Mul(m.Mul(r.high, r.high), m.Poly(r.high, c)), r.low);
  const Pair sum = m.FastSum(m.F(1), r.high);
  Value* p = m.Add(sum.high, m.Add(sum.low, rest));
  Value* half = b.CreateAShr(n, m.I(1));
  return m.Mul(m.Mul(p, m.PowerOfTwo(half)), m.PowerOfTwo(b.CreateSub(n, half)));
}

// x^y for x >= 0. From 2^65 on, every y gives 0 or infinity, other than of 1.
Value* PowerOfSize(const Pairs& m, Value* x, Value* y) {
  Value* power = Exp(m, m.Product(Log(m, x), m.Clamp(y, -0x1p65, 0x1p65)));
  Value* falls = m.Less(y, m.F(0));
  power = m.Select(m.Is(x, 0), m.Select(falls, m.F(INFINITY), m.F(0)), power);
  return m.Select(m.Is(x, INFINITY), m.Select(falls, m.F(0), m.F(INFINITY)), power);
}

struct Whole {
  Value *is_whole, *is_odd;
};

// By adding 2^52: whole numbers beyond are even.
Whole WholeOf(const StraightLine& m, Value* y) {
  llvm::IRBuilder<>& b = m.b();
  Value* size = m.Abs(y);
  Value* beyond = b.CreateFCmpOGE(size, m.F(0x1p53));
  Value* shifted = m.Add(size, m.F(0x1p52));
  Value* whole = b.CreateOr(b.CreateFCmpOGE(size, m.F(0x1p52)),
                            b.CreateFCmpOEQ(m.Sub(shifted, m.F(0x1p52)), size));
  // From 2^52 to 2^53 the number's own last bit.
  Value* bits = m.Select(b.CreateFCmpOGE(size, m.F(0x1p52)), size, shifted);
  Value* low = b.CreateICmpNE(b.CreateAnd(m.Bits(bits), m.I(1)), m.I(0));
  return {whole, b.CreateAnd(b.CreateAnd(b.CreateNot(beyond), low), whole)};
}

// x^y of |x|^y.
Value* WithSign(const StraightLine& m, Value* x, Value* y, Value* power) {
  llvm::IRBuilder<>& b = m.b();
  power = m.Select(m.Is(m.Abs(x), 1), m.F(1), power);
  power = m.Select(b.CreateFCmpUNO(x, y), m.F(NAN), power);
  const Whole whole = WholeOf(m, y);
  // A negative base to a power that is no whole number; zero and infinity have one.
  Value* negative = b.CreateICmpSLT(m.Bits(x), m.I(0));
  Value* finite = b.CreateAnd(m.Less(x, m.F(0)), b.CreateFCmpONE(x, m.F(-INFINITY)));
  Value* undefined = b.CreateAnd(finite, b.CreateNot(whole.is_whole));
  power = m.Select(b.CreateAnd(negative, whole.is_odd), b.CreateFNeg(power), power);
  power = m.Select(undefined, m.F(NAN), power);
  return m.Select(b.CreateOr(m.Is(x, 1), m.Is(y, 0)), m.F(1), power);
}

// The largest whole number by which powers of f32 are products of doubles: their errors stay some
// units of those, and they neither overflow nor vanish where f32 does not.
constexpr int kMostFactors = 7;

// x^n for n > 0, by repeated squaring.
Value* Product(const StraightLine& m, Value* x, int n) {
  Value* product = nullptr;
  for (; n > 0; n /= 2) {
    if (n % 2 == 1) product = product == nullptr ? x : m.Mul(product, x);
    if (n > 1) x = m.Mul(x, x);
  }
  return product;
}

// Of minus zero zero, of minus infinity infinity.
Value* PowerOfHalf(const StraightLine& m, Value* x) {
  Value* root = m.Sqrt(m.Add(x, m.F(0)));
  return m.Select(m.Is(x, -INFINITY), m.F(INFINITY), root);
}

}  // namespace

Value* EmitPowOfConstant(llvm::IRBuilder<>& b, Value* x, double y) {
  const StraightLine m(b, x);
  if (y == 0) return m.F(1);
  if (y == 1) return x;
  if (y == 2) return m.Mul(x, x);
  if (y == -1) return m.Div(m.F(1), x);
  if (y == 0.5) return PowerOfHalf(m, x);
  const bool is_double = x->getType()->getScalarType()->isDoubleTy();
  const bool is_few = y == std::trunc(y) && std::abs(y) <= kMostFactors;
  if (is_double || (!is_few && y != -0.5)) return nullptr;
  Value* wide = b.CreateFPExt(x, x->getType()->getWithNewType(b.getDoubleTy()));
  const StraightLine d(b, wide);
  Value* power = is_few ? Product(d, wide, static_cast<int>(std::abs(y))) : PowerOfHalf(d, wide);
  if (y < 0) power = d.Div(d.F(1), power);
  return b.CreateFPTrunc(power, x->getType());
}

Value* EmitPow64(llvm::IRBuilder<>& b, Value* x, Value* y) {
  const Pairs m(b, x);
  return WithSign(m, x, y, PowerOfSize(m, m.Abs(x), y));
}

Value* EmitPowForF32(llvm::IRBuilder<>& b, Value* x, Value* y) {
  const StraightLine m(b, x);
  return WithSign(m, x, y, EmitExp64(b, m.Mul(y, EmitLog64(b, m.Abs(x)))));
}

}  // namespace lathe::codegen
