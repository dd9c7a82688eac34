#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "src/codegen/llvm/trigonometry.h"

namespace lathe::codegen {
namespace {

using llvm::Value;

// The binary digits of 2/pi behind the point, after 64 zeros.
constexpr std::array<uint64_t, 20> kTwoOverPi64 = {0,
                                                   0xa2f9836e4e441529,
                                                   0xfc2757d1f534ddc0,
                                                   0xdb6295993c439041,
                                                   0xfe5163abdebbc561,
                                                   0xb7246e3a424dd2e0,
                                                   0x06492eea09d1921c,
                                                   0xfe1deb1cb129a73e,
                                                   0xe88235f52ebb4484,
                                                   0xe99c7026b45f7e41,
                                                   0x3991d639835339f4,
                                                   0x9c845f8bbdf9283b,
                                                   0x1ff897ffde05980f,
                                                   0xef2f118b5a0a6d1f,
                                                   0x6d367ecf27cb09b7,
                                                   0x4f463f669e5fea2d,
                                                   0x7527bac7ebe5f17b,
                                                   0x3d0739f78a5292ea,
                                                   0x6bfb5fb11f8d5d08,
                                                   0x56033046fc7b6bab};

// pi/2 is kHalfPi64 + kHalfPi64Rest; the digits of kHalfPi64 are in two parts, so that products
// with 27 digits are exact.
constexpr double kHalfPi64 = std::numbers::pi / 2, kHalfPi64Rest = 0x1.1a62633145c07p-54;
constexpr double kHalfPi64High = 0x1.921fb5p0, kHalfPi64Low = kHalfPi64 - kHalfPi64High;

// An angle less multiples of pi/2, in two parts of which the second is less than what the first
// rounds.
class Angle64 {
 public:
  Angle64(llvm::IRBuilder<>& b, Value* x)
      : b_(b), x_(x), double_(x->getType()), long_(double_->getWithNewType(b.getInt64Ty())) {
    Reduce();
  }

  Value* Sin() {
    Value* y = b_.CreateSelect(IsOdd(), CosOfRest(), SinOfRest());
    return Finish(Signed(Negate(y, Bit(quadrant_, 1))));
  }
  Value* Cos() {
    Value* y = b_.CreateSelect(IsOdd(), SinOfRest(), CosOfRest());
    return Finish(Negate(y, Bit(b_.CreateAdd(quadrant_, I(1)), 1)));
  }
  Value* Tan() {
    Value *s = SinOfRest(), *c = CosOfRest();
    Value* y = b_.CreateFDiv(b_.CreateSelect(IsOdd(), c, s), b_.CreateSelect(IsOdd(), s, c));
    return Finish(Signed(Negate(y, IsOdd())));
  }

 private:
  struct Sum {
    Value *high, *low;
  };

  Value* I(uint64_t value) const { return llvm::ConstantInt::get(long_, value); }
  Value* F(double value) const { return llvm::ConstantFP::get(double_, value); }
  Value* Add(Value* x, Value* y) const { return b_.CreateFAdd(x, y); }
  Value* Sub(Value* x, Value* y) const { return b_.CreateFSub(x, y); }
  Value* Mul(Value* x, Value* y) const { return b_.CreateFMul(x, y); }
  Value* Bits(Value* x) const { return b_.CreateBitCast(x, long_); }
  Value* FromBits(Value* x) const { return b_.CreateBitCast(x, double_); }
  Value* High(Value* x) const { return b_.CreateLShr(x, I(32)); }
  Value* Low(Value* x) const { return b_.CreateAnd(x, I(0xffffffff)); }
  Value* Bit(Value* x, unsigned bit) const {
    return b_.CreateICmpNE(b_.CreateAnd(x, I(uint64_t{1} << bit)), I(0));
  }
  Value* IsOdd() const { return Bit(quadrant_, 0); }
  Value* Negate(Value* y, Value* condition) const {
    return b_.CreateSelect(condition, b_.CreateFNeg(y), y);
  }
  // Of an odd function of |x|.
  Value* Signed(Value* y) const {
    return Mul(b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, F(1), x_), y);
  }
  // x + y and what that rounds away, of |x| that is not less than |y|, or 0.
  Sum TwoSum(Value* x, Value* y) const {
    Value* sum = Add(x, y);
    return {sum, Sub(y, Sub(sum, x))};
  }
  // A whole number below 2^32 times 2^exponent.
  Value* Scaled(Value* x, int exponent) const {
    Value* number = Sub(FromBits(b_.CreateOr(x, I(0x4330000000000000))), F(0x1p52));
    return Mul(number, F(std::ldexp(1.0, exponent)));
  }
  // The upper 64 bits of the product with a number below 2^53.
  Value* UpperProduct(Value* x, Value* m) const {
    Value* low = b_.CreateMul(Low(x), Low(m));
    Value* cross = b_.CreateMul(Low(x), High(m));
    Value* other = b_.CreateMul(High(x), Low(m));
    Value* middle = b_.CreateAdd(b_.CreateAdd(High(low), Low(other)), cross);
    Value* high = b_.CreateMul(High(x), High(m));
    return b_.CreateAdd(b_.CreateAdd(high, High(other)), High(middle));
  }

  // |x| = m 2^q with m of 53 bits, so |x| 2/pi mod 4 is m times the digits from number q - 1 on,
  // the first of which is worth 2. Of 192 of them at least 128 are left behind the 62 zeros that
  // the multiple of pi/2 next to a double leaves at most (Payne and Hanek, 1983).
  void Reduce() {
    size_ = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x_);
    Value* exponent = b_.CreateLShr(Bits(size_), I(52));
    Value* m = b_.CreateOr(b_.CreateAnd(Bits(size_), I(0xfffffffffffff)), I(0x10000000000000));
    Value* first =
        b_.CreateSub(b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, exponent, I(1013)), I(1013));
    const std::array<Value*, 3> digits = Digits(first);
    std::array<Value*, 3> turns;
    turns[2] = b_.CreateMul(m, digits[2]);
    Value* carried = UpperProduct(digits[2], m);
    turns[1] = b_.CreateAdd(b_.CreateMul(m, digits[1]), carried);
    Value* carry = b_.CreateZExt(b_.CreateICmpULT(turns[1], carried), long_);
    turns[0] =
        b_.CreateAdd(b_.CreateAdd(b_.CreateMul(m, digits[0]), UpperProduct(digits[1], m)), carry);
    Value* quadrant = b_.CreateLShr(b_.CreateAdd(turns[0], I(uint64_t{1} << 61)), I(62));
    turns[0] = b_.CreateSub(turns[0], b_.CreateShl(quadrant, I(62)));
    const Sum rest = TimesHalfPi(turns);
    Value* is_small = b_.CreateFCmpOLE(size_, F(0.785));
    quadrant_ = b_.CreateSelect(is_small, I(0), quadrant);
    rest_ = {b_.CreateSelect(is_small, size_, rest.high),
             b_.CreateSelect(is_small, F(0), rest.low)};
    square_ = Mul(rest_.high, rest_.high);
  }

  // 192 digits from number `first` on.
  std::array<Value*, 3> Digits(Value* first) const {
    std::vector<Value*> words;
    for (const uint64_t word : kTwoOverPi64) words.push_back(I(word));
    for (unsigned shift = 16; shift > 0; shift /= 2) {
      Value* far = Bit(first, 6 + static_cast<unsigned>(std::countr_zero(shift)));
      const size_t needed = std::min<size_t>(3 + shift, words.size());
      for (size_t i = 0; i < needed; ++i) {
        Value* moved = i + shift < words.size() ? words[i + shift] : I(0);
        words[i] = b_.CreateSelect(far, moved, words[i]);
      }
      words.resize(needed);
    }
    Value* bits = b_.CreateAnd(first, I(63));
    std::array<Value*, 3> digits;
    for (size_t i = 0; i < 3; ++i) {
      digits[i] =
          b_.CreateIntrinsic(llvm::Intrinsic::fshl, {long_}, {words[i], words[i + 1], bits});
    }
    return digits;
  }

  // Of a number of quarter turns with 62 + 128 bits behind the point.
  Sum TimesHalfPi(const std::array<Value*, 3>& turns) const {
    Value* sign = b_.CreateAShr(turns[0], I(63));
    std::array<Value*, 3> size;
    for (size_t i = 0; i < 3; ++i) size[i] = b_.CreateXor(turns[i], sign);
    const Sum front = TwoSum(Scaled(High(size[0]), -30), Scaled(Low(size[0]), -62));
    const Sum back = TwoSum(Scaled(High(size[1]), -94), Scaled(Low(size[1]), -126));
    const Sum both = TwoSum(front.high, back.high);
    Value* last = Add(back.low, Scaled(High(size[2]), -158));
    Value* low = Add(both.low, Add(front.low, last));
    Value* upper = FromBits(b_.CreateAnd(Bits(both.high), I(~uint64_t{0x7ffffff})));
    Value* lower = Sub(both.high, upper);
    Value* product = Mul(both.high, F(kHalfPi64));
    Value* lost = Sub(Mul(upper, F(kHalfPi64High)), product);
    lost = Add(lost, Mul(upper, F(kHalfPi64Low)));
    lost = Add(lost, Mul(lower, F(kHalfPi64High)));
    lost = Add(lost, Mul(lower, F(kHalfPi64Low)));
    lost = Add(lost, Add(Mul(both.high, F(kHalfPi64Rest)), Mul(low, F(kHalfPi64))));
    const Sum result = TwoSum(product, lost);
    Value* flip = b_.CreateAnd(sign, I(uint64_t{1} << 63));
    return {FromBits(b_.CreateXor(Bits(result.high), flip)),
            FromBits(b_.CreateXor(Bits(result.low), flip))};
  }

  Value* Series(std::span<const double> c) const {
    Value* sum = F(c.back());
    for (size_t i = c.size() - 1; i-- > 0;) {
      sum = b_.CreateIntrinsic(llvm::Intrinsic::fmuladd, {double_}, {sum, square_, F(c[i])});
    }
    return sum;
  }
  // 1 / first!, 1 / (first + 2)!, ... with alternating signs.
  static std::vector<double> Factorials(int first, double sign) {
    std::vector<double> c;
    double factorial = 1;
    for (int i = 2; i <= first; ++i) factorial *= i;
    for (int i = first; i < 20; i += 2) {
      c.push_back(sign / factorial);
      factorial *= (i + 1) * (i + 2);
      sign = -sign;
    }
    return c;
  }
  // sin (r + e) = r + (r^3 s(r^2) + e (1 - r^2 / 2)).
  Value* SinOfRest() const {
    Value* cube = Mul(Mul(rest_.high, square_), Series(Factorials(3, -1)));
    Value* half = Mul(square_, F(0.5));
    return Add(rest_.high, Add(cube, Mul(rest_.low, Sub(F(1), half))));
  }
  // cos (r + e) = 1 - r^2 / 2 + (r^4 c(r^2) - r e), with what the first difference rounds away.
  Value* CosOfRest() const {
    Value* half = Mul(square_, F(0.5));
    Value* front = Sub(F(1), half);
    Value* lost = Sub(Sub(F(1), front), half);
    Value* tail = Mul(Mul(square_, square_), Series(Factorials(4, 1)));
    return Add(front, Add(lost, Sub(tail, Mul(rest_.high, rest_.low))));
  }

  Value* Finish(Value* y) const {
    return b_.CreateSelect(b_.CreateFCmpOLT(size_, F(INFINITY)), y, F(NAN));
  }

  llvm::IRBuilder<>& b_;
  Value* x_;
  llvm::Type *double_, *long_;
  Value *size_ = nullptr, *quadrant_ = nullptr, *square_ = nullptr;
  Sum rest_{};
};

}  // namespace

Value* EmitSin64(llvm::IRBuilder<>& b, Value* x) { return Angle64(b, x).Sin(); }
Value* EmitCos64(llvm::IRBuilder<>& b, Value* x) { return Angle64(b, x).Cos(); }
Value* EmitTan64(llvm::IRBuilder<>& b, Value* x) { return Angle64(b, x).Tan(); }

}  // namespace lathe::codegen
