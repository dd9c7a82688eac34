#pragma once

#include <functional>
#include <vector>

#include "lathe/dialect/loop.h"
#include "lathe/lower/loop_builder.h"
#include "src/lower/index_math.h"

namespace lathe::lower {

/// Rows of floats as whole numbers of signed bytes, times a scale for each block of the depth, so
/// that products with bytes are exact. Of three bytes, what is lost is below 1.2e-7 of the largest
/// number of a block; of one they are as nn.matmul_nbits rounds them. Numbers of a block whose
/// places differ modulo `apart` lie in lists of their own.
class FixedRows {
 public:
  struct Form {
    Dim rows;       ///< at most
    int64_t depth;  ///< behind which the numbers of the last block are zero
    int64_t block;  ///< a multiple of lanes * apart
    int64_t apart;
    int64_t lanes;
    int64_t planes;  ///< bytes, the last one the highest: 3 or 1
  };

  FixedRows(LoopBuilder& lb, IndexMath& math, Form form) : lb_(lb), math_(math), f_(form) {}

  /// Makes them of `memory`, [rows, depth]. Returns 0, or another i64 if a block has a number that
  /// is none, or is too large or too small for three bytes: then these are of no use.
  Value Write(Value memory, const Dim& rows);
  /// Makes them of one byte, for which no number is wrong.
  void WriteRounded(Value memory, const Dim& rows);
  /// Neighbors of a list, i8 [4], from place `first` of the block on.
  Value Group(const Dim& row, int64_t plane, int64_t list, const Dim& block, const Dim& first);
  Value Scale(const Dim& row, const Dim& block);
  /// The sum of the whole numbers of a block, i32, of one byte.
  Value Sum(const Dim& row, const Dim& block);

 private:
  int64_t blocks() const;
  int64_t listed() const { return f_.block / f_.apart; }
  void Alloc();
  Value Load(Value memory, const Dim& row, const Dim& block, int64_t list, const Dim& vector);
  Value WriteBlock(Value memory, const Dim& row, const Dim& block);
  Value WriteBytes(Value memory, const Dim& row, const Dim& block, Value factor);
  void StoreBytes(Value whole, const Dim& row, int64_t list, const Dim& place);

  LoopBuilder& lb_;
  IndexMath& math_;
  Form f_;
  Value bytes_;   // [rows, planes, lists, numbers of a list]
  Value scales_;  // [rows, blocks]
  Value sums_;    // [rows, blocks], of one byte
};

/// `memory`, floats of [rows, depth], rounded as nn.matmul_nbits does, in blocks of any size: f32.
Value RoundedRows(LoopBuilder& lb, IndexMath& math, Value memory, const Dim& rows, int64_t depth,
                  int64_t block, int64_t lanes);

}  // namespace lathe::lower
