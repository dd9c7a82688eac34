#pragma once

#include <cstdint>
#include <vector>

#include "lathe/ir/interfaces.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

/// The constants and immutable parameters of a program that take at most `limit` bytes.
class ProgramConstants : public ValueFacts {
 public:
  explicit ProgramConstants(const Program& program, size_t limit = SIZE_MAX)
      : program_(program), limit_(limit) {}
  const Tensor* Constant(Value value) override;

 private:
  const Program& program_;
  size_t limit_;
};

/// What the op's own Fold says: for each result the value that stands for it, or null. Constants
/// are made before `op`. A value whose type says less than the result's is no replacement. Empty
/// if the op has no Fold, works on mutable tensors, or nothing folds.
std::vector<Value> FoldResults(Operation* op, ValueFacts& facts, Rewriter& rewriter);

}  // namespace lathe
