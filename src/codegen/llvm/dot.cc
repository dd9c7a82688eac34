#include "src/codegen/llvm/dot.h"

#include <llvm/IR/IntrinsicsX86.h>

#include "src/codegen/llvm/vectors.h"

namespace lathe::codegen {
namespace {

using llvm::Value;
using llvm::Intrinsic::ID;

// By bits of a vector: the instruction for four bytes, and that for two 16-bit integers.
struct Instructions {
  unsigned bits;
  ID bytes, pairs;
};
constexpr Instructions kInstructions[] = {
    {128, llvm::Intrinsic::x86_avx512_vpdpbusd_128, llvm::Intrinsic::x86_sse2_pmadd_wd},
    {256, llvm::Intrinsic::x86_avx512_vpdpbusd_256, llvm::Intrinsic::x86_avx2_pmadd_wd},
    {512, llvm::Intrinsic::x86_avx512_vpdpbusd_512, llvm::Intrinsic::x86_avx512_pmaddw_d_512},
};

const Instructions* InstructionsFor(const Target& target, unsigned lanes) {
  if (!target.triple.starts_with("x86_64")) return nullptr;
  for (const Instructions& i : kInstructions) {
    if (i.bits == lanes * 32 && i.bits <= static_cast<unsigned>(target.vector_bytes) * 8) return &i;
  }
  return nullptr;
}

// The even bytes and the odd ones as 16-bit integers: their products, in pairs, are exact.
Value* DotOfPairs(llvm::IRBuilder<>& b, ID multiply, Value* a, Value* x, Value* sum) {
  llvm::Type* type = llvm::FixedVectorType::get(b.getInt16Ty(), LanesOf(sum) * 2);
  a = b.CreateBitCast(a, type);
  x = b.CreateBitCast(x, type);
  Value* even =
      b.CreateIntrinsic(multiply, {}, {b.CreateAnd(a, 0xff), b.CreateAShr(b.CreateShl(x, 8), 8)});
  Value* odd = b.CreateIntrinsic(multiply, {}, {b.CreateLShr(a, 8), b.CreateAShr(x, 8)});
  return b.CreateAdd(sum, b.CreateAdd(even, odd));
}

Value* DotOfBytes(llvm::IRBuilder<>& b, Value* a, Value* x, Value* sum) {
  for (unsigned i = 0; i < 4; ++i) {
    Value* left = b.CreateAnd(b.CreateLShr(a, 8 * i), 0xff);
    Value* right = b.CreateAShr(b.CreateShl(x, 24 - 8 * i), 24);
    sum = b.CreateAdd(sum, b.CreateMul(left, right));
  }
  return sum;
}

}  // namespace

Value* Dot(llvm::IRBuilder<>& b, const Target& target, Value* a, Value* x, Value* sum) {
  const unsigned lanes = LanesOf(sum);
  for (Value** bytes : {&a, &x}) {
    if (LanesOf(*bytes) != 4 || lanes == 1) continue;
    *bytes = b.CreateVectorSplat(lanes, b.CreateBitCast(*bytes, b.getInt32Ty()));
  }
  a = b.CreateBitCast(a, sum->getType());
  x = b.CreateBitCast(x, sum->getType());
  const Instructions* known = InstructionsFor(target, lanes);
  if (known == nullptr) return DotOfBytes(b, a, x, sum);
  if (target.has_dots()) return b.CreateIntrinsic(known->bytes, {}, {sum, a, x});
  return DotOfPairs(b, known->pairs, a, x, sum);
}

}  // namespace lathe::codegen
