#pragma once

#include <llvm/IR/IRBuilder.h>

#include <span>

namespace lathe::codegen {

/// Writes arithmetic on floating-point scalars or vectors of one type. NaN is nowhere lost.
class StraightLine {
 public:
  /// Of the type of `like`.
  StraightLine(llvm::IRBuilder<>& b, llvm::Value* like)
      : b_(b),
        type_(like->getType()),
        int_(type_->getWithNewType(b.getIntNTy(type_->getScalarSizeInBits()))) {}

  llvm::Value* F(double value) const { return llvm::ConstantFP::get(type_, value); }
  /// An integer as wide as the numbers.
  llvm::Value* I(int64_t value) const { return llvm::ConstantInt::getSigned(int_, value); }

  llvm::Value* Add(llvm::Value* x, llvm::Value* y) const { return b_.CreateFAdd(x, y); }
  llvm::Value* Sub(llvm::Value* x, llvm::Value* y) const { return b_.CreateFSub(x, y); }
  llvm::Value* Mul(llvm::Value* x, llvm::Value* y) const { return b_.CreateFMul(x, y); }
  llvm::Value* Div(llvm::Value* x, llvm::Value* y) const { return b_.CreateFDiv(x, y); }
  llvm::Value* MulAdd(llvm::Value* x, llvm::Value* y, llvm::Value* z) const {
    return b_.CreateIntrinsic(llvm::Intrinsic::fmuladd, {type_}, {x, y, z});
  }
  /// c[0] + c[1] x + c[2] x^2 + ...
  llvm::Value* Poly(llvm::Value* x, std::span<const double> c) const {
    llvm::Value* sum = F(c.back());
    for (size_t i = c.size() - 1; i-- > 0;) sum = MulAdd(sum, x, F(c[i]));
    return sum;
  }
  llvm::Value* Abs(llvm::Value* x) const {
    return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  }
  llvm::Value* Sqrt(llvm::Value* x) const {
    return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
  }
  llvm::Value* WithSign(llvm::Value* x, llvm::Value* sign) const {
    return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x, sign);
  }
  llvm::Value* Less(llvm::Value* x, llvm::Value* y) const { return b_.CreateFCmpOLT(x, y); }
  llvm::Value* Is(llvm::Value* x, double y) const { return b_.CreateFCmpOEQ(x, F(y)); }
  llvm::Value* Select(llvm::Value* c, llvm::Value* x, llvm::Value* y) const {
    return b_.CreateSelect(c, x, y);
  }
  llvm::Value* Clamp(llvm::Value* x, double low, double high) const {
    x = Select(Less(x, F(low)), F(low), x);
    return Select(b_.CreateFCmpOGT(x, F(high)), F(high), x);
  }
  llvm::Value* Bits(llvm::Value* x) const { return b_.CreateBitCast(x, int_); }
  llvm::Value* FromBits(llvm::Value* x) const { return b_.CreateBitCast(x, type_); }
  /// 2^n for an integer n that is the exponent of a normal number.
  llvm::Value* PowerOfTwo(llvm::Value* n) const {
    const bool is_double = type_->getScalarSizeInBits() == 64;
    return FromBits(
        b_.CreateShl(b_.CreateAdd(n, I(is_double ? 1023 : 127)), I(is_double ? 52 : 23)));
  }
  llvm::IRBuilder<>& b() const { return b_; }

 private:
  llvm::IRBuilder<>& b_;
  llvm::Type *type_, *int_;
};

}  // namespace lathe::codegen
