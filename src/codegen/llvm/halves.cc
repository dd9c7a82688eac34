#include "src/codegen/llvm/halves.h"

namespace lathe::codegen {
namespace {

using llvm::Value;

class Bits {
 public:
  Bits(llvm::IRBuilder<>& b, Value* like)
      : b_(b),
        int_(like->getType()->getWithNewType(b.getInt32Ty())),
        float_(like->getType()->getWithNewType(b.getFloatTy())),
        half_(like->getType()->getWithNewType(b.getInt16Ty())) {}

  Value* I(uint32_t value) const { return llvm::ConstantInt::get(int_, value); }
  Value* Wide(Value* half) const { return b_.CreateZExt(half, int_); }
  Value* Low(Value* bits) const { return b_.CreateTrunc(bits, half_); }
  Value* Of(Value* x) const { return b_.CreateBitCast(x, int_); }
  Value* Float(Value* bits) const { return b_.CreateBitCast(bits, float_); }

  Value* HalfToFloat(Value* half) const;
  Value* FloatToHalf(Value* x) const;
  Value* FloatToBrain(Value* x) const;
  Value* RoundedToOdd(Value* x) const;

 private:
  llvm::IRBuilder<>& b_;
  llvm::Type *int_, *float_, *half_;
};

// Exponent and mantissa moved to their place are the value times 2^-112, subnormal or not.
Value* Bits::HalfToFloat(Value* half) const {
  Value* h = Wide(half);
  Value* sign = b_.CreateShl(b_.CreateAnd(h, I(0x8000)), I(16));
  Value* moved = b_.CreateShl(b_.CreateAnd(h, I(0x7fff)), I(13));
  Value* scaled = Of(b_.CreateFMul(Float(moved), llvm::ConstantFP::get(float_, 0x1p112)));
  Value* special = b_.CreateICmpUGE(moved, I(0x0f800000));
  Value* bits = b_.CreateSelect(special, b_.CreateOr(moved, I(0x7f800000)), scaled);
  return Float(b_.CreateOr(bits, sign));
}

Value* Bits::FloatToHalf(Value* x) const {
  Value* sign = b_.CreateAnd(Of(x), I(0x80000000));
  Value* size = b_.CreateXor(Of(x), sign);
  // Adding 0.5 rounds to the last bit of a subnormal.
  Value* small = b_.CreateSub(Of(b_.CreateFAdd(Float(size), llvm::ConstantFP::get(float_, 0.5))),
                              I(0x3f000000));
  Value* odd = b_.CreateAnd(b_.CreateLShr(size, I(13)), I(1));
  Value* normal = b_.CreateLShr(b_.CreateAdd(b_.CreateAdd(size, I(0xc8000fff)), odd), I(13));
  Value* large = b_.CreateSelect(b_.CreateICmpUGT(size, I(0x7f800000)), I(0x7e00), I(0x7c00));
  Value* bits = b_.CreateSelect(b_.CreateICmpULT(size, I(0x38800000)), small, normal);
  bits = b_.CreateSelect(b_.CreateICmpUGE(size, I(0x47800000)), large, bits);
  return Low(b_.CreateOr(bits, b_.CreateLShr(sign, I(16))));
}

Value* Bits::FloatToBrain(Value* x) const {
  Value* bits = Of(x);
  Value* odd = b_.CreateAnd(b_.CreateLShr(bits, I(16)), I(1));
  Value* rounded = b_.CreateAdd(bits, b_.CreateAdd(odd, I(0x7fff)));
  Value* nan = b_.CreateOr(bits, I(0x00400000));
  return Low(b_.CreateLShr(b_.CreateSelect(b_.CreateFCmpUNO(x, x), nan, rounded), I(16)));
}

// Towards zero, with the last bit set if anything was lost.
Value* Bits::RoundedToOdd(Value* x) const {
  Value* near = b_.CreateFPTrunc(x, float_);
  Value* back = b_.CreateFPExt(near, x->getType());
  const auto abs = [&](Value* v) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v); };
  Value* beyond = b_.CreateFCmpOGT(abs(back), abs(x));
  Value* lost = b_.CreateFCmpONE(back, x);
  Value* bits = b_.CreateSub(Of(near), b_.CreateZExt(beyond, int_));
  return Float(b_.CreateOr(bits, b_.CreateZExt(lost, int_)));
}

}  // namespace

Value* FromHalf(llvm::IRBuilder<>& b, const Target& target, ElementType element, Value* x) {
  const Bits bits(b, x);
  if (element == ElementType::kBF16) return bits.Float(b.CreateShl(bits.Wide(x), bits.I(16)));
  if (!target.converts_f16) return bits.HalfToFloat(x);
  Value* half = b.CreateBitCast(x, x->getType()->getWithNewType(b.getHalfTy()));
  Value* wide = b.CreateFPExt(half, x->getType()->getWithNewType(b.getFloatTy()));
  // Behind a fence, so that LLVM does not compare the halves instead, which it does one by one.
  return b.CreateArithmeticFence(wide, wide->getType());
}

Value* RoundedToOdd(llvm::IRBuilder<>& b, Value* x) { return Bits(b, x).RoundedToOdd(x); }

Value* ToHalf(llvm::IRBuilder<>& b, const Target& target, ElementType element, Value* x) {
  const Bits bits(b, x);
  if (x->getType()->getScalarType()->isDoubleTy()) x = RoundedToOdd(b, x);
  if (element == ElementType::kBF16) return bits.FloatToBrain(x);
  if (!target.converts_f16) return bits.FloatToHalf(x);
  Value* half = b.CreateFPTrunc(x, x->getType()->getWithNewType(b.getHalfTy()));
  return b.CreateBitCast(half, x->getType()->getWithNewType(b.getInt16Ty()));
}

}  // namespace lathe::codegen
