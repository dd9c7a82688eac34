#include "src/codegen/llvm/vectors.h"

#include <llvm/Analysis/VectorUtils.h>

#include <algorithm>

namespace lathe::codegen {
namespace {

using llvm::Value;

constexpr unsigned kBlockBytes = 16;  // shuffles within these are the cheap ones of x86

// The lower (upper) halves of each run of `run` lanes of x and y, `width` lanes of each in turn.
Value* Interleaved(llvm::IRBuilder<>& b, Value* x, Value* y, unsigned run, unsigned width,
                   bool upper) {
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(x->getType())->getNumElements();
  std::vector<int> mask;
  for (unsigned begin = 0; begin < lanes; begin += run) {
    const unsigned half = begin + (upper ? run / 2 : 0);
    for (unsigned at = half; at < half + run / 2; at += width) {
      for (unsigned i = 0; i < width; ++i) mask.push_back(static_cast<int>(at + i));
      for (unsigned i = 0; i < width; ++i) mask.push_back(static_cast<int>(lanes + at + i));
    }
  }
  return b.CreateShuffleVector(x, y, mask);
}

unsigned Reversed(unsigned value, unsigned end) {
  unsigned result = 0;
  for (unsigned bit = 1; bit < end; bit *= 2) {
    result = result * 2 + ((value & bit) != 0 ? 1 : 0);
  }
  return result;
}

}  // namespace

unsigned LanesOf(const Value* v) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  return vector == nullptr ? 0 : vector->getNumElements();
}

Value* Lanes(llvm::IRBuilder<>& b, Value* x, unsigned begin, unsigned count) {
  std::vector<int> mask;
  for (unsigned i = 0; i < count; ++i) mask.push_back(static_cast<int>(begin + i));
  return b.CreateShuffleVector(x, mask);
}

// Interleaving rows i and i + w, w = 1, 2, ..., within blocks turns each block of the tile; the
// blocks then are the elements of smaller tiles, which are turned by interleaving across them.
std::vector<Value*> Transposed(llvm::IRBuilder<>& b, std::vector<Value*> rows) {
  const auto n = static_cast<unsigned>(rows.size());
  const unsigned bytes = rows[0]->getType()->getScalarSizeInBits() / 8;
  const unsigned block = std::min(n, std::max(1U, kBlockBytes / std::max(1U, bytes)));
  const auto stage = [&](unsigned distance, unsigned run, unsigned width) {
    for (unsigned i = 0; i < n; ++i) {
      if ((i & distance) != 0) continue;
      Value *x = rows[i], *y = rows[i + distance];
      rows[i] = Interleaved(b, x, y, run, width, false);
      rows[i + distance] = Interleaved(b, x, y, run, width, true);
    }
  };
  for (unsigned w = 1; w < block; w *= 2) stage(w, block, w);
  for (unsigned w = block; w < n; w *= 2) stage(w, n, w);
  // Column c now is row c with the bits within a block, and those above, in reverse.
  std::vector<Value*> columns(n);
  for (unsigned c = 0; c < n; ++c) {
    columns[c] = rows[Reversed(c % block, block) + block * Reversed(c / block, n / block)];
  }
  return columns;
}

Value* TakingTurns(llvm::IRBuilder<>& b, const std::vector<Value*>& parts) {
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(parts[0]->getType())->getNumElements();
  const bool repeats = std::ranges::all_of(parts, [&](Value* v) { return v == parts[0]; });
  std::vector<int> mask;
  for (unsigned i = 0; i < lanes; ++i) {
    for (unsigned j = 0; j < parts.size(); ++j) {
      mask.push_back(static_cast<int>(repeats ? i : j * lanes + i));
    }
  }
  return b.CreateShuffleVector(repeats ? parts[0] : llvm::concatenateVectors(b, parts), mask);
}

}  // namespace lathe::codegen
