#pragma once

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/IRBuilder.h>

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "lathe/support/dim.h"
#include "src/support/dim_node.h"

namespace lathe::codegen {

/// A sum of products of integers, which indices and addresses are made from.
class IndexSum {
 public:
  static constexpr size_t kMaxFactors = 4;  ///< of a term
  static constexpr size_t kMaxTerms = 16;

  /// Values that are no sums themselves, by their numbers, which begin with 1; zeros come first.
  using Factors = std::array<uint32_t, kMaxFactors>;
  struct Term {
    Factors factors = {};
    int64_t coefficient = 0;
  };

  IndexSum() = default;
  IndexSum(int64_t constant) : constant_(constant) {}  // NOLINT: implicit, as integers are
  static IndexSum Of(const Term& term);

  const llvm::SmallVector<Term, 4>& terms() const { return terms_; }
  int64_t constant() const { return constant_; }
  bool is_constant() const { return terms_.empty(); }
  IndexSum WithoutConstant() const;

  void Add(const IndexSum& other, int64_t times = 1);
  /// Whether every term is a multiple of `divisor`, which is positive.
  bool IsMultiple(int64_t divisor) const;
  /// Of the constant the floor.
  IndexSum DividedBy(int64_t divisor) const;

 private:
  void Add(const Term& term);

  llvm::SmallVector<Term, 4> terms_;  // by factors, none with coefficient 0
  int64_t constant_ = 0;
};

/// Writes the arithmetic of a function's indices, each value once, and in the outermost loop whose
/// values it needs. Addresses in innermost loops advance by additions. So LLVM has neither to look
/// for what loops do not change nor to find out how they count. An overflow wraps around.
class Indices {
 public:
  explicit Indices(llvm::IRBuilder<>& b) : b_(b), loops_(1) {}

  /// A loop begins: the builder is behind `counter` in its first block. `is_innermost`: there are
  /// no loops in it.
  void Enter(llvm::PHINode* counter, llvm::Value* begin, bool is_innermost);
  /// It ends: the builder is at the end of its last block, which lacks its branch.
  void Leave();
  /// Loops around the builder.
  size_t depth() const { return loops_.size() - 1; }

  /// A value that is there in the loops around `depth` already.
  IndexSum Of(llvm::Value* value, size_t depth);
  IndexSum Of(llvm::Value* value) { return Of(value, depth()); }
  /// An expression over d0, d1, ...
  IndexSum Of(const Dim& expr, std::span<const IndexSum> symbols);
  IndexSum Product(const IndexSum& x, const IndexSum& y);

  llvm::Value* ValueOf(const IndexSum& sum);
  /// `base` plus `elements`; `base` is there in the whole function.
  llvm::Value* Address(llvm::Value* base, llvm::Type* element, const IndexSum& elements);
  /// The same, there in the whole function.
  llvm::Value* Base(llvm::Value* base, llvm::Type* element, int64_t elements);

 private:
  using Key = std::vector<uint64_t>;
  struct Factor {
    llvm::Value* value = nullptr;
    size_t depth = 0;
  };
  /// Bytes that a loop has advanced by.
  struct Offset {
    llvm::PHINode* bytes = nullptr;
    llvm::Value* step = nullptr;
    llvm::SmallVector<llvm::GetElementPtrInst*, 4> addresses;
  };
  struct Loop {
    llvm::PHINode* counter = nullptr;
    llvm::Value* begin = nullptr;
    llvm::Instruction* before = nullptr;  ///< the branch to the loop
    uint32_t factor = 0;                  ///< the counter's number
    bool is_innermost = false;
    std::map<Key, llvm::Value*> made;  ///< looked up, never iterated
    std::map<Key, size_t> offset_numbers;
    std::vector<Offset> offsets;
  };

  uint32_t NumberOf(llvm::Value* value, size_t depth);
  IndexSum AsFactor(const IndexSum& sum);
  IndexSum Function(internal::DimKind kind, const IndexSum& x, const IndexSum& y);
  IndexSum SumOf(const internal::DimPoly& poly, std::span<const IndexSum> symbols);
  size_t DepthOf(const IndexSum::Term& term) const;
  size_t DepthOf(const IndexSum& sum) const;
  void Split(const IndexSum& sum, size_t depth, IndexSum& outer, IndexSum& inner) const;
  void MoveTo(size_t depth);
  llvm::Value* Make(const IndexSum& sum, size_t depth);
  llvm::Value* Pointer(llvm::Value* base, llvm::Type* element, const IndexSum& elements);
  bool StepOf(const IndexSum& elements, const Loop& loop, IndexSum& step) const;
  Offset& OffsetBy(const IndexSum& step, uint64_t element_bytes);
  llvm::Value* Advancing(llvm::Value* base, llvm::Type* element, const IndexSum& step);
  void Advance(Offset& offset, llvm::BasicBlock* last);

  llvm::IRBuilder<>& b_;
  std::vector<Loop> loops_;                          // the first one stands for the function
  std::vector<Factor> factors_;                      // number 1 is the first
  std::unordered_map<llvm::Value*, IndexSum> sums_;  // looked up, never iterated
};

}  // namespace lathe::codegen
