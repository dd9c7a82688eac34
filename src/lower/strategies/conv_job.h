#pragma once

#include <optional>
#include <string>

#include "lathe/lower/lowering.h"
#include "src/lower/pointwise.h"
#include "src/lower/strategies/conv_input.h"
#include "src/lower/strategies/conv_panel.h"

namespace lathe::lower {

/// A function of a convolution and what follows it, as the strategies for dense ones see it.
class ConvJob {
 public:
  explicit ConvJob(Lowering& lowering) : l(lowering) {}

  /// Why the function cannot be lowered by panels; empty if it can. `in_groups`: by groups of
  /// channels, where there are; convolutions of bytes are taken, too.
  std::string Refusal(bool in_groups = false);

  Lowering& l;
  bool merges_units = false;  ///< set before Refusal: see ConvGeometry::MergeUnits
  const Operation* anchor = nullptr;
  std::optional<Pointwise> before;  ///< what computes the input, if it is not an argument
  std::optional<Pointwise> after;
  ConvGeometry g;
  int64_t lanes = 1;      ///< of sums
  bool parallel = false;  ///< enough work for threads
  /// Registers of tiles: where there are many, some are left for constants that stay in them.
  int SumRegisters() const {
    const int all = l.machine.vector_registers;
    return all > 16 ? all - 2 : all;
  }
  bool is_of_bytes() const { return g.element == ElementType::kU8; }
  ElementType sum_element() const { return is_of_bytes() ? ElementType::kI32 : g.element; }
  bool weights_are_constant() const { return l.IsConstant(anchor->operand(1)); }
  /// Whether conv_filter_lanes multiplies pairs of channels that become bf16.
  bool takes_pairs() const;

  /// Of operand 1, which is static.
  Shape weight_shape() const;

  /// What equal pieces of so many cycles take: until all are done, by one thread, and by several
  /// if they share them.
  double Cost(int64_t pieces, double cycles) const { return Cost(pieces, 1, 1, cycles, 0); }
  /// The same of so many blocks by `tiles` of filters, which threads share where there are fewer
  /// blocks than threads (TilesOfPiece). Cycles: what a piece takes before its tiles, and a tile.
  double Cost(int64_t blocks, int64_t tiles, int64_t most_tiles, double piece_cycles,
              double tile_cycles) const;

  // ---- while writing ----

  /// Tiles of filters of a piece, at most `most`: all, but where there are fewer blocks than
  /// threads. What each piece does for itself, such as to copy what its block reads, is then done
  /// no more often than threads can do it at once.
  Dim TilesOfPiece(const Dim& blocks, int64_t tiles, int64_t most);

  void Open();
  void Close() { after->Close(*lb); }
  /// The memory of operand i, an argument; null if it is absent.
  Value Argument(size_t i) const;
  /// What a convolution of bytes sees in its padding, a scalar.
  Value Padding();
  Value Memory(int64_t rows, int64_t columns);
  Value Zeros() { return lb->Splat(sum_element(), 0, lanes); }
  /// How many lanes of a vector that begins at `first` are below `end`; null: all of them, always.
  Value Live(const Dim& first, const Dim& end);

  std::optional<LoopBuilder> lb;
  std::optional<IndexMath> math;
  std::optional<ConvPanel> panels;
  ConvInput input;

 private:
  std::string AnchorRefusal(bool of_bytes);
  std::string InputRefusal();
};

/// Channels of a block: at most `most` (at least one), in equal parts where that takes few more
/// blocks.
int64_t BlockChannels(int64_t channels, int64_t most);

}  // namespace lathe::lower
