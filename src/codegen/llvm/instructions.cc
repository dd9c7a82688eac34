#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

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

// f16 is computed in f32 and rounded once.
template <class F>
Value* InF32(EmitContext& c, Value* x, F&& f) {
  llvm::Type* scalar = x->getType()->getScalarType();
  if (scalar->isFloatTy()) return f(x);
  if (!scalar->isHalfTy()) return nullptr;
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
  const double alpha = Attr(c, "alpha");
  const auto scale = [&](Value* x) {
    llvm::Type* type = x->getType();
    Value* scaled = c.b.CreateFMul(x, Splat(type, alpha));
    return c.b.CreateSelect(c.b.CreateFCmpOLT(x, Splat(type, 0)), scaled, x);
  };
  Value* x = c.inputs[0];
  return x->getType()->getScalarType()->isDoubleTy() ? scale(x) : InF32(c, x, scale);
}

Value* Where(EmitContext& c) { return c.b.CreateSelect(c.inputs[0], c.inputs[1], c.inputs[2]); }
Value* And(EmitContext& c) { return c.b.CreateAnd(c.inputs[0], c.inputs[1]); }
Value* Or(EmitContext& c) { return c.b.CreateOr(c.inputs[0], c.inputs[1]); }
Value* Xor(EmitContext& c) { return c.b.CreateXor(c.inputs[0], c.inputs[1]); }
Value* Not(EmitContext& c) { return c.b.CreateNot(c.inputs[0]); }
Value* Identity(EmitContext& c) { return c.inputs[0]; }
Value* IsNan(EmitContext& c) { return c.b.CreateFCmpUNO(c.inputs[0], c.inputs[0]); }

// Halves of a vector with one another until one element is left.
Value* Reduce(EmitContext& c) {
  const std::string_view kind = c.op->attribute("kind").cast<StrAttribute>().value();
  Value* x = c.inputs[0];
  const auto* type = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (type == nullptr) return x;
  for (int half = static_cast<int>(type->getNumElements()) / 2; half > 0; half /= 2) {
    std::vector<int> low(static_cast<size_t>(half)), high(low.size());
    std::iota(low.begin(), low.end(), 0);
    std::iota(high.begin(), high.end(), half);
    Value* parts[] = {c.b.CreateShuffleVector(x, low), c.b.CreateShuffleVector(x, high)};
    EmitContext part{c.b, c.op, c.element, parts[0]->getType(), parts};
    x = kind == "add"   ? Add(part)
        : kind == "mul" ? Mul(part)
        : kind == "max" ? Extreme<true>(part, parts[0], parts[1])
        : kind == "min" ? Extreme<false>(part, parts[0], parts[1])
        : kind == "and" ? And(part)
                        : Or(part);
  }
  return c.b.CreateExtractElement(x, uint64_t{0});
}

// What x86-64 gives: cut towards zero; the smallest i64 (i32 for types up to 32 bits, u32 excepted)
// where that does not fit and for NaN; of it the low bits.
Value* FloatToInteger(EmitContext& c) {
  Value* x = c.inputs[0];
  const ElementType to = c.op->result(0).type().cast<AnyTensorType>().element();
  const bool narrow = c.type->getScalarSizeInBits() <= 32 && to != ElementType::kU32;
  llvm::Type* wide = c.type->getWithNewType(narrow ? c.b.getInt32Ty() : c.b.getInt64Ty());
  const double limit = narrow ? 0x1p31 : 0x1p63;
  llvm::Type* type = x->getType();
  if (type->getScalarType()->isHalfTy()) {
    type = type->getWithNewType(c.b.getFloatTy());
    x = c.b.CreateFPExt(x, type);
  }
  Value* fits = c.b.CreateAnd(c.b.CreateFCmpOGE(x, Splat(type, -limit)),
                              c.b.CreateFCmpOLT(x, Splat(type, limit)));
  Value* safe = c.b.CreateSelect(fits, x, Splat(type, -limit));
  return c.b.CreateTrunc(c.b.CreateFPToSI(safe, wide), c.type);
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

struct Row {
  std::string_view name;
  uint8_t types;  ///< that its first operand may have
  Emitter emit;
};

enum : uint8_t { kF32 = 1, kF64 = 2, kInteger = 4, kBool = 8 };  // f16 counts as f32
constexpr uint8_t kFloat = kF32 | kF64, kNumber = kFloat | kInteger, kAny = kNumber | kBool;

uint8_t ClassOf(ElementType element) {
  if (element == ElementType::kBool) return kBool;
  if (element == ElementType::kF64) return kF64;
  return IsFloat(element) ? kF32 : kInteger;
}

// Sorted by name.
constexpr auto kRows = std::to_array<Row>({
    {"loop.fma", kFloat, Fma},
    {"loop.reduce", kAny, Reduce},
    {"nn.abs", kNumber, Abs},
    {"nn.add", kNumber, Add},
    {"nn.and", kBool, And},
    {"nn.bitwise_and", kInteger, And},
    {"nn.bitwise_not", kInteger, Not},
    {"nn.bitwise_or", kInteger, Or},
    {"nn.bitwise_xor", kInteger, Xor},
    {"nn.cast", kAny, CastTo},
    {"nn.ceil", kFloat, Unary<Intrinsic::ceil>},
    {"nn.clip", kNumber, Clip},
    {"nn.div", kNumber, Div},
    {"nn.equal", kAny, Compare<CmpInst::FCMP_OEQ, CmpInst::ICMP_EQ, CmpInst::ICMP_EQ>},
    {"nn.erf", kF32, Function<EmitErf, Intrinsic::not_intrinsic>},
    {"nn.exp", kFloat, Function<EmitExp, Intrinsic::exp>},
    {"nn.floor", kFloat, Unary<Intrinsic::floor>},
    {"nn.greater", kNumber, Compare<CmpInst::FCMP_OGT, CmpInst::ICMP_SGT, CmpInst::ICMP_UGT>},
    {"nn.greater_or_equal", kNumber,
     Compare<CmpInst::FCMP_OGE, CmpInst::ICMP_SGE, CmpInst::ICMP_UGE>},
    {"nn.identity", kAny, Identity},
    {"nn.is_nan", kFloat, IsNan},
    {"nn.leaky_relu", kFloat, LeakyRelu},
    {"nn.less", kNumber, Compare<CmpInst::FCMP_OLT, CmpInst::ICMP_SLT, CmpInst::ICMP_ULT>},
    {"nn.less_or_equal", kNumber, Compare<CmpInst::FCMP_OLE, CmpInst::ICMP_SLE, CmpInst::ICMP_ULE>},
    {"nn.log", kFloat, Function<EmitLog, Intrinsic::log>},
    {"nn.max", kNumber, Extremes<true>},
    {"nn.min", kNumber, Extremes<false>},
    {"nn.mul", kNumber, Mul},
    {"nn.neg", kNumber, Neg},
    {"nn.not", kBool, Not},
    {"nn.or", kBool, Or},
    {"nn.reciprocal", kFloat, Reciprocal},
    {"nn.relu", kNumber, Relu},
    {"nn.round", kFloat, Unary<Intrinsic::roundeven>},
    {"nn.sigmoid", kF32, Function<EmitSigmoid, Intrinsic::not_intrinsic>},
    {"nn.sqrt", kFloat, Unary<Intrinsic::sqrt>},
    {"nn.sub", kNumber, Sub},
    {"nn.sum", kFloat, Sum},
    {"nn.tanh", kF32, Function<EmitTanh, Intrinsic::not_intrinsic>},
    {"nn.where", kBool, Where},
    {"nn.xor", kBool, Xor},
});
static_assert(std::ranges::is_sorted(kRows, {}, &Row::name));

const Row* FindRow(std::string_view name) {
  const auto* row = std::ranges::lower_bound(kRows, name, {}, &Row::name);
  return row != kRows.end() && row->name == name ? row : nullptr;
}

}  // namespace

Emitter FindInstruction(std::string_view name) {
  const Row* row = FindRow(name);
  return row == nullptr ? nullptr : row->emit;
}

bool HasInstruction(const Operation& op) {
  const Row* row = FindRow(op.name());
  if (row == nullptr || op.num_operands() == 0 || op.num_results() != 1) return false;
  const auto from = op.operand(0).type().dyn_cast<AnyTensorType>();
  const auto to = op.result(0).type().dyn_cast<AnyTensorType>();
  llvm::LLVMContext context;
  return from && to && (row->types & ClassOf(from.element())) != 0 &&
         RegisterType(context, from.element()) != nullptr &&
         RegisterType(context, to.element()) != nullptr;
}

}  // namespace lathe::codegen
