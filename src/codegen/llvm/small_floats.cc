#include "src/codegen/llvm/small_floats.h"

#include <bit>

#include "src/codegen/llvm/halves.h"

namespace lathe::codegen {
namespace {

using llvm::Value;
using NaN = FloatFormat::NaN;

constexpr uint32_t kInfinity = 0x7f800000, kQuietNaN = 0x7fc00000;
constexpr uint32_t kBias = 127, kMantissa = 23;  // of f32

// What an encoding with a sign looks like in bits.
struct Encoding {
  explicit Encoding(const FloatFormat& f)
      : mantissa(static_cast<uint32_t>(f.mantissa_bits)),
        bias(static_cast<uint32_t>(f.bias)),
        sign(1U << (f.exponent_bits + f.mantissa_bits)),
        has_infinity(f.has_infinity),
        nan_kind(f.nan) {
    const uint32_t top_exponent = ((1U << f.exponent_bits) - 1) << f.mantissa_bits;
    infinity = top_exponent;
    largest = f.nan == NaN::kIeee ? top_exponent - 1 : f.nan == NaN::kAllOnes ? sign - 2 : sign - 1;
    nan = f.nan == NaN::kIeee           ? top_exponent | 1U << (mantissa - 1)
          : f.nan == NaN::kAllOnes      ? sign - 1
          : f.nan == NaN::kNegativeZero ? sign
                                        : 0;
  }

  uint32_t mantissa, bias, sign;
  uint32_t infinity, largest, nan;  // nan: with whichever sign
  bool has_infinity;
  NaN nan_kind;
};

const FloatFormat& FormatOf(ElementType element) {
  switch (element) {
    case ElementType::kF8E4M3FN:
      return F8E4M3FN::kFormat;
    case ElementType::kF8E4M3FNUZ:
      return F8E4M3FNUZ::kFormat;
    case ElementType::kF8E5M2:
      return F8E5M2::kFormat;
    case ElementType::kF8E5M2FNUZ:
      return F8E5M2FNUZ::kFormat;
    case ElementType::kF8E8M0:
      return F8E8M0::kFormat;
    default:
      return F4E2M1::kFormat;
  }
}

class Converter {
 public:
  Converter(llvm::IRBuilder<>& b, const Value* like)
      : b_(b),
        byte_(like->getType()->getWithNewType(b.getInt8Ty())),
        int_(like->getType()->getWithNewType(b.getInt32Ty())),
        float_(like->getType()->getWithNewType(b.getFloatTy())) {}

  Value* Decode(const Encoding& e, Value* x) const;
  Value* Encode(const Encoding& e, Value* x, bool saturate) const;
  Value* DecodePower(Value* x) const;
  Value* EncodePower(Value* x, const SmallFloatRounding& rounding) const;

 private:
  Value* I(uint32_t value) const { return llvm::ConstantInt::get(int_, value); }
  Value* Of(Value* x) const { return b_.CreateBitCast(x, int_); }
  Value* Float(Value* bits) const { return b_.CreateBitCast(bits, float_); }
  Value* Or(Value* condition, uint32_t value, Value* otherwise) const {
    return b_.CreateSelect(condition, I(value), otherwise);
  }
  Value* Rounded(const Encoding& e, Value* size) const;
  Value* RoundedPower(Value* size, PowerRounding rounding) const;

  llvm::IRBuilder<>& b_;
  llvm::Type *byte_, *int_, *float_;
};

Value* Converter::Decode(const Encoding& e, Value* x) const {
  Value* bits = b_.CreateZExt(x, int_);
  Value* size = b_.CreateAnd(bits, I(e.sign - 1));
  Value* moved = b_.CreateShl(size, I(kMantissa - e.mantissa));
  Value* normal = b_.CreateAdd(moved, I((kBias - e.bias) << kMantissa));
  // A number of quanta is exact in f32, and so is its product with the quantum.
  Value* quantum = Float(I((kBias + 1 - e.bias - e.mantissa) << kMantissa));
  Value* small = b_.CreateFMul(b_.CreateUIToFP(size, float_), quantum);
  Value* result = b_.CreateSelect(b_.CreateICmpULT(size, I(1U << e.mantissa)), Of(small), normal);
  if (e.has_infinity) result = Or(b_.CreateICmpEQ(size, I(e.infinity)), kInfinity, result);
  if (e.nan_kind == NaN::kIeee) {
    result = Or(b_.CreateICmpUGT(size, I(e.infinity)), kQuietNaN, result);
  } else if (e.nan_kind == NaN::kAllOnes) {
    result = Or(b_.CreateICmpEQ(size, I(e.nan)), kQuietNaN, result);
  } else if (e.nan_kind == NaN::kNegativeZero) {
    result = Or(b_.CreateICmpEQ(bits, I(e.nan)), kQuietNaN, result);
  }
  Value* sign = b_.CreateICmpNE(b_.CreateAnd(bits, I(e.sign)), I(0));
  return Float(b_.CreateOr(result, b_.CreateSelect(sign, I(0x80000000), I(0))));
}

// The magnitude with one rounding to nearest even, as if the exponent had no upper limit.
Value* Converter::Rounded(const Encoding& e, Value* size) const {
  // Of a subnormal, adding a number whose last bit is worth the quantum leaves the quanta there.
  Value* quanta = I((kBias + 1 - e.bias - e.mantissa + kMantissa) << kMantissa);
  Value* small = b_.CreateSub(Of(b_.CreateFAdd(Float(size), Float(quanta))), quanta);
  const uint32_t cut = kMantissa - e.mantissa;
  Value* odd = b_.CreateAnd(b_.CreateLShr(size, I(cut)), I(1));
  const uint32_t rebiased = (1U << (cut - 1)) - 1 - ((kBias - e.bias) << kMantissa);
  Value* normal = b_.CreateLShr(b_.CreateAdd(b_.CreateAdd(size, I(rebiased)), odd), I(cut));
  Value* is_small = b_.CreateICmpULT(size, I((kBias + 1 - e.bias) << kMantissa));
  return b_.CreateSelect(is_small, small, normal);
}

Value* Converter::Encode(const Encoding& e, Value* x, bool saturate) const {
  Value* bits = Of(x);
  Value* size = b_.CreateAnd(bits, I(0x7fffffff));
  Value* is_nan = b_.CreateICmpUGT(size, I(kInfinity));
  const uint32_t cut = 31 - static_cast<uint32_t>(std::countr_zero(e.sign));
  Value* sign = b_.CreateAnd(b_.CreateLShr(bits, I(cut)), I(e.sign));
  if (e.nan_kind == NaN::kNone) {  // NaN is a zero of the other sign
    sign = b_.CreateXor(sign, b_.CreateSelect(is_nan, I(e.sign), I(0)));
  }
  Value* result = Rounded(e, size);
  const bool clamps = saturate || e.nan_kind == NaN::kNone;
  const uint32_t beyond = clamps ? e.largest : e.has_infinity ? e.infinity : e.nan;
  result = Or(b_.CreateICmpUGT(result, I(e.largest)), beyond, result);
  result = Or(is_nan, e.nan, result);
  if (e.nan_kind == NaN::kNegativeZero) sign = Or(b_.CreateICmpEQ(result, I(0)), 0, sign);
  return b_.CreateTrunc(b_.CreateOr(result, sign), byte_);
}

// The exponent alone. 2^-127 is subnormal in f32.
Value* Converter::DecodePower(Value* x) const {
  Value* power = b_.CreateZExt(x, int_);
  Value* bits = b_.CreateShl(power, I(kMantissa));
  bits = Or(b_.CreateICmpEQ(power, I(0)), 1U << (kMantissa - 1), bits);
  return Float(Or(b_.CreateICmpEQ(power, I(255)), kQuietNaN, bits));
}

// Of a positive magnitude; 255 and more is too large.
Value* Converter::RoundedPower(Value* size, PowerRounding rounding) const {
  constexpr uint32_t kLeast = 1U << (kMantissa - 1);  // 2^-127
  const bool up = rounding == PowerRounding::kUp, down = rounding == PowerRounding::kDown;
  const uint32_t carry = up ? (1U << kMantissa) - 1 : down ? 0 : 1U << (kMantissa - 1);
  Value* normal = b_.CreateLShr(b_.CreateAdd(size, I(carry)), I(kMantissa));
  const uint32_t next = up ? kLeast + 1 : down ? 1U << kMantissa : kLeast + kLeast / 2;
  Value* small = b_.CreateZExt(b_.CreateICmpUGE(size, I(next)), int_);
  return b_.CreateSelect(b_.CreateICmpULT(size, I(1U << kMantissa)), small, normal);
}

Value* Converter::EncodePower(Value* x, const SmallFloatRounding& rounding) const {
  constexpr uint32_t kNan = 255;
  Value* bits = Of(x);
  Value* size = b_.CreateAnd(bits, I(0x7fffffff));
  Value* power = RoundedPower(size, rounding.power);
  power = Or(b_.CreateICmpUGE(power, I(kNan)), rounding.saturate ? kNan - 1 : kNan, power);
  power = Or(b_.CreateICmpUGT(size, I(kInfinity)), kNan, power);
  // 0 and what has a sign: both are outside of [1, infinity].
  Value* outside = b_.CreateICmpUGT(b_.CreateSub(bits, I(1)), I(kInfinity - 1));
  if (!rounding.saturate) power = Or(outside, kNan, power);
  return b_.CreateTrunc(power, byte_);
}

}  // namespace

namespace {

// Towards an f32 that rounds alike. What is beyond the largest f32 is infinite: rounded to odd it
// would be next to 2^128, which a power that is rounded down falls short of.
Value* Narrowed(llvm::IRBuilder<>& b, Value* x) {
  if (!x->getType()->getScalarType()->isDoubleTy()) return x;
  Value* odd = RoundedToOdd(b, x);
  Value* size = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  Value* beyond = b.CreateFCmpOGE(size, llvm::ConstantFP::get(x->getType(), 0x1p128));
  return b.CreateSelect(beyond, b.CreateFPTrunc(x, odd->getType()), odd);
}

}  // namespace

bool IsSmallFloat(ElementType element) { return IsFloat(element) && BitWidth(element) <= 8; }

Value* FromSmallFloat(llvm::IRBuilder<>& b, ElementType element, Value* x) {
  const Converter converter(b, x);
  if (element == ElementType::kF8E8M0) return converter.DecodePower(x);
  return converter.Decode(Encoding(FormatOf(element)), x);
}

Value* ToSmallFloat(llvm::IRBuilder<>& b, ElementType element, Value* x,
                    const SmallFloatRounding& rounding) {
  x = Narrowed(b, x);
  const Converter converter(b, x);
  if (element == ElementType::kF8E8M0) return converter.EncodePower(x, rounding);
  return converter.Encode(Encoding(FormatOf(element)), x, rounding.saturate);
}

}  // namespace lathe::codegen
