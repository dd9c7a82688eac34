#pragma once

#include <functional>
#include <span>
#include <vector>

#include "lathe/lower/loop_builder.h"
#include "lathe/lower/lower_function.h"

namespace lathe::lower {

/// Rows and vectors of sums that are held in registers.
struct Tile {
  int64_t rows;
  int64_t vectors;
};

/// The tile for a product of that many rows and columns. With `few_rows` or less the panel is wide,
/// since it is read only once; else it has `most_vectors`.
Tile PickTile(const Dim& rows, const Dim& columns, int64_t lanes, int registers, int64_t few_rows,
              int64_t most_vectors = 2);

/// Sums of products of rows and a panel of columns, tile by tile: each tile walks down the panel
/// with its sums in registers [Goto, van de Geijn: Anatomy of High-Performance Matrix
/// Multiplication, 2008].
class PanelProduct {
 public:
  PanelProduct(LoopBuilder& lb, const Machine& machine, ElementType element, Tile tile)
      : lb_(lb), machine_(machine), element_(element), tile_(tile) {}

  /// The scalar of a row at depth k.
  std::function<Value(Value row, Value k)> left;
  /// The panel's vector number v at depth k.
  std::function<Value(Value k, int64_t v)> right;
  /// The scalar that the sums of a row start from; without: zero.
  std::function<Value(Value row)> initial;
  /// The vector that sum v of a row starts from, instead of `initial`.
  std::function<Value(Value row, int64_t v)> start;
  /// Takes the finished sums of vector v of a row.
  std::function<void(Value row, int64_t v, Value sum)> finish;

  /// Whether `finish` is long: it is written once for all rows of a tile then, in a loop that takes
  /// the sums from memory.
  bool long_finish = false;

  /// Writes what is done at each step of a full tile besides; without: nothing.
  std::function<void(Value first_row, Value k)> beside;

  /// Writes the loops over all rows.
  void Write(const Dim& rows, const Dim& depth) { Write(lb_.Extent(rows), lb_.Extent(depth)); }
  void Write(Value rows, Value depth);

 private:
  void WriteRest(Value full_tiles, Value rest, Value depth);
  void WriteTile(Value first_row, int64_t rows, Value depth);
  void FinishRows(Value first_row, int64_t rows);
  Value Start(Value row, int64_t v);
  int64_t lanes() const { return machine_.lanes(element_); }

  LoopBuilder& lb_;
  const Machine& machine_;
  ElementType element_;
  Tile tile_;
  Value sums_;  // of a tile, if `finish` is long
};

}  // namespace lathe::lower
