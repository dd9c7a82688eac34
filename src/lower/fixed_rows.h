#pragma once

#include "lathe/dialect/loop.h"
#include "lathe/lower/loop_builder.h"
#include "src/lower/index_math.h"

namespace lathe::lower {

/// Rows of floats as whole numbers of three signed bytes, times a scale for each block of the
/// depth: what is lost is below 1.2e-7 of the largest number of a block, and products with bytes
/// are exact. Numbers of a block whose places differ modulo `apart` lie in lists of their own.
class FixedRows {
 public:
  struct Form {
    Dim rows;       ///< at most
    int64_t depth;  ///< behind which the numbers of the last block are zero
    int64_t block;  ///< a multiple of lanes * apart
    int64_t apart;
    int64_t lanes;
  };
  static constexpr int64_t kPlanes = 3;  ///< bytes, the last one the highest

  FixedRows(LoopBuilder& lb, IndexMath& math, Form form) : lb_(lb), math_(math), f_(form) {}

  /// Makes them of `memory`, [rows, depth]. Returns 0, or another i64 if a block has a number that
  /// is none, or is too large or too small for this: then the bytes are of no use.
  Value Write(Value memory, const Dim& rows);
  /// Neighbors of a list, i8 [4], from place `first` of the block on.
  Value Group(const Dim& row, int64_t plane, int64_t list, const Dim& block, const Dim& first);
  Value Scale(const Dim& row, const Dim& block);

 private:
  int64_t blocks() const;
  int64_t listed() const { return f_.block / f_.apart; }
  Value Load(Value memory, const Dim& row, const Dim& block, int64_t list, const Dim& vector);
  Value WriteBlock(Value memory, const Dim& row, const Dim& block);
  void WriteBytes(Value memory, const Dim& row, const Dim& block, Value factor);

  LoopBuilder& lb_;
  IndexMath& math_;
  Form f_;
  Value bytes_;   // [rows, planes, lists, numbers of a list]
  Value scales_;  // [rows, blocks]
};

}  // namespace lathe::lower
