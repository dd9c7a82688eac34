#pragma once

#include <functional>

#include "lathe/lower/loop_builder.h"
#include "lathe/lower/lower_function.h"

namespace lathe::lower {

/// a * b + sum, rounded once where the machine can; of groups of bytes, or pairs of bf16 or i16,
/// all their products.
Value MulAdd(LoopBuilder& lb, const Machine& machine, Value a, Value b, Value sum);

/// Sums of products that stay in registers while a loop goes down the depth: `rows` scalars, or
/// groups (loop.dot, loop.dot_pairs), times `vectors` vectors.
struct RegisterTile {
  int64_t rows = 1;
  int64_t vectors = 1;
  ElementType element = ElementType::kF32;

  /// Scalar of row r and vector number v at depth k.
  std::function<Value(int64_t r, Value k)> scalar;
  std::function<Value(int64_t v, Value k)> vector;
  /// Where a sum starts: a scalar or a vector.
  std::function<Value(int64_t r, int64_t v)> start;
  /// Takes a finished sum.
  std::function<void(int64_t r, int64_t v, Value sum)> finish;

  /// Writes what is done at each depth besides; without: nothing.
  std::function<void(Value k)> beside = {};

  void Write(LoopBuilder& lb, const Machine& machine, const Dim& depth) const;
  void Write(LoopBuilder& lb, const Machine& machine, Value depth) const;
};

}  // namespace lathe::lower
