#include "src/codegen/llvm/math.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <cmath>

#include "src/codegen/llvm/straight_line.h"

// Polynomials were fitted for the least largest error on their interval.
namespace lathe::codegen {
namespace {

using llvm::Value;

// ln 2 in two parts: the first has zeros at its end, so that n * kLn2High is exact.
constexpr double kLn2High = 0.693145751953125;
constexpr double kLn2Low = 1.42860682030941723212e-6;
constexpr double kRound = 12582912.0;  // 1.5 * 2^23: adding it leaves an integer in the low bits
constexpr int kCurrentRounding = 4;    // of an instruction that may round otherwise

// e^x = 2^n e^r with |r| <= ln 2 / 2: e^r - 1, n as a float, and what has n in its low bits.
struct Power {
  Value *fraction, *exponent, *shifted;
};

Power SplitExp(const StraightLine& m, Value* x) {
  Value* shifted = m.MulAdd(x, m.F(1.4426950408889634), m.F(kRound));
  Value* exponent = m.Sub(shifted, m.F(kRound));
  Value* r = m.MulAdd(exponent, m.F(-kLn2High), x);
  r = m.MulAdd(exponent, m.F(-kLn2Low), r);
  const double c[] = {4.999999404e-01, 1.666651517e-01, 4.166845605e-02, 8.369418792e-03,
                      1.381314243e-03};
  Value* p = m.MulAdd(m.Mul(r, r), m.Poly(r, c), r);
  return {p, exponent, shifted};
}

// 2^n where that is a normal number. Shifting drops the high bits of kRound.
Value* ScaleOf(const StraightLine& m, const Power& power) {
  return m.PowerOfTwo(m.Bits(power.shifted));
}

// e^x of |x| < 87: the result is a normal number.
Value* ExpOfModerate(const StraightLine& m, Value* x) {
  const Power power = SplitExp(m, x);
  return m.Mul(m.Add(power.fraction, m.F(1)), ScaleOf(m, power));
}

bool CanScale(const Target& target, Value* x) {
  const auto* type = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  return type != nullptr && type->getNumElements() == 16 &&
         std::ranges::count(target.processor_flags, "avx512f") > 0;
}

// e^x of x <= 89; `is_negative`: where the result is less than 1. It is multiplied by 2^n in two
// steps, the second of which may leave the normal numbers.
Value* Exp(const StraightLine& m, const Target& target, Value* x, Value* is_negative) {
  constexpr int kStep = 64;
  llvm::IRBuilder<>& b = m.b();
  Value* is_zero = m.Less(x, m.F(-104));
  if (CanScale(target, x)) {  // one instruction does, and rounds once
    const Power power = SplitExp(m, x);
    Value* lanes = b.CreateBitCast(b.CreateNot(is_zero), b.getInt16Ty());
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                             {m.Add(power.fraction, m.F(1)), power.exponent, m.F(0), lanes,
                              b.getInt32(kCurrentRounding)});
  }
  const Power power = SplitExp(m, m.Select(is_zero, m.F(-104), x));
  Value* mantissa = m.Add(power.fraction, m.F(1));
  Value* shift = m.Select(is_negative, m.I(kStep), m.I(-kStep));
  Value* rest = m.Select(is_negative, m.F(0x1p-64), m.F(0x1p64));
  Value* scale = m.PowerOfTwo(b.CreateAdd(m.Bits(power.shifted), shift));
  return m.Mul(m.Mul(mantissa, scale), m.Select(is_zero, m.F(0), rest));
}

}  // namespace

// Where the result is 0, no product on the way is less than a normal number, which takes some
// processors many times as long.
Value* EmitExp(llvm::IRBuilder<>& b, const Target& target, Value* x) {
  const StraightLine m(b, x);
  return Exp(m, target, m.Select(b.CreateFCmpOGT(x, m.F(89)), m.F(89), x), m.Less(x, m.F(0)));
}

// log x = e ln 2 + log(1 + f) with 1 + f in [sqrt(1/2), sqrt 2).
Value* EmitLog(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  Value* small = b.CreateFCmpOLT(x, m.F(1.17549435e-38));
  Value* scaled = m.Select(small, m.Mul(x, m.F(8388608.0)), x);
  Value* bits = b.CreateSub(m.Bits(scaled), m.I(0x3f3504f3));  // sqrt(1/2)
  Value* e = b.CreateAShr(bits, m.I(23));
  Value* mantissa = m.FromBits(b.CreateAdd(b.CreateAnd(bits, m.I(0x007fffff)), m.I(0x3f3504f3)));
  Value* e_float = b.CreateSIToFP(e, x->getType());
  e_float = m.Sub(e_float, m.Select(small, m.F(23), m.F(0)));
  Value* f = m.Sub(mantissa, m.F(1));
  const double c[] = {3.333333135e-01, -2.500087917e-01, 2.000131905e-01, -1.662118882e-01,
                      1.419780254e-01, -1.317856014e-01, 1.280032694e-01, -7.633516937e-02};
  Value* square = m.Mul(f, f);
  Value* tail = m.MulAdd(m.Mul(square, f), m.Poly(f, c), m.Mul(e_float, m.F(kLn2Low)));
  tail = m.MulAdd(square, m.F(-0.5), tail);
  Value* result = m.MulAdd(e_float, m.F(kLn2High), m.Add(f, tail));
  result = m.Select(b.CreateFCmpOEQ(x, m.F(INFINITY)), x, result);
  result = m.Select(b.CreateFCmpOEQ(x, m.F(0)), m.F(-INFINITY), result);
  return m.Select(b.CreateFCmpOGE(x, m.F(0)), result, m.F(NAN));
}

// t / (t + 2) with t = e^2|x| - 1 = 2^n (e^r - 1) + (2^n - 1), which is precise near 0, too.
Value* EmitTanh(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  Value* size = m.Abs(x);
  Value* bounded = m.Select(b.CreateFCmpOGT(size, m.F(10)), m.F(10), size);
  const Power power = SplitExp(m, m.Add(bounded, bounded));
  Value* scale = ScaleOf(m, power);
  Value* t = m.MulAdd(power.fraction, scale, m.Sub(scale, m.F(1)));
  return m.WithSign(m.Div(t, m.Add(t, m.F(2))), x);
}

// Below 1 a polynomial; above, 1 - e^R(x) where R approximates log erfc.
Value* EmitErf(llvm::IRBuilder<>& b, Value* x) {
  const StraightLine m(b, x);
  Value* size = m.Abs(x);
  Value* bounded = m.Select(b.CreateFCmpOGT(size, m.F(4)), m.F(4), size);
  const double r[] = {2.043598797e-04,  -1.129661202e+00, -6.330395937e-01,
                      -1.086389944e-01, 2.537355572e-02,  -4.282382783e-03,
                      4.637880193e-04,  -2.531480823e-05, 2.513266111e-07};
  Value* large = m.Sub(m.F(1), ExpOfModerate(m, m.Poly(bounded, r)));
  const double c[] = {1.128379107e+00, -3.761262596e-01, 1.128358543e-01, -2.685381100e-02,
                      5.188327283e-03, -8.010191959e-04, 7.853856368e-05};
  Value* small = m.Mul(x, m.Poly(m.Mul(x, x), c));
  return m.Select(b.CreateFCmpOLT(size, m.F(1)), small, m.WithSign(large, x));
}

Value* EmitSigmoid(llvm::IRBuilder<>& b, const Target& target, Value* x) {
  const StraightLine m(b, x);
  Value* e = Exp(m, target, b.CreateFNeg(m.Abs(x)), m.b().getTrue());
  Value* above = m.Select(b.CreateFCmpOLT(x, m.F(0)), e, m.F(1));
  return m.Div(above, m.Add(m.F(1), e));
}

}  // namespace lathe::codegen
