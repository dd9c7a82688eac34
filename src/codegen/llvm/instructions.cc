#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/PatternMatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "lathe/dialect/loop/op_names.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/support/text.h"
#include "src/codegen/llvm/emit.h"
#include "src/codegen/llvm/halves.h"
#include "src/codegen/llvm/math.h"
#include "src/codegen/llvm/math64.h"
#include "src/codegen/llvm/remainder.h"
#include "src/codegen/llvm/small_floats.h"
#include "src/codegen/llvm/trigonometry.h"

// Instructions for elementwise operations on scalars and vectors: one row each.
namespace lathe::codegen {
namespace {

using llvm::CmpInst;
using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

double Attr(const EmitContext& c, std::string_view name) {
  const Attribute value = c.op->attribute(name);
  if (const auto integer = value.dyn_cast<IntAttribute>()) {
    return static_cast<double>(integer.value());
  }
  return value.cast<FloatAttribute>().value();
}

using Emit = Value* (*)(llvm::IRBuilder<>&, Value*);

using EmitFor = Value* (*)(llvm::IRBuilder<>&, const Target&, Value*);

bool IsDouble(const EmitContext& c) {
  return c.inputs[0]->getType()->getScalarType()->isDoubleTy();
}

// A function of f32, and that of f64.
template <Emit F32, Emit F64>
Value* Function(EmitContext& c) {
  return IsDouble(c) ? F64(c.b, c.inputs[0]) : F32(c.b, c.inputs[0]);
}

// The same where that of f32 has instructions that some targets lack.
template <EmitFor F32, Emit F64>
Value* FunctionFor(EmitContext& c) {
  return IsDouble(c) ? F64(c.b, c.inputs[0]) : F32(c.b, c.target, c.inputs[0]);
}

// A function of f64, and one of f32 that is computed in f64: `Of32` needs to be right to 2^-33.
template <Emit F64, Emit Of32 = F64>
Value* InDouble(EmitContext& c) {
  Value* x = c.inputs[0];
  if (IsDouble(c)) return F64(c.b, x);
  Value* wide = c.b.CreateFPExt(x, x->getType()->getWithNewType(c.b.getDoubleTy()));
  return c.b.CreateFPTrunc(Of32(c.b, wide), x->getType());
}

// By repeated squaring, wrapping around. Negative powers are 0 but for those of 1 and -1. The
// exponent is as wide as the base, or wider.
Value* IntegerPower(EmitContext& c, Value* base, Value* y, bool y_is_signed) {
  llvm::Type *type = base->getType(), *wide = y->getType();
  llvm::Constant *one = llvm::ConstantInt::get(type, 1), *zero = llvm::Constant::getNullValue(wide);
  const auto odd = [&](Value* v) {
    return c.b.CreateICmpNE(c.b.CreateAnd(v, llvm::ConstantInt::get(wide, 1)), zero);
  };
  Value *power = one, *square = base, *left = y;
  for (int bit = 0; bit < 64; ++bit) {
    power = c.b.CreateSelect(odd(left), c.b.CreateMul(power, square), power);
    square = c.b.CreateMul(square, square);
    left = c.b.CreateLShr(left, llvm::ConstantInt::get(wide, 1));
  }
  if (!y_is_signed) return power;
  Value* inverse =
      c.b.CreateSelect(c.b.CreateICmpEQ(base, one), one, llvm::Constant::getNullValue(type));
  if (c.is_signed()) {
    Value* minus_one = llvm::Constant::getAllOnesValue(type);
    inverse = c.b.CreateSelect(c.b.CreateICmpEQ(base, minus_one),
                               c.b.CreateSelect(odd(y), minus_one, one), inverse);
  }
  return c.b.CreateSelect(c.b.CreateICmpSLT(y, zero), inverse, power);
}

template <llvm::Intrinsic::ID kId>
Value* Unary(EmitContext& c) {
  return c.b.CreateUnaryIntrinsic(kId, c.inputs[0]);
}

// To the nearest integer, halves to the even one: adding and taking away 2^23 (2^52) rounds so.
Value* Nearest(EmitContext& c, Value* x) {
  if (c.target.rounds) return c.b.CreateUnaryIntrinsic(Intrinsic::roundeven, x);
  llvm::Type* type = x->getType();
  llvm::Constant* limit = Splat(type, type->getScalarType()->isDoubleTy() ? 0x1p52 : 0x1p23);
  Value* size = c.b.CreateUnaryIntrinsic(Intrinsic::fabs, x);
  Value* near = c.b.CreateFSub(c.b.CreateFAdd(size, limit), limit);
  near = c.b.CreateBinaryIntrinsic(Intrinsic::copysign, near, x);
  return c.b.CreateSelect(c.b.CreateFCmpOLT(size, limit), near, x);
}

// Rounds to an integer. Where there is no instruction for it: what is nearest is at most one apart.
enum class Rounding : uint8_t { kNearest, kDown, kUp };
template <Rounding kMode>
Value* Round(EmitContext& c) {
  Value* x = c.inputs[0];
  if constexpr (kMode == Rounding::kNearest) return Nearest(c, x);
  constexpr bool kDown = kMode == Rounding::kDown;
  if (c.target.rounds) {
    return c.b.CreateUnaryIntrinsic(kDown ? Intrinsic::floor : Intrinsic::ceil, x);
  }
  llvm::Type* type = x->getType();
  Value* near = Nearest(c, x);
  Value* beyond = kDown ? c.b.CreateFCmpOGT(near, x) : c.b.CreateFCmpOLT(near, x);
  Value* step = c.b.CreateSelect(beyond, Splat(type, kDown ? -1 : 1), Splat(type, 0));
  return c.b.CreateBinaryIntrinsic(Intrinsic::copysign, c.b.CreateFAdd(near, step), x);
}

template <CmpInst::Predicate kFloat, CmpInst::Predicate kSigned, CmpInst::Predicate kUnsigned>
Value* Compare(EmitContext& c) {
  // The inputs are as wide as the result, whose element type is another.
  if (c.is_float()) return c.b.CreateFCmp(kFloat, c.inputs[0], c.inputs[1]);
  return c.b.CreateICmp(c.is_signed() ? kSigned : kUnsigned, c.inputs[0], c.inputs[1]);
}

Value* Add(EmitContext& c) {
  return c.is_float() ? c.b.CreateFAdd(c.inputs[0], c.inputs[1])
                      : c.b.CreateAdd(c.inputs[0], c.inputs[1]);
}
Value* Sub(EmitContext& c) {
  return c.is_float() ? c.b.CreateFSub(c.inputs[0], c.inputs[1])
                      : c.b.CreateSub(c.inputs[0], c.inputs[1]);
}
Value* Mul(EmitContext& c) {
  return c.is_float() ? c.b.CreateFMul(c.inputs[0], c.inputs[1])
                      : c.b.CreateMul(c.inputs[0], c.inputs[1]);
}
// Integers: division by zero gives 0, and the smallest one by -1 itself.
Value* Div(EmitContext& c) {
  Value *x = c.inputs[0], *y = c.inputs[1];
  if (c.is_float()) return c.b.CreateFDiv(x, y);
  llvm::Constant* zero = llvm::Constant::getNullValue(y->getType());
  llvm::Constant* one = llvm::ConstantInt::get(y->getType(), 1);
  Value* by_zero = c.b.CreateICmpEQ(y, zero);
  if (!c.is_signed()) {
    Value* safe = c.b.CreateSelect(by_zero, one, y);
    return c.b.CreateSelect(by_zero, zero, c.b.CreateUDiv(x, safe));
  }
  Value* by_minus_one = c.b.CreateICmpEQ(y, llvm::Constant::getAllOnesValue(y->getType()));
  Value* safe = c.b.CreateSelect(c.b.CreateOr(by_zero, by_minus_one), one, y);
  Value* quotient = c.b.CreateSDiv(x, safe);
  quotient = c.b.CreateSelect(by_minus_one, c.b.CreateNeg(x), quotient);
  return c.b.CreateSelect(by_zero, zero, quotient);
}
// What is left of a division towards zero (fmod), or downwards.
Value* FloatMod(EmitContext& c) {
  Value *rest = EmitRemainder(c.b, c.inputs[0], c.inputs[1]), *y = c.inputs[1];
  llvm::Type* narrow = rest->getType();
  if (!c.op->attribute("fmod").cast<BoolAttribute>().value()) {
    Value* is_none = c.b.CreateFCmpOEQ(rest, Splat(narrow, 0));
    Value* differ = c.b.CreateXor(c.b.CreateFCmpOLT(rest, Splat(narrow, 0)),
                                  c.b.CreateFCmpOLT(y, Splat(narrow, 0)));
    Value* other = c.b.CreateSelect(differ, c.b.CreateFAdd(rest, y), rest);
    Value* none = c.b.CreateBinaryIntrinsic(Intrinsic::copysign, rest, y);
    rest = c.b.CreateSelect(is_none, none, other);
  }
  return rest;
}
// Integers: what is left of a division towards zero (fmod), or downwards. By zero: zero.
Value* ModOf(EmitContext& c) {
  if (c.is_float()) return FloatMod(c);
  Value *x = c.inputs[0], *y = c.inputs[1];
  llvm::Constant* zero = llvm::Constant::getNullValue(y->getType());
  llvm::Constant* one = llvm::ConstantInt::get(y->getType(), 1);
  Value* trivial = c.b.CreateICmpEQ(y, zero);
  if (!c.is_signed()) {
    Value* rest = c.b.CreateURem(x, c.b.CreateSelect(trivial, one, y));
    return c.b.CreateSelect(trivial, zero, rest);
  }
  Value* minus_one = llvm::Constant::getAllOnesValue(y->getType());
  trivial = c.b.CreateOr(trivial, c.b.CreateICmpEQ(y, minus_one));
  Value* rest = c.b.CreateSRem(x, c.b.CreateSelect(trivial, one, y));
  if (!c.op->attribute("fmod").cast<BoolAttribute>().value()) {
    Value* differ = c.b.CreateICmpSLT(c.b.CreateXor(rest, y), zero);
    Value* adjust = c.b.CreateAnd(c.b.CreateICmpNE(rest, zero), differ);
    rest = c.b.CreateSelect(adjust, c.b.CreateAdd(rest, y), rest);
  }
  return c.b.CreateSelect(trivial, zero, rest);
}
// Bits that leave are lost; shifts by the width and more are shifts by all of it.
Value* BitShift(EmitContext& c) {
  Value *x = c.inputs[0], *y = c.inputs[1];
  const unsigned width = x->getType()->getScalarSizeInBits();
  Value* fits = c.b.CreateICmpULT(y, llvm::ConstantInt::get(y->getType(), width));
  Value* amount = c.b.CreateSelect(fits, y, llvm::Constant::getNullValue(y->getType()));
  Value* lost = llvm::Constant::getNullValue(x->getType());
  if (c.op->attribute("direction").cast<StrAttribute>().value() == "LEFT") {
    return c.b.CreateSelect(fits, c.b.CreateShl(x, amount), lost);
  }
  if (!c.is_signed()) return c.b.CreateSelect(fits, c.b.CreateLShr(x, amount), lost);
  lost = c.b.CreateAShr(x, llvm::ConstantInt::get(x->getType(), width - 1));
  return c.b.CreateSelect(fits, c.b.CreateAShr(x, amount), lost);
}
// -1, 0 or 1; NaN stays.
Value* Sign(EmitContext& c) {
  Value* x = c.inputs[0];
  llvm::Constant* zero = llvm::Constant::getNullValue(x->getType());
  if (c.is_float()) {
    Value* sign = c.b.CreateBinaryIntrinsic(Intrinsic::copysign, Splat(x->getType(), 1), x);
    return c.b.CreateSelect(c.b.CreateFCmpONE(x, zero), sign,
                            c.b.CreateSelect(c.b.CreateFCmpUNO(x, x), x, zero));
  }
  llvm::Constant* one = llvm::ConstantInt::get(x->getType(), 1);
  Value* sign = c.b.CreateSelect(c.b.CreateICmpEQ(x, zero), zero, one);
  if (!c.is_signed()) return sign;
  return c.b.CreateSelect(c.b.CreateICmpSLT(x, zero), llvm::Constant::getAllOnesValue(x->getType()),
                          sign);
}
Value* IsInf(EmitContext& c) {
  const auto asked = [&](const char* name) {
    return c.op->attribute(name).cast<BoolAttribute>().value();
  };
  Value* x = c.inputs[0];
  Value* result = llvm::Constant::getNullValue(c.type);
  for (const auto& [name, infinity] :
       {std::pair("detect_negative", -INFINITY), std::pair("detect_positive", INFINITY)}) {
    if (!asked(name)) continue;
    result = c.b.CreateOr(result, c.b.CreateFCmpOEQ(x, Splat(x->getType(), infinity)));
  }
  return result;
}
Value* Neg(EmitContext& c) {
  return c.is_float() ? c.b.CreateFNeg(c.inputs[0]) : c.b.CreateNeg(c.inputs[0]);
}
Value* Abs(EmitContext& c) {
  if (c.is_float()) return c.b.CreateUnaryIntrinsic(Intrinsic::fabs, c.inputs[0]);
  if (!c.is_signed()) return c.inputs[0];
  return c.b.CreateBinaryIntrinsic(Intrinsic::abs, c.inputs[0], c.b.getFalse());
}
Value* Reciprocal(EmitContext& c) {
  return c.is_float() ? c.b.CreateFDiv(Splat(c.type, 1), c.inputs[0]) : nullptr;
}
Value* Fma(EmitContext& c) {
  return c.b.CreateIntrinsic(Intrinsic::fma, {c.type}, {c.inputs[0], c.inputs[1], c.inputs[2]});
}

bool ChangesSignAlone(Value* x) {
  namespace pattern = llvm::PatternMatch;
  return pattern::match(x, pattern::m_FAbs(pattern::m_Value())) ||
         pattern::match(x, pattern::m_FNeg(pattern::m_Value())) ||
         pattern::match(x, pattern::m_CopySign(pattern::m_Value(), pattern::m_Value()));
}

// By its bits: LLVM 19 takes "v is NaN or |v| above 0" for "v is NaN or above 0" where two selects
// give |v|.
Value* IsNoNumber(EmitContext& c, Value* x) {
  const llvm::fltSemantics& kind = x->getType()->getScalarType()->getFltSemantics();
  const llvm::APInt infinity = llvm::APFloat::getInf(kind).bitcastToAPInt();
  llvm::Type* type = x->getType()->getWithNewType(c.b.getIntNTy(infinity.getBitWidth()));
  Value* bits = c.b.CreateBitCast(x, type);
  const llvm::APInt size = llvm::APInt::getSignedMaxValue(infinity.getBitWidth());
  return c.b.CreateICmpUGT(c.b.CreateAnd(bits, llvm::ConstantInt::get(type, size)),
                           llvm::ConstantInt::get(type, infinity));
}

// The greater (lesser) one; NaN if either is NaN. Of floats "y > x ? y : x" is one instruction on
// x86, which gives x where either is NaN: so y is put there first where it is NaN. (To choose
// afterwards is the same, but LLVM makes one choice of two then, and no such instruction.)
template <bool kMax>
Value* Extreme(EmitContext& c, Value* x, Value* y) {
  Value* take_y = nullptr;
  if (c.is_float()) {
    Value* none = ChangesSignAlone(y) ? IsNoNumber(c, y) : c.b.CreateFCmpUNO(y, y);
    Value* other = c.b.CreateSelect(none, y, x);
    take_y = c.b.CreateFCmp(kMax ? CmpInst::FCMP_OGT : CmpInst::FCMP_OLT, y, other);
    return c.b.CreateSelect(take_y, y, other);
  }
  if (c.is_signed()) {
    take_y = c.b.CreateICmp(kMax ? CmpInst::ICMP_SLT : CmpInst::ICMP_SGT, x, y);
  } else {
    take_y = c.b.CreateICmp(kMax ? CmpInst::ICMP_ULT : CmpInst::ICMP_UGT, x, y);
  }
  return c.b.CreateSelect(take_y, y, x);
}
template <bool kMax>
Value* Extremes(EmitContext& c) {
  Value* result = c.inputs[0];
  for (size_t i = 1; i < c.inputs.size(); ++i) result = Extreme<kMax>(c, result, c.inputs[i]);
  return result;
}
Value* Sum(EmitContext& c) {
  Value* result = c.inputs[0];
  for (size_t i = 1; i < c.inputs.size(); ++i) {
    result =
        c.is_float() ? c.b.CreateFAdd(result, c.inputs[i]) : c.b.CreateAdd(result, c.inputs[i]);
  }
  return result;
}
Value* Clip(EmitContext& c) {
  Value* x = c.inputs[0];
  if (c.inputs.size() > 1 && c.inputs[1] != nullptr) x = Extreme<true>(c, x, c.inputs[1]);
  if (c.inputs.size() > 2 && c.inputs[2] != nullptr) x = Extreme<false>(c, x, c.inputs[2]);
  return x;
}
Value* Relu(EmitContext& c) {
  return Extreme<true>(c, c.inputs[0], llvm::Constant::getNullValue(c.type));
}
Value* LeakyRelu(EmitContext& c) {
  Value* x = c.inputs[0];
  Value* scaled = c.b.CreateFMul(x, Splat(x->getType(), Attr(c, "alpha")));
  return c.b.CreateSelect(c.b.CreateFCmpOLT(x, Splat(x->getType(), 0)), scaled, x);
}

Value* Where(EmitContext& c) { return c.b.CreateSelect(c.inputs[0], c.inputs[1], c.inputs[2]); }
Value* And(EmitContext& c) { return c.b.CreateAnd(c.inputs[0], c.inputs[1]); }
Value* Or(EmitContext& c) { return c.b.CreateOr(c.inputs[0], c.inputs[1]); }
Value* Xor(EmitContext& c) { return c.b.CreateXor(c.inputs[0], c.inputs[1]); }
Value* Not(EmitContext& c) { return c.b.CreateNot(c.inputs[0]); }
// An integer of which LLVM must not see what it is made of: long sums, each part of the next, take
// it quadratic time (lower/compute/elements.cc, Opaque).
Value* Hidden(EmitContext& c, Value* integer) {
  auto* type = llvm::FunctionType::get(integer->getType(), {integer->getType()}, false);
  return c.b.CreateCall(llvm::InlineAsm::get(type, "", "=r,0", /*hasSideEffects=*/false), integer);
}
Value* Identity(EmitContext& c) {
  return c.inputs[0]->getType()->isIntegerTy(64) ? Hidden(c, c.inputs[0]) : c.inputs[0];
}
Value* Unchanged(EmitContext& c) { return c.inputs[0]; }
// A bool is any byte that is not 0.
Value* BitCast(EmitContext& c) {
  if (c.type->getScalarType()->isIntegerTy(1)) {
    return c.b.CreateICmpNE(c.inputs[0], llvm::Constant::getNullValue(c.inputs[0]->getType()));
  }
  const bool fits = c.inputs[0]->getType()->getScalarSizeInBits() == c.type->getScalarSizeInBits();
  return fits ? c.b.CreateBitCast(c.inputs[0], c.type) : nullptr;
}
Value* IsNan(EmitContext& c) { return IsNoNumber(c, c.inputs[0]); }

// Cut towards zero, the smallest where that does not fit and for NaN.
Value* CutToSigned(EmitContext& c, Value* x, llvm::Type* to) {
  llvm::Type* type = x->getType();
  const double limit = to->getScalarSizeInBits() == 32 ? 0x1p31 : 0x1p63;
  Value* fits = c.b.CreateAnd(c.b.CreateFCmpOGE(x, Splat(type, -limit)),
                              c.b.CreateFCmpOLT(x, Splat(type, limit)));
  return c.b.CreateFPToSI(c.b.CreateSelect(fits, x, Splat(type, -limit)), to);
}

// From 2^63 on the first bit is set; what does not fit is 0, below 0 it is that of i64.
Value* FloatToU64(EmitContext& c, Value* x) {
  llvm::Type* type = x->getType();
  Value* is_large = c.b.CreateFCmpOGE(x, Splat(type, 0x1p63));
  Value* less = c.b.CreateSelect(is_large, c.b.CreateFSub(x, Splat(type, 0x1p63)), x);
  Value* low = CutToSigned(c, less, c.type);
  Value* first_bit = c.b.CreateShl(c.b.CreateZExt(is_large, c.type), 63);
  Value* beyond = c.b.CreateFCmpOGE(x, Splat(type, 0x1p64));
  return c.b.CreateSelect(beyond, llvm::Constant::getNullValue(c.type),
                          c.b.CreateXor(low, first_bit));
}

// What x86-64 gives: cut towards zero; the smallest i64 (i32 for types up to 32 bits, u32 excepted)
// where that does not fit and for NaN; of it the low bits.
Value* FloatToInteger(EmitContext& c) {
  const ElementType to = c.op->result(0).type().cast<AnyTensorType>().element();
  if (to == ElementType::kU64) return FloatToU64(c, c.inputs[0]);
  const bool narrow = c.type->getScalarSizeInBits() <= 32 && to != ElementType::kU32;
  llvm::Type* wide = c.type->getWithNewType(narrow ? c.b.getInt32Ty() : c.b.getInt64Ty());
  return c.b.CreateTrunc(CutToSigned(c, c.inputs[0], wide), c.type);
}

// A whole number to a power that is none, cut to a whole number. Of exponents with few binary
// digits the power may be one: then what is next to it is rounded.
Value* RootOfInteger(EmitContext& c, Value* y) {
  llvm::Type* wide = y->getType();
  Value* x =
      c.is_signed() ? c.b.CreateSIToFP(c.inputs[0], wide) : c.b.CreateUIToFP(c.inputs[0], wide);
  Value* power = EmitPow64(c.b, x, y);
  Value* near = Nearest(c, power);
  Value* apart = c.b.CreateUnaryIntrinsic(Intrinsic::fabs, c.b.CreateFSub(power, near));
  Value* is_near = c.b.CreateFCmpOLE(apart, c.b.CreateFMul(near, Splat(wide, 0x1p-51)));
  Value* digits = c.b.CreateFMul(y, Splat(wide, 64));
  Value* is_root = c.b.CreateFCmpOEQ(digits, Nearest(c, digits));
  Value* whole = c.b.CreateSelect(c.b.CreateAnd(is_near, is_root), near, power);
  const auto cut = c.is_signed() ? Intrinsic::fptosi_sat : Intrinsic::fptoui_sat;
  return c.b.CreateIntrinsic(cut, {c.type, wide}, {whole});
}

// Exact where the exponent is whole, whatever its type.
Value* PowOfInteger(EmitContext& c) {
  Value* y = c.inputs[1];
  llvm::Type* integer = c.type->getWithNewType(c.b.getInt64Ty());
  if (!y->getType()->isFPOrFPVectorTy()) {
    const bool is_signed = IsSigned(c.op->operand(1).type().cast<AnyTensorType>().element());
    y = c.b.CreateIntCast(y, integer, is_signed);
    return IntegerPower(c, c.inputs[0], y, is_signed);
  }
  y = c.b.CreateFPCast(y, c.type->getWithNewType(c.b.getDoubleTy()));
  llvm::Type* wide = y->getType();
  Value* fits =
      c.b.CreateFCmpOLT(c.b.CreateUnaryIntrinsic(Intrinsic::fabs, y), Splat(wide, 0x1p63));
  Value* exponent = c.b.CreateFPToSI(c.b.CreateSelect(fits, y, Splat(wide, 0)), integer);
  Value* is_whole = c.b.CreateFCmpOEQ(c.b.CreateSIToFP(exponent, wide), y);
  Value* power = IntegerPower(c, c.inputs[0], exponent, true);
  return c.b.CreateSelect(is_whole, power, RootOfInteger(c, y));
}

// The number that a double is in every lane and every run.
std::optional<double> KnownNumber(Value* v) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(v);
  if (constant != nullptr && v->getType()->isVectorTy()) constant = constant->getSplatValue();
  const auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant);
  return number == nullptr ? std::nullopt : std::optional(number->getValueAPF().convertToDouble());
}

// The exponent may be of any type.
Value* Pow(EmitContext& c) {
  if (!c.is_float()) return PowOfInteger(c);
  Value *x = c.inputs[0], *y = c.inputs[1];
  const ElementType of_y = c.op->operand(1).type().cast<AnyTensorType>().element();
  llvm::Type* narrow = x->getType();
  llvm::Type* wide = narrow->getWithNewType(c.b.getDoubleTy());
  if (y->getType()->isFPOrFPVectorTy()) {
    y = c.b.CreateFPCast(y, wide);
  } else {
    y = IsSigned(of_y) ? c.b.CreateSIToFP(y, wide) : c.b.CreateUIToFP(y, wide);
  }
  if (const auto exponent = KnownNumber(y)) {
    if (Value* power = EmitPowOfConstant(c.b, x, *exponent)) return power;
  }
  if (narrow == wide) return EmitPow64(c.b, x, y);
  return c.b.CreateFPTrunc(EmitPowForF32(c.b, c.b.CreateFPCast(x, wide), y), narrow);
}

Value* CastTo(EmitContext& c) {
  Value* x = c.inputs[0];
  llvm::Type *from = x->getType()->getScalarType(), *to = c.type->getScalarType();
  if (to->isIntegerTy(1)) {
    llvm::Constant* zero = llvm::Constant::getNullValue(x->getType());
    return c.is_float() ? c.b.CreateFCmpUNE(x, zero) : c.b.CreateICmpNE(x, zero);
  }
  if (from == to) return x;
  const bool is_signed = c.is_signed() && !c.is_bool();
  if (to->isFloatingPointTy()) {
    if (c.is_float()) return c.b.CreateFPCast(x, c.type);
    return is_signed ? c.b.CreateSIToFP(x, c.type) : c.b.CreateUIToFP(x, c.type);
  }
  return c.is_float() ? FloatToInteger(c) : c.b.CreateIntCast(x, c.type, is_signed);
}

using Emitter = Value* (*)(EmitContext&);

struct Row {
  std::string_view name;
  uint8_t types;  ///< that its first operand may have
  Emitter emit;
};

enum : uint8_t { kF32 = 1, kF64 = 2, kInteger = 4, kBool = 8 };  // narrow floats count as f32
constexpr uint8_t kFloat = kF32 | kF64, kNumber = kFloat | kInteger, kAny = kNumber | kBool;

uint8_t ClassOf(ElementType element) {
  if (element == ElementType::kBool) return kBool;
  if (element == ElementType::kF64) return kF64;
  return IsFloat(element) ? kF32 : kInteger;
}

// Sorted by name.
constexpr auto kRows = std::to_array<Row>({
    {loop::kFma, kFloat, Fma},
    {nn::kAbs, kNumber, Abs},
    {nn::kAcos, kFloat, InDouble<EmitAcos64, EmitAcosOfF32>},
    {nn::kAcosh, kFloat, InDouble<EmitAcosh64>},
    {nn::kAdd, kNumber, Add},
    {nn::kAnd, kBool, And},
    {nn::kAsin, kFloat, InDouble<EmitAsin64, EmitAsinOfF32>},
    {nn::kAsinh, kFloat, InDouble<EmitAsinh64>},
    {nn::kAtan, kFloat, InDouble<EmitAtan64, EmitAtanOfF32>},
    {nn::kAtanh, kFloat, InDouble<EmitAtanh64>},
    {nn::kBitCast, kNumber, BitCast},
    {nn::kBitShift, kInteger, BitShift},
    {nn::kBitwiseAnd, kInteger, And},
    {nn::kBitwiseNot, kInteger, Not},
    {nn::kBitwiseOr, kInteger, Or},
    {nn::kBitwiseXor, kInteger, Xor},
    {nn::kBlockGradient, kAny, Unchanged},
    {nn::kCast, kAny, CastTo},
    {nn::kCeil, kFloat, Round<Rounding::kUp>},
    {nn::kClip, kNumber, Clip},
    {nn::kCos, kFloat, Function<EmitCos, EmitCos64>},
    {nn::kCosh, kFloat, InDouble<EmitCosh64>},
    {nn::kDiv, kNumber, Div},
    {nn::kEqual, kAny, Compare<CmpInst::FCMP_OEQ, CmpInst::ICMP_EQ, CmpInst::ICMP_EQ>},
    {nn::kErf, kFloat, Function<EmitErf, EmitErf64>},
    {nn::kExp, kFloat, FunctionFor<EmitExp, EmitExp64>},
    {nn::kFloor, kFloat, Round<Rounding::kDown>},
    {nn::kGreater, kNumber, Compare<CmpInst::FCMP_OGT, CmpInst::ICMP_SGT, CmpInst::ICMP_UGT>},
    {nn::kGreaterOrEqual, kNumber,
     Compare<CmpInst::FCMP_OGE, CmpInst::ICMP_SGE, CmpInst::ICMP_UGE>},
    {nn::kIdentity, kAny, Identity},
    {nn::kIsInf, kFloat, IsInf},
    {nn::kIsNan, kFloat, IsNan},
    {nn::kLeakyRelu, kFloat, LeakyRelu},
    {nn::kLess, kNumber, Compare<CmpInst::FCMP_OLT, CmpInst::ICMP_SLT, CmpInst::ICMP_ULT>},
    {nn::kLessOrEqual, kNumber, Compare<CmpInst::FCMP_OLE, CmpInst::ICMP_SLE, CmpInst::ICMP_ULE>},
    {nn::kLog, kFloat, Function<EmitLog, EmitLog64>},
    {nn::kMax, kNumber, Extremes<true>},
    {nn::kMin, kNumber, Extremes<false>},
    {nn::kMod, kNumber, ModOf},
    {nn::kMul, kNumber, Mul},
    {nn::kNeg, kNumber, Neg},
    {nn::kNot, kBool, Not},
    {nn::kOr, kBool, Or},
    {nn::kPow, kNumber, Pow},
    {nn::kReciprocal, kFloat, Reciprocal},
    {nn::kRelu, kNumber, Relu},
    {nn::kRound, kFloat, Round<Rounding::kNearest>},
    {nn::kSigmoid, kFloat, FunctionFor<EmitSigmoid, EmitSigmoid64>},
    {nn::kSign, kNumber, Sign},
    {nn::kSin, kFloat, Function<EmitSin, EmitSin64>},
    {nn::kSinh, kFloat, InDouble<EmitSinh64>},
    {nn::kSqrt, kFloat, Unary<Intrinsic::sqrt>},
    {nn::kSub, kNumber, Sub},
    {nn::kSum, kFloat, Sum},
    {nn::kTan, kFloat, Function<EmitTan, EmitTan64>},
    {nn::kTanh, kFloat, Function<EmitTanh, EmitTanh64>},
    {nn::kWhere, kBool, Where},
    {nn::kXor, kBool, Xor},
});
static_assert(std::ranges::is_sorted(kRows, {}, &Row::name));

const Row* FindRow(std::string_view name) {
  const auto* row = std::ranges::lower_bound(kRows, name, {}, &Row::name);
  return row != kRows.end() && row->name == name ? row : nullptr;
}

}  // namespace

namespace {

// Rows that only move bits take narrow floats as they are.
bool OnlyMoves(const Row& row) {
  return row.emit == &Where || row.emit == &Identity || row.emit == &Unchanged ||
         row.emit == &BitCast;
}

// The others would have to round what they compute.
bool TakesSmallFloats(const Row& row) {
  return OnlyMoves(row) || row.emit == &CastTo || row.emit == &IsNan || row.emit == &IsInf;
}

ElementType ElementOf(lathe::Value v) { return v.type().cast<AnyTensorType>().element(); }

// Floats that are computed in f32.
bool IsNarrow(ElementType element) { return IsHalf(element) || IsSmallFloat(element); }

Value* FromNarrow(llvm::IRBuilder<>& b, const Target& target, ElementType element, Value* x) {
  return IsSmallFloat(element) ? FromSmallFloat(b, element, x) : FromHalf(b, target, element, x);
}

SmallFloatRounding RoundingOf(const Operation* cast) {
  const auto mode = cast->attribute("round_mode").cast<StrAttribute>().value();
  return {.saturate = cast->attribute("saturate").cast<BoolAttribute>().value(),
          .power = mode == "down"      ? PowerRounding::kDown
                   : mode == "nearest" ? PowerRounding::kNearest
                                       : PowerRounding::kUp};
}

Value* ToNarrow(EmitContext& c, ElementType element, Value* x) {
  return IsSmallFloat(element) ? ToSmallFloat(c.b, element, x, RoundingOf(c.op))
                               : ToHalf(c.b, c.target, element, x);
}

// What a narrow result is rounded from.
llvm::Type* WideType(EmitContext& c) {
  const bool is_wide =
      !c.is_bool() && !c.inputs[0]->getType()->getScalarType()->isFloatTy();  // of a cast
  return c.type->getWithNewType(is_wide ? c.b.getDoubleTy() : c.b.getFloatTy());
}

}  // namespace

Value* EmitInstruction(llvm::IRBuilder<>& b, const Target& target, const Operation* op,
                       llvm::Type* type, std::vector<Value*> inputs) {
  const Row* row = FindRow(op->name());
  if (row == nullptr) FailUnsupported(op, "no instructions for this operation");
  ElementType element = ElementOf(op->operand(0));
  const ElementType to = ElementOf(op->result(0));
  const bool converts = !OnlyMoves(*row) && !(row->emit == &CastTo && element == to);
  for (size_t i = 0; converts && i < inputs.size(); ++i) {
    if (inputs[i] == nullptr || !IsNarrow(ElementOf(op->operand(i)))) continue;
    inputs[i] = FromNarrow(b, target, ElementOf(op->operand(i)), inputs[i]);
  }
  if (converts && IsNarrow(element)) element = ElementType::kF32;
  EmitContext c{b, target, op, element, type, inputs};
  const bool narrows = converts && IsNarrow(to);
  if (narrows) c.type = WideType(c);
  Value* value = row->emit(c);
  if (value == nullptr) FailUnsupported(op, StrCat("not on ", Name(element)));
  return narrows ? ToNarrow(c, to, value) : value;
}

Value* EmitCombination(llvm::IRBuilder<>& b, const Target& target, std::string_view kind,
                       ElementType element, Value* x, Value* y) {
  std::array inputs = {x, y};
  if (IsHalf(element)) {
    for (Value*& v : inputs) v = FromHalf(b, target, element, v);
  }
  EmitContext c{
      b,     target, nullptr, IsHalf(element) ? ElementType::kF32 : element, inputs[0]->getType(),
      inputs};
  const Emitter emit = kind == "add"   ? &Add
                       : kind == "mul" ? &Mul
                       : kind == "max" ? &Extremes<true>
                       : kind == "min" ? &Extremes<false>
                       : kind == "and" ? &And
                                       : &Or;
  Value* value = emit(c);
  return IsHalf(element) ? ToHalf(b, target, element, value) : value;
}

bool HasInstruction(const Operation& op, const Target& target) {
  const Row* row = FindRow(op.name());
  if (row == nullptr || op.num_operands() == 0 || op.num_results() != 1) return false;
  if (row->emit == &Fma && !target.has_fma) return false;
  const auto from = op.operand(0).type().dyn_cast<AnyTensorType>();
  const auto to = op.result(0).type().dyn_cast<AnyTensorType>();
  const bool is_small = from && to && (IsSmallFloat(from.element()) || IsSmallFloat(to.element()));
  if (is_small && !TakesSmallFloats(*row)) return false;
  if (row->emit == &BitCast &&
      (!to || !from || BitWidth(from.element()) != BitWidth(to.element()))) {
    return false;
  }
  llvm::LLVMContext context;
  return from && to && (row->types & ClassOf(from.element())) != 0 &&
         RegisterType(context, from.element()) != nullptr &&
         RegisterType(context, to.element()) != nullptr;
}

}  // namespace lathe::codegen
