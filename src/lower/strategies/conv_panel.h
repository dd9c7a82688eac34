#pragma once

#include <vector>

#include "src/lower/index_math.h"
#include "src/lower/strategies/conv_geometry.h"
#include "src/lower/strategies/conv_input.h"

namespace lathe::lower {

/// What neighboring output positions of a convolution read, as the rows of a matrix: row
/// c * places + k holds what place k of the kernel sees in channel c, zero in the padding. Of one
/// place alone there is a row per channel.
class ConvPanel {
 public:
  ConvPanel(LoopBuilder& lb, IndexMath& math, const ConvGeometry& geometry, int64_t lanes)
      : lb_(lb), math_(math), g_(geometry), lanes_(lanes) {}

  /// The input as the panels read it, from the function's argument.
  Value View(Value input);
  /// Columns of a panel in memory: `width` and those that are written beyond them.
  int64_t Pitch(int64_t width) const { return width + (g_.reads_own_element ? 0 : lanes_); }

  /// Which part of the input a panel holds.
  struct Part {
    Dim image;          ///< of the batch
    Dim first_channel;  ///< of all groups
    Dim channels;
    Dim first_position;
    std::vector<Dim> place = {};  ///< of the kernel, per spatial dim: that one only

    int64_t places(const ConvGeometry& g) const { return place.empty() ? g.places() : 1; }
  };
  /// Fills `panel`. Positions beyond the last one get anything.
  void Write(const ConvInput& input, const Part& part, int64_t width, Value panel);

 private:
  // Neighbors in one row of the output: a vector's first lane, or all of it.
  struct Run {
    std::vector<Dim> row;  // spatial indices but the last
    Dim at;                // the last spatial index
    Dim column;            // of the panel
  };
  // What one place of the kernel's last axis reads for a run.
  struct Piece {
    Dim from;           // index along the last axis
    Dim start, column;  // of the panel; those between are in the padding
    Dim live;
    bool clears = false;  // there may be some between
  };

  void Copy(const ConvInput& input, const Part& part, int64_t width, Value panel);
  void WriteRuns(const ConvInput& input, const Part& part, int64_t width, Value panel);
  void WriteRun(const ConvInput& input, const Part& part, int64_t width, Value panel,
                const Run& run);
  void WriteKernelRows(const ConvInput& input, const Part& part, Value panel, const Run& run,
                       int64_t width, std::vector<Dim> rows, const Dim& place, const Dim& inside);
  Piece MakePiece(const Run& run, int64_t width, const Dim& at_kernel, const Dim& inside);
  void WritePieces(const ConvInput& input, const Part& part, Value panel,
                   const std::vector<Dim>& rows, const Dim& place,
                   const std::vector<Piece>& pieces);
  void WritePiece(const ConvInput& input, Value panel, const Piece& piece, std::vector<Value> from,
                  const Dim& depth);

  LoopBuilder& lb_;
  IndexMath& math_;
  const ConvGeometry& g_;
  int64_t lanes_;
};

}  // namespace lathe::lower
