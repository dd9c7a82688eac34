#include <algorithm>
#include <array>
#include <limits>

#include "src/codegen/llvm/emit.h"
#include "src/codegen/llvm/math.h"

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

// f16 and bf16 are computed in f32 and rounded once.
template <class F>
Value* InF32(EmitContext& c, Value* x, F&& f) {
  llvm::Type* scalar = x->getType()->getScalarType();
  if (scalar->isFloatTy()) return f(x);
  if (!scalar->isHalfTy() && !scalar->isBFloatTy()) return nullptr;
  llvm::Type* wide = x->getType()->getWithNewType(c.b.getFloatTy());
  return c.b.CreateFPTrunc(f(c.b.CreateFPExt(x, wide)), x->getType());
}

// A function of f32 that we have, or the C library's of f64, lane by lane.
template <Value* (*F32)(llvm::IRBuilder<>&, Value*), llvm::Intrinsic::ID F64>
Value* Function(EmitContext& c) {
  Value* x = c.inputs[0];
  if (x->getType()->getScalarType()->isDoubleTy()) {
    return F64 == Intrinsic::not_intrinsic ? nullptr : c.b.CreateUnaryIntrinsic(F64, x);
  }
  return InF32(c, x, [&](Value* v) { return F32(c.b, v); });
}

template <llvm::Intrinsic::ID kId>
Value* Unary(EmitContext& c) {
  return c.is_float() ? c.b.CreateUnaryIntrinsic(kId, c.inputs[0]) : nullptr;
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

// The greater (lesser) one; NaN if either is NaN.
template <bool kMax>
Value* Extreme(EmitContext& c, Value* x, Value* y) {
  Value* take_y = nullptr;
  if (c.is_float()) {
    take_y = c.b.CreateFCmp(kMax ? CmpInst::FCMP_OLT : CmpInst::FCMP_OGT, x, y);
    take_y = c.b.CreateAnd(c.b.CreateOr(take_y, c.b.CreateFCmpUNO(y, y)), c.b.CreateFCmpORD(x, x));
  } else if (c.is_signed()) {
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
    result = c.is_float() ? c.b.CreateFAdd(result, c.inputs[i]) : c.b.CreateAdd(result, c.inputs[i]);
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
  if (!c.is_float()) return nullptr;
  Value* x = c.inputs[0];
  Value* scaled = c.b.CreateFMul(x, Splat(c.type, Attr(c, "alpha")));
  return c.b.CreateSelect(c.b.CreateFCmpOLT(x, Splat(c.type, 0)), scaled, x);
}
Value* Sqrt(EmitContext& c) { return Unary<Intrinsic::sqrt>(c); }

Value* Where(EmitContext& c) { return c.b.CreateSelect(c.inputs[0], c.inputs[1], c.inputs[2]); }
Value* And(EmitContext& c) { return c.b.CreateAnd(c.inputs[0], c.inputs[1]); }
Value* Or(EmitContext& c) { return c.b.CreateOr(c.inputs[0], c.inputs[1]); }
Value* Xor(EmitContext& c) { return c.b.CreateXor(c.inputs[0], c.inputs[1]); }
Value* Not(EmitContext& c) { return c.b.CreateNot(c.inputs[0]); }
Value* Identity(EmitContext& c) { return c.inputs[0]; }
Value* IsNan(EmitContext& c) { return c.b.CreateFCmpUNO(c.inputs[0], c.inputs[0]); }

// Casts whose result every value of the source has; the others go through the interpreter.
Value* CastTo(EmitContext& c) {
  Value* x = c.inputs[0];
  llvm::Type *from = x->getType()->getScalarType(), *to = c.type->getScalarType();
  if (from == to) return x;
  if (to->isIntegerTy(1)) {
    llvm::Constant* zero = llvm::Constant::getNullValue(x->getType());
    return c.is_float() ? c.b.CreateFCmpUNE(x, zero) : c.b.CreateICmpNE(x, zero);
  }
  const bool is_signed = c.is_signed();
  if (to->isFloatingPointTy()) {
    if (c.is_float()) return c.b.CreateFPCast(x, c.type);
    return is_signed ? c.b.CreateSIToFP(x, c.type) : c.b.CreateUIToFP(x, c.type);
  }
  return c.is_float() ? nullptr : c.b.CreateIntCast(x, c.type, is_signed);
}

struct Row {
  std::string_view name;
  Emitter emit;
};

// Sorted by name.
constexpr auto kRows = std::to_array<Row>({
    {"loop.fma", Fma},
    {"nn.abs", Abs},
    {"nn.add", Add},
    {"nn.and", And},
    {"nn.bitwise_and", And},
    {"nn.bitwise_not", Not},
    {"nn.bitwise_or", Or},
    {"nn.bitwise_xor", Xor},
    {"nn.cast", CastTo},
    {"nn.ceil", Unary<Intrinsic::ceil>},
    {"nn.clip", Clip},
    {"nn.div", Div},
    {"nn.equal", Compare<CmpInst::FCMP_OEQ, CmpInst::ICMP_EQ, CmpInst::ICMP_EQ>},
    {"nn.erf", Function<EmitErf, Intrinsic::not_intrinsic>},
    {"nn.exp", Function<EmitExp, Intrinsic::exp>},
    {"nn.floor", Unary<Intrinsic::floor>},
    {"nn.greater", Compare<CmpInst::FCMP_OGT, CmpInst::ICMP_SGT, CmpInst::ICMP_UGT>},
    {"nn.greater_or_equal", Compare<CmpInst::FCMP_OGE, CmpInst::ICMP_SGE, CmpInst::ICMP_UGE>},
    {"nn.identity", Identity},
    {"nn.is_nan", IsNan},
    {"nn.leaky_relu", LeakyRelu},
    {"nn.less", Compare<CmpInst::FCMP_OLT, CmpInst::ICMP_SLT, CmpInst::ICMP_ULT>},
    {"nn.less_or_equal", Compare<CmpInst::FCMP_OLE, CmpInst::ICMP_SLE, CmpInst::ICMP_ULE>},
    {"nn.log", Function<EmitLog, Intrinsic::log>},
    {"nn.max", Extremes<true>},
    {"nn.min", Extremes<false>},
    {"nn.mul", Mul},
    {"nn.neg", Neg},
    {"nn.not", Not},
    {"nn.or", Or},
    {"nn.reciprocal", Reciprocal},
    {"nn.relu", Relu},
    {"nn.round", Unary<Intrinsic::roundeven>},
    {"nn.sigmoid", Function<EmitSigmoid, Intrinsic::not_intrinsic>},
    {"nn.sqrt", Sqrt},
    {"nn.sub", Sub},
    {"nn.sum", Sum},
    {"nn.tanh", Function<EmitTanh, Intrinsic::not_intrinsic>},
    {"nn.where", Where},
    {"nn.xor", Xor},
});
static_assert(std::ranges::is_sorted(kRows, {}, &Row::name));

}  // namespace

Emitter FindInstruction(std::string_view name) {
  const auto* row = std::ranges::lower_bound(kRows, name, {}, &Row::name);
  return row != kRows.end() && row->name == name ? row->emit : nullptr;
}

}  // namespace lathe::codegen
