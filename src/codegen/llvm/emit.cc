#include "src/codegen/llvm/emit.h"

#include <charconv>

#include "lathe/support/error.h"
#include "src/support/dim_node.h"

namespace lathe::codegen {

using internal::DimKind;
using internal::DimNode;

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

// ---- dim expressions: their depth is bounded, so recursion over them is too ----

namespace {

class DimEmitter {
 public:
  DimEmitter(llvm::IRBuilder<>& b, std::span<llvm::Value* const> symbols, bool may_overflow)
      : b_(b), symbols_(symbols), no_overflow_(!may_overflow) {}

  llvm::Value* Emit(const Dim& dim) {
    if (dim.is_constant()) return b_.getInt64(static_cast<uint64_t>(dim.value()));
    const DimNode* node = DimNode::Of(dim);
    LATHE_CHECK(node != nullptr, "an unknown dim in an index");
    if (node->kind == DimKind::kSymbol) return Symbol(node->name);
    if (node->kind == DimKind::kSum) return Sum(node->sum);
    llvm::Value* value = Emit(node->operands[0]);
    for (size_t i = 1; i < node->operands.size(); ++i) {
      value = Function(node->kind, value, Emit(node->operands[i]));
    }
    return value;
  }

 private:
  llvm::Value* Symbol(const std::string& name) {
    size_t number = 0;
    std::from_chars(name.data() + 1, name.data() + name.size(), number);
    return symbols_[number];
  }
  llvm::Value* Sum(const internal::DimPoly& poly) {
    llvm::Value* sum = nullptr;
    for (const internal::DimTerm& term : poly.terms) {
      llvm::Value* product = nullptr;
      for (const Dim& factor : term.factors) {
        llvm::Value* value = Emit(factor);
        product = product == nullptr ? value : Mul(product, value);
      }
      if (term.coefficient != 1) {
        product = Mul(product, llvm::ConstantInt::getSigned(b_.getInt64Ty(), term.coefficient));
      }
      sum = sum == nullptr ? product : Add(sum, product);
    }
    if (poly.constant == 0) return sum;
    return Add(sum, llvm::ConstantInt::getSigned(b_.getInt64Ty(), poly.constant));
  }
  llvm::Value* Mul(llvm::Value* x, llvm::Value* y) {
    return b_.CreateMul(x, y, "", /*HasNUW=*/false, no_overflow_);
  }
  llvm::Value* Add(llvm::Value* x, llvm::Value* y) {
    return b_.CreateAdd(x, y, "", /*HasNUW=*/false, no_overflow_);
  }
  // Divisions round towards minus infinity; indices and extents are not negative.
  llvm::Value* Function(DimKind kind, llvm::Value* x, llvm::Value* y) {
    switch (kind) {
      case DimKind::kFloorDiv:
        return FloorDiv(x, y);
      case DimKind::kCeilDiv:
        return b_.CreateNeg(FloorDiv(b_.CreateNeg(x), y));
      case DimKind::kMod:
        return b_.CreateSub(x, b_.CreateMul(FloorDiv(x, y), y));
      case DimKind::kMin:
        return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y);
      case DimKind::kMax:
        return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, y);
      case DimKind::kBroadcast:
        return b_.CreateSelect(b_.CreateICmpEQ(x, b_.getInt64(1)), y, x);
      default:
        LATHE_CHECK(false, "no instructions for this dim expression");
        return x;
    }
  }
  // By zero: x. Sizes that contradict one another must not end the process.
  llvm::Value* FloorDiv(llvm::Value* x, llvm::Value* y) {
    if (!llvm::isa<llvm::ConstantInt>(y)) {
      y = b_.CreateSelect(b_.CreateIsNull(y), b_.getInt64(1), y);
    }
    llvm::Value* quotient = b_.CreateSDiv(x, y);
    llvm::Value* rest = b_.CreateSub(x, b_.CreateMul(quotient, y));
    llvm::Value* below = b_.CreateAnd(b_.CreateICmpNE(rest, b_.getInt64(0)),
                                      b_.CreateICmpSLT(b_.CreateXor(rest, y), b_.getInt64(0)));
    return b_.CreateSub(quotient, b_.CreateZExt(below, b_.getInt64Ty()));
  }

  llvm::IRBuilder<>& b_;
  std::span<llvm::Value* const> symbols_;
  bool no_overflow_;
};

}  // namespace

llvm::Value* EmitDim(llvm::IRBuilder<>& b, const Dim& dim, std::span<llvm::Value* const> symbols,
                     bool may_overflow) {
  return DimEmitter(b, symbols, may_overflow).Emit(dim);
}

}  // namespace lathe::codegen
