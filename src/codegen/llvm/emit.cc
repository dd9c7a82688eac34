#include "src/codegen/llvm/emit.h"

#include <optional>

#include "lathe/support/error.h"

namespace lathe::codegen {

using internal::DimKind;

bool EmitContext::is_signed() const { return IsSigned(element); }

llvm::Type* RegisterType(llvm::LLVMContext& context, ElementType element) {
  if (element == ElementType::kBool) return llvm::Type::getInt1Ty(context);
  return MemoryType(context, element);
}

llvm::Type* MemoryType(llvm::LLVMContext& context, ElementType element) {
  switch (element) {
    case ElementType::kF32:
      return llvm::Type::getFloatTy(context);
    case ElementType::kF64:
      return llvm::Type::getDoubleTy(context);
    case ElementType::kBool:
    case ElementType::kI8:
    case ElementType::kU8:
    case ElementType::kF8E4M3FN:
    case ElementType::kF8E4M3FNUZ:
    case ElementType::kF8E5M2:
    case ElementType::kF8E5M2FNUZ:
    case ElementType::kF8E8M0:
      return llvm::Type::getInt8Ty(context);
    case ElementType::kI16:
    case ElementType::kU16:
    case ElementType::kF16:
    case ElementType::kBF16:
      return llvm::Type::getInt16Ty(context);
    case ElementType::kI32:
    case ElementType::kU32:
      return llvm::Type::getInt32Ty(context);
    case ElementType::kI64:
    case ElementType::kU64:
      return llvm::Type::getInt64Ty(context);
    default:
      return nullptr;
  }
}

llvm::Constant* Splat(llvm::Type* like, double value) { return llvm::ConstantFP::get(like, value); }

void FailUnsupported(const Operation* op, std::string_view why) {
  Error error(ErrorCode::kUnsupported, "codegen/unsupported",
              StrCat(op != nullptr ? op->name() : "a kernel's argument", ": ", why));
  if (op != nullptr) error.At(op->location().ToString(*op->context()));
  throw error;
}

namespace {

// The power of two that a constant is; nothing for others.
std::optional<unsigned> PowerOfTwo(const llvm::Value* x) {
  const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(x);
  if (constant == nullptr || !constant->getValue().isPowerOf2()) return std::nullopt;
  return constant->getValue().logBase2();
}

bool IsZero(const llvm::Value* x) {
  const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(x);
  return constant != nullptr && constant->isZero();
}

// By zero: x. Sizes that contradict one another must not end the process, and a division is
// computed before the loops around it, whether or not they run.
llvm::Value* FloorDiv(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y) {
  if (IsZero(y)) return x;
  if (const auto power = PowerOfTwo(y)) return b.CreateAShr(x, *power);
  if (!llvm::isa<llvm::ConstantInt>(y)) y = b.CreateSelect(b.CreateIsNull(y), b.getInt64(1), y);
  llvm::Value* quotient = b.CreateSDiv(x, y);
  llvm::Value* rest = b.CreateSub(x, b.CreateMul(quotient, y));
  llvm::Value* below = b.CreateAnd(b.CreateICmpNE(rest, b.getInt64(0)),
                                   b.CreateICmpSLT(b.CreateXor(rest, y), b.getInt64(0)));
  return b.CreateSub(quotient, b.CreateZExt(below, b.getInt64Ty()));
}

}  // namespace

// Divisions round towards minus infinity; indices and extents are not negative.
llvm::Value* EmitDimFunction(llvm::IRBuilder<>& b, DimKind kind, llvm::Value* x, llvm::Value* y) {
  switch (kind) {
    case DimKind::kFloorDiv:
      return FloorDiv(b, x, y);
    case DimKind::kCeilDiv:
      return b.CreateNeg(FloorDiv(b, b.CreateNeg(x), y));
    case DimKind::kMod:
      if (PowerOfTwo(y)) return b.CreateAnd(x, b.CreateSub(y, b.getInt64(1)));
      return b.CreateSub(x, b.CreateMul(FloorDiv(b, x, y), y));
    case DimKind::kMin:
      return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y);
    case DimKind::kMax:
      return b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, y);
    case DimKind::kBroadcast:
      return b.CreateSelect(b.CreateICmpEQ(x, b.getInt64(1)), y, x);
    default:
      LATHE_CHECK(false, "no instructions for this dim expression");
      return x;
  }
}

}  // namespace lathe::codegen
