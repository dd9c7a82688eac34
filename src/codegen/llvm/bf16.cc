#include "src/codegen/llvm/bf16.h"

#include <llvm/IR/IntrinsicsX86.h>

#include "src/codegen/llvm/halves.h"
#include "src/codegen/llvm/vectors.h"

namespace lathe::codegen {
namespace {

using llvm::Value;

constexpr double kLargest = 0x1.fep127;

llvm::Type* As(llvm::Type* element, const Value* like) {
  return like->getType()->getWithNewType(element);
}

// What would be rounded to infinity loses its last bits instead; infinities have none.
Value* WithinRange(llvm::IRBuilder<>& b, Value* x) {
  Value* size = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  Value* beyond = b.CreateFCmpOGT(size, llvm::ConstantFP::get(x->getType(), kLargest));
  llvm::Type* bits = As(b.getInt32Ty(), x);
  Value* cut = b.CreateAnd(b.CreateBitCast(x, bits), llvm::ConstantInt::get(bits, 0xffff0000));
  return b.CreateSelect(beyond, b.CreateBitCast(cut, x->getType()), x);
}

Value* Rounded(llvm::IRBuilder<>& b, const Target& target, Value* x) {
  if (!target.has_bf16()) return ToHalf(b, target, ElementType::kBF16, x);
  return b.CreateBitCast(b.CreateFPTrunc(x, As(b.getBFloatTy(), x)), As(b.getInt16Ty(), x));
}

// One instruction rounds both, the second vector behind the first one.
Value* RoundedPair(llvm::IRBuilder<>& b, Value* first, Value* second) {
  Value* both =
      b.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtne2ps2bf16_512, {}, {second, first});
  both = b.CreateBitCast(both, As(b.getInt16Ty(), both));
  return TakingTurns(b, {Lanes(b, both, 0, 16), Lanes(b, both, 16, 16)});
}

// The even or the odd numbers of pairs, which are 32-bit integers.
Value* Half(llvm::IRBuilder<>& b, Value* pairs, bool odd) {
  Value* bits = odd ? b.CreateAnd(pairs, 0xffff0000) : b.CreateShl(pairs, 16);
  return b.CreateBitCast(bits, As(b.getFloatTy(), bits));
}

}  // namespace

Value* Narrow(llvm::IRBuilder<>& b, const Target& target, std::vector<Value*> parts) {
  for (Value*& part : parts) part = WithinRange(b, part);
  const bool is_pair = parts.size() == 2 && LanesOf(parts[0]) == 16;
  if (target.has_bf16() && is_pair) return RoundedPair(b, parts[0], parts[1]);
  for (Value*& part : parts) part = Rounded(b, target, part);
  return parts.size() == 1 ? parts[0] : TakingTurns(b, parts);
}

// Two vectors are merged as pairs of halves; of one every other half is taken.
Value* UpperHalves(llvm::IRBuilder<>& b, std::vector<Value*> parts) {
  const auto halves = [&](Value* x) {
    return b.CreateBitCast(x, llvm::FixedVectorType::get(b.getInt16Ty(), 2 * LanesOf(x)));
  };
  if (parts.size() == 2) {
    for (Value*& part : parts) part = b.CreateBitCast(part, As(b.getInt32Ty(), part));
    return halves(b.CreateOr(b.CreateLShr(parts[0], 16), b.CreateAnd(parts[1], 0xffff0000)));
  }
  for (Value*& part : parts) {
    if (LanesOf(part) == 0) {
      part = b.CreateTrunc(b.CreateLShr(b.CreateBitCast(part, b.getInt32Ty()), 16), b.getInt16Ty());
      continue;
    }
    std::vector<int> odd(LanesOf(part));
    for (size_t i = 0; i < odd.size(); ++i) odd[i] = static_cast<int>(2 * i + 1);
    part = b.CreateShuffleVector(halves(part), odd);
  }
  return parts.size() == 1 ? parts[0] : TakingTurns(b, parts);
}

Value* DotPairs(llvm::IRBuilder<>& b, const Target& target, Value* a, Value* x, Value* sum) {
  const unsigned lanes = LanesOf(sum);
  llvm::Type* pairs = As(b.getInt32Ty(), sum);
  if (LanesOf(a) == 2) a = b.CreateVectorSplat(lanes, b.CreateBitCast(a, b.getInt32Ty()));
  a = b.CreateBitCast(a, pairs);
  x = b.CreateBitCast(x, pairs);
  if (target.has_bf16() && lanes == 16) {
    llvm::Type* type = llvm::FixedVectorType::get(b.getBFloatTy(), 2 * lanes);
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {},
                             {sum, b.CreateBitCast(a, type), b.CreateBitCast(x, type)});
  }
  for (const bool odd : {true, false}) {
    Value *left = Half(b, a, odd), *right = Half(b, x, odd);
    sum = target.has_fma
              ? b.CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()}, {left, right, sum})
              : b.CreateFAdd(b.CreateFMul(left, right), sum);
  }
  return sum;
}

}  // namespace lathe::codegen
