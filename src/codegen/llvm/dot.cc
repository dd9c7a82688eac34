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
  ID bytes, words;
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

// Groups of integers as 32 bits, as many as there are sums.
Value* Words(llvm::IRBuilder<>& b, Value* groups, Value* sum) {
  const unsigned lanes = LanesOf(sum), bits = groups->getType()->getPrimitiveSizeInBits();
  if (bits == 32 && lanes > 1) {
    return b.CreateVectorSplat(lanes, b.CreateBitCast(groups, b.getInt32Ty()));
  }
  return b.CreateBitCast(groups, sum->getType());
}

}  // namespace

Value* Dot(llvm::IRBuilder<>& b, const Target& target, Value* a, Value* x, Value* sum) {
  a = Words(b, a, sum);
  x = Words(b, x, sum);
  const Instructions* known = InstructionsFor(target, LanesOf(sum));
  if (known != nullptr && target.has_dots()) {
    return b.CreateIntrinsic(known->bytes, {}, {sum, a, x});
  }
  for (unsigned i = 0; i < 4; ++i) {
    Value* left = b.CreateAnd(b.CreateLShr(a, 8 * i), 0xff);
    Value* right = b.CreateAShr(b.CreateShl(x, 24 - 8 * i), 24);
    sum = b.CreateAdd(sum, b.CreateMul(left, right));
  }
  return sum;
}

Value* DotWords(llvm::IRBuilder<>& b, const Target& target, Value* a, Value* x, Value* sum) {
  a = Words(b, a, sum);
  x = Words(b, x, sum);
  if (const Instructions* known = InstructionsFor(target, LanesOf(sum))) {
    llvm::Type* type = llvm::FixedVectorType::get(b.getInt16Ty(), LanesOf(sum) * 2);
    Value* products =
        b.CreateIntrinsic(known->words, {}, {b.CreateBitCast(a, type), b.CreateBitCast(x, type)});
    return b.CreateAdd(sum, products);
  }
  const auto low = [&](Value* pairs) { return b.CreateAShr(b.CreateShl(pairs, 16), 16); };
  sum = b.CreateAdd(sum, b.CreateMul(b.CreateAShr(a, 16), b.CreateAShr(x, 16)));
  return b.CreateAdd(sum, b.CreateMul(low(a), low(x)));
}

}  // namespace lathe::codegen
