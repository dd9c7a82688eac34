#include "src/codegen/llvm/byte_table.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace lathe::codegen {
namespace {

using llvm::Value;

constexpr unsigned kBytes = 64;  // of a register

Value* Resized(llvm::IRBuilder<>& b, Value* bytes, unsigned lanes) {
  const unsigned had = llvm::cast<llvm::FixedVectorType>(bytes->getType())->getNumElements();
  if (had == lanes) return bytes;
  std::vector<int> places(lanes, llvm::PoisonMaskElem);
  std::iota(places.begin(), places.begin() + std::min(had, lanes), 0);
  return b.CreateShuffleVector(bytes, places);
}

}  // namespace

// Each half of the table is two registers; the highest bit of a byte says which half.
Value* EntriesOfBytes(llvm::IRBuilder<>& b, Value* table, Value* bytes) {
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(bytes->getType())->getNumElements();
  auto* type = llvm::FixedVectorType::get(b.getInt8Ty(), kBytes);
  const auto quarter = [&](unsigned i) {
    Value* address = b.CreateConstGEP1_64(b.getInt8Ty(), table, uint64_t{i} * kBytes);
    return b.CreateAlignedLoad(type, address, llvm::Align(1));
  };
  Value* places = Resized(b, bytes, kBytes);
  const auto half = [&](unsigned i) {
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_qi_512, {},
                             {quarter(2 * i), places, quarter(2 * i + 1)});
  };
  Value* is_high = b.CreateICmpSLT(places, llvm::Constant::getNullValue(type));
  return Resized(b, b.CreateSelect(is_high, half(1), half(0)), lanes);
}

}  // namespace lathe::codegen
