#include "src/codegen/llvm/byte_table.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <numeric>
#include <vector>

#include "src/codegen/llvm/vectors.h"

namespace lathe::codegen {
namespace {

namespace Intrinsic = llvm::Intrinsic;
using llvm::Value;

constexpr unsigned kBytes = 64;  // of a register

// With lanes behind the last one that hold anything.
Value* Widened(llvm::IRBuilder<>& b, Value* vector, unsigned lanes) {
  std::vector<int> places(lanes, llvm::PoisonMaskElem);
  std::iota(places.begin(), places.begin() + LanesOf(vector), 0);
  return b.CreateShuffleVector(vector, places);
}

// Of elements that fill a register, by their numbers: the table is four registers, of which a
// permutation knows two; the number's bit behind what it reads says which.
Value* Elements(llvm::IRBuilder<>& b, Intrinsic::ID permute, Value* table, Value* numbers) {
  auto* type = llvm::cast<llvm::FixedVectorType>(numbers->getType());
  const auto quarter = [&](unsigned i) {
    Value* address = b.CreateConstGEP1_64(b.getInt8Ty(), table, uint64_t{i} * kBytes);
    return b.CreateAlignedLoad(type, address, llvm::Align(1));
  };
  const auto half = [&](unsigned i) {
    return b.CreateIntrinsic(permute, {}, {quarter(2 * i), numbers, quarter(2 * i + 1)});
  };
  Value* bit = b.CreateAnd(numbers, llvm::ConstantInt::get(type, 2 * type->getNumElements()));
  Value* is_low = b.CreateICmpEQ(bit, llvm::Constant::getNullValue(type));
  return b.CreateSelect(is_low, half(0), half(1));
}

// Half a register of bytes: of the pair that has the entry, the byte that the lowest bit asks for.
Value* EntriesOfPairs(llvm::IRBuilder<>& b, Value* table, Value* bytes) {
  auto* pairs = llvm::FixedVectorType::get(b.getInt16Ty(), kBytes / 2);
  Value* numbers = b.CreateZExt(bytes, pairs);
  Value* found = Elements(b, Intrinsic::x86_avx512_vpermi2var_hi_512, table,
                          b.CreateLShr(numbers, uint64_t{1}));
  Value* places = b.CreateShl(b.CreateAnd(numbers, uint64_t{1}), uint64_t{3});
  return b.CreateTrunc(b.CreateLShr(found, places), bytes->getType());
}

}  // namespace

Value* EntriesOfBytes(llvm::IRBuilder<>& b, const Target& target, Value* table, Value* bytes) {
  const unsigned lanes = LanesOf(bytes);
  if (target.permutes_bytes()) {
    Value* numbers = Widened(b, bytes, kBytes);
    Value* found = Elements(b, Intrinsic::x86_avx512_vpermi2var_qi_512, table, numbers);
    return Lanes(b, found, 0, lanes);
  }
  constexpr unsigned kHalf = kBytes / 2;
  if (lanes <= kHalf) return Lanes(b, EntriesOfPairs(b, table, Widened(b, bytes, kHalf)), 0, lanes);
  Value* numbers = Widened(b, bytes, kBytes);
  Value* first = EntriesOfPairs(b, table, Lanes(b, numbers, 0, kHalf));
  Value* second = EntriesOfPairs(b, table, Lanes(b, numbers, kHalf, kHalf));
  std::vector<int> places(lanes);
  std::iota(places.begin(), places.end(), 0);
  return b.CreateShuffleVector(first, second, places);
}

}  // namespace lathe::codegen
