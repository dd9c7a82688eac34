#include "src/codegen/llvm/trigonometry.h"

#include <array>
#include <cmath>
#include <numbers>
#include <span>

namespace lathe::codegen {
namespace {

using llvm::Value;

// The binary digits of 2/pi behind the point, after 64 zeros.
constexpr std::array<uint64_t, 5> kTwoOverPi = {0, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0,
                                                0xdb6295993c439041, 0xfe5163abdebbc561};

class Angle {
 public:
  Angle(llvm::IRBuilder<>& b, Value* x)
      : b_(b),
        x_(x),
        long_(x->getType()->getWithNewType(b.getInt64Ty())),
        double_(x->getType()->getWithNewType(b.getDoubleTy())) {
    Reduce();
  }

  Value* Sin() {
    Value* y = b_.CreateSelect(IsOdd(), CosOfRest(), SinOfRest());
    y = Negate(y, Bit(quadrant_, 1));
    return Finish(b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, F(1), Wide(x_)), y);
  }
  Value* Cos() {
    Value* y = b_.CreateSelect(IsOdd(), SinOfRest(), CosOfRest());
    return Finish(nullptr, Negate(y, Bit(b_.CreateAdd(quadrant_, I(1)), 1)));
  }
  Value* Tan() {
    Value *s = SinOfRest(), *c = CosOfRest();
    Value* y = b_.CreateFDiv(b_.CreateSelect(IsOdd(), c, s), b_.CreateSelect(IsOdd(), s, c));
    y = Negate(y, IsOdd());
    return Finish(b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, F(1), Wide(x_)), y);
  }

 private:
  Value* I(uint64_t value) const { return llvm::ConstantInt::get(long_, value); }
  Value* F(double value) const { return llvm::ConstantFP::get(double_, value); }
  Value* Wide(Value* x) const { return b_.CreateFPExt(x, double_); }
  Value* Bit(Value* x, unsigned bit) const {
    return b_.CreateICmpNE(b_.CreateAnd(x, I(uint64_t{1} << bit)), I(0));
  }
  Value* IsOdd() const { return Bit(quadrant_, 0); }
  Value* Negate(Value* y, Value* condition) const {
    return b_.CreateSelect(condition, b_.CreateFNeg(y), y);
  }

  // |x| = m 2^q with m of 24 bits, so |x| 2/pi mod 4 is m times the digits from number q - 1 on: 64
  // of them, the first worth 2, and 32 more. What is left is exact to 2^-62.
  void Reduce() {
    Value* bits = b_.CreateBitCast(x_, x_->getType()->getWithNewType(b_.getInt32Ty()));
    bits = b_.CreateAnd(b_.CreateZExt(bits, long_), I(0x7fffffff));
    size_ = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x_);
    Value* exponent = b_.CreateLShr(bits, I(23));
    Value* m = b_.CreateOr(b_.CreateAnd(bits, I(0x7fffff)), I(0x800000));
    Value* first =
        b_.CreateSub(b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, exponent, I(88)), I(88));
    Value *high = Digits(first, 0), *low = b_.CreateLShr(Digits(first, 1), I(32));
    Value* turns = b_.CreateAdd(b_.CreateMul(m, high), b_.CreateLShr(b_.CreateMul(m, low), I(32)));
    Value* quadrant = b_.CreateLShr(b_.CreateAdd(turns, I(uint64_t{1} << 61)), I(62));
    Value* rest = b_.CreateSIToFP(b_.CreateSub(turns, b_.CreateShl(quadrant, I(62))), double_);
    rest = b_.CreateFMul(rest, F(std::numbers::pi / 2 * 0x1p-62));
    Value* is_small = b_.CreateFCmpOLE(size_, llvm::ConstantFP::get(x_->getType(), 0.785));
    quadrant_ = b_.CreateSelect(is_small, I(0), quadrant);
    rest_ = b_.CreateSelect(is_small, Wide(size_), rest);
    square_ = b_.CreateFMul(rest_, rest_);
  }

  // 64 digits from number `first` + 64 `word` on.
  Value* Digits(Value* first, size_t word) const {
    Value* number = b_.CreateLShr(first, I(6));
    const auto pick = [&](size_t w) {
      Value* digits = I(kTwoOverPi[w + 2]);
      for (size_t n = 2; n-- > 0;) {
        digits = b_.CreateSelect(b_.CreateICmpEQ(number, I(n)), I(kTwoOverPi[w + n]), digits);
      }
      return digits;
    };
    return b_.CreateIntrinsic(llvm::Intrinsic::fshl, {long_},
                              {pick(word), pick(word + 1), b_.CreateAnd(first, I(63))});
  }

  Value* Series(std::span<const double> c) const {
    Value* sum = F(c.back());
    for (size_t i = c.size() - 1; i-- > 0;) {
      sum = b_.CreateIntrinsic(llvm::Intrinsic::fmuladd, {double_}, {sum, square_, F(c[i])});
    }
    return sum;
  }
  Value* SinOfRest() const {
    const double c[] = {1, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800};
    return b_.CreateFMul(rest_, Series(c));
  }
  Value* CosOfRest() const {
    const double c[] = {1,           -1.0 / 2,       1.0 / 24,       -1.0 / 720,
                        1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600};
    return Series(c);
  }

  Value* Finish(Value* sign, Value* y) const {
    if (sign != nullptr) y = b_.CreateFMul(sign, y);
    llvm::Type* narrow = x_->getType();
    Value* finite = b_.CreateFCmpOLT(size_, llvm::ConstantFP::get(narrow, INFINITY));
    return b_.CreateSelect(finite, b_.CreateFPTrunc(y, narrow), llvm::ConstantFP::get(narrow, NAN));
  }

  llvm::IRBuilder<>& b_;
  Value* x_;
  llvm::Type *long_, *double_;
  Value *size_ = nullptr, *quadrant_ = nullptr, *rest_ = nullptr, *square_ = nullptr;
};

}  // namespace

Value* EmitSin(llvm::IRBuilder<>& b, Value* x) { return Angle(b, x).Sin(); }
Value* EmitCos(llvm::IRBuilder<>& b, Value* x) { return Angle(b, x).Cos(); }
Value* EmitTan(llvm::IRBuilder<>& b, Value* x) { return Angle(b, x).Tan(); }

}  // namespace lathe::codegen
