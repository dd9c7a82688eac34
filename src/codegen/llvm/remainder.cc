#include "src/codegen/llvm/remainder.h"

#include <cmath>

namespace lathe::codegen {
namespace {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

llvm::Constant* F(llvm::Type* type, double value) { return llvm::ConstantFP::get(type, value); }

// In f64 y times powers of 2^28 is taken away as often as it fits, from the largest on, and no
// digit is lost.
Value* OfF32(llvm::IRBuilder<>& b, Value* narrow_x, Value* narrow_y) {
  llvm::Type* narrow = narrow_x->getType();
  llvm::Type* wide = narrow->getWithNewType(b.getDoubleTy());
  Value *x = b.CreateFPExt(narrow_x, wide), *y = b.CreateFPExt(narrow_y, wide);
  Value* divisor = b.CreateUnaryIntrinsic(Intrinsic::fabs, y);
  Value* size = b.CreateUnaryIntrinsic(Intrinsic::fabs, x);
  Value* rest = size;
  for (int step = 9; step >= 0; --step) {
    Value* multiple = b.CreateFMul(divisor, F(wide, std::ldexp(1.0, 28 * step)));
    Value* times = b.CreateFDiv(rest, multiple);
    // Adding 2^52 rounds to a whole number; one too many leaves less than nothing.
    times = b.CreateFSub(b.CreateFAdd(times, F(wide, 0x1p52)), F(wide, 0x1p52));
    Value* left = b.CreateFSub(rest, b.CreateFMul(times, multiple));
    rest = b.CreateSelect(b.CreateFCmpOLT(left, F(wide, 0)), b.CreateFAdd(left, multiple), left);
  }
  Value* finite = b.CreateFCmpOLT(size, F(wide, INFINITY));
  Value* whole = b.CreateAnd(finite, b.CreateFCmpOEQ(divisor, F(wide, INFINITY)));
  rest = b.CreateSelect(whole, size, rest);
  return b.CreateFPTrunc(b.CreateBinaryIntrinsic(Intrinsic::copysign, rest, x), narrow);
}

// Of f64: whole numbers below 2^53 times powers of two. The dividend is brought to the power of the
// divisor 11 bits at a time, which 64 bits have room for.
class LongDivision {
 public:
  LongDivision(llvm::IRBuilder<>& b, Value* x, Value* y)
      : b_(b),
        x_(x),
        y_(y),
        double_(x->getType()),
        long_(double_->getWithNewType(b.getInt64Ty())) {}

  Value* Rest() {
    Value* size = b_.CreateUnaryIntrinsic(Intrinsic::fabs, x_);
    Value* divisor = b_.CreateUnaryIntrinsic(Intrinsic::fabs, y_);
    const Parts dividend = PartsOf(size), by = PartsOf(divisor);
    Value* zero = I(0);
    Value* apart = b_.CreateSub(dividend.exponent, by.exponent);
    Value* shifts = b_.CreateBinaryIntrinsic(Intrinsic::smax, apart, zero);
    Value* left = b_.CreateURem(Shifted(dividend.mantissa, by.mantissa, shifts), by.mantissa);
    Value* rest = Scaled(left, by.exponent);
    rest = b_.CreateSelect(b_.CreateFCmpOLT(size, divisor), size, rest);
    Value* none = b_.CreateOr(b_.CreateFCmpUNO(x_, y_),
                              b_.CreateOr(b_.CreateFCmpOEQ(size, F(double_, INFINITY)),
                                          b_.CreateFCmpOEQ(divisor, F(double_, 0))));
    rest = b_.CreateSelect(none, F(double_, NAN), rest);
    return b_.CreateBinaryIntrinsic(Intrinsic::copysign, rest, x_);
  }

 private:
  struct Parts {
    Value *mantissa, *exponent;  // mantissa of 53 bits times 2^(exponent - 1075)
  };

  llvm::Constant* I(uint64_t value) const { return llvm::ConstantInt::get(long_, value); }

  // Numbers below 2^-1022 are scaled first.
  Parts PartsOf(Value* size) const {
    Value* small = b_.CreateFCmpOLT(size, F(double_, 0x1p-1022));
    Value* scaled = b_.CreateSelect(small, b_.CreateFMul(size, F(double_, 0x1p54)), size);
    Value* bits = b_.CreateBitCast(scaled, long_);
    Value* exponent = b_.CreateSub(b_.CreateLShr(bits, I(52)), b_.CreateSelect(small, I(54), I(0)));
    return {b_.CreateOr(b_.CreateAnd(bits, I((uint64_t{1} << 52) - 1)), I(uint64_t{1} << 52)),
            exponent};
  }

  // Until no lane has anything to shift.
  Value* Shifted(Value* mantissa, Value* by, Value* shifts) const {
    llvm::BasicBlock* before = b_.GetInsertBlock();
    llvm::LLVMContext& context = b_.getContext();
    auto* head = llvm::BasicBlock::Create(context, "rest", before->getParent());
    auto* body = llvm::BasicBlock::Create(context, "shift", before->getParent());
    auto* done = llvm::BasicBlock::Create(context, "shifted", before->getParent());
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    llvm::PHINode *rest = b_.CreatePHI(long_, 2), *left = b_.CreatePHI(long_, 2);
    rest->addIncoming(mantissa, before);
    left->addIncoming(shifts, before);
    Value* any = b_.CreateICmpNE(left, I(0));
    if (any->getType()->isVectorTy()) any = b_.CreateOrReduce(any);
    b_.CreateCondBr(any, body, done);
    b_.SetInsertPoint(body);
    Value* bits = b_.CreateBinaryIntrinsic(Intrinsic::umin, left, I(11));
    rest->addIncoming(b_.CreateURem(b_.CreateShl(rest, bits), by), body);
    left->addIncoming(b_.CreateSub(left, bits), body);
    b_.CreateBr(head);
    b_.SetInsertPoint(done);
    return rest;
  }

  // In two steps, each by a power of two that is no subnormal number.
  Value* Scaled(Value* mantissa, Value* exponent) const {
    const auto power = [&](Value* e) {
      return b_.CreateBitCast(b_.CreateShl(b_.CreateAdd(e, I(1023)), I(52)), double_);
    };
    Value* whole = b_.CreateSub(exponent, I(1075));
    Value* half = b_.CreateAShr(whole, I(1));
    Value* value = b_.CreateFMul(b_.CreateSIToFP(mantissa, double_), power(half));
    return b_.CreateFMul(value, power(b_.CreateSub(whole, half)));
  }

  llvm::IRBuilder<>& b_;
  Value *x_, *y_;
  llvm::Type *double_, *long_;
};

}  // namespace

Value* EmitRemainder(llvm::IRBuilder<>& b, Value* x, Value* y) {
  const bool is_wide = x->getType()->getScalarType()->isDoubleTy();
  return is_wide ? LongDivision(b, x, y).Rest() : OfF32(b, x, y);
}

}  // namespace lathe::codegen
