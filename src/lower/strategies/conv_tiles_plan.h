#pragma once

#include <array>
#include <optional>

#include "src/lower/strategies/conv_job.h"

namespace lathe::lower {

/// A spatial dim of a convolution. Its positions of the input take turns in as many phases as a
/// stride has places that the kernel may see: within a phase the next output reads the next
/// element.
struct TileAxis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, begin = 0;

  int64_t step() const;  ///< from a phase to the next, in elements of the input
  int64_t phases() const { return kernel == 1 ? 1 : stride / step(); }
  /// How many elements of a phase the last place of the kernel is behind the first one, at most.
  int64_t most_shift() const { return (kernel - 1) * dilation / stride; }
};

/// How a convolution is cut into tiles of 16 filters by 16 positions. A block of positions reads
/// its part of the input from memory where pairs of channels lie together, a row of a phase after
/// the other. Its positions are counted along these rows, so that each place of the kernel reads
/// what lies at some constant distance; those at the ends of rows are none, and are left out.
struct ConvTilesPlan {
  std::array<TileAxis, 2> axes;  ///< rows, columns
  int64_t unfolded = 1;          ///< places of a row of the kernel that count as channels
  int64_t channels = 1;          ///< with those
  int64_t depth_pairs = 1;       ///< of channels, in a tile
  int64_t depth_tiles = 1;
  int64_t rows = 1, columns = 1;  ///< of outputs, in a block
  int64_t part_tiles = 1;         ///< of filters, in a piece
  double cost = 0;                ///< in cycles, see ConvJob::Cost

  int64_t pairs() const { return depth_pairs * depth_tiles; }
  int64_t taps() const { return axes[0].kernel * axes[1].kernel; }
  int64_t phases() const { return axes[0].phases() * axes[1].phases(); }
  int64_t phase_rows() const { return rows + axes[0].most_shift(); }
  int64_t pitch() const { return columns + axes[1].most_shift(); }  ///< of a row of a phase
  int64_t positions() const { return rows * pitch(); }              ///< of a block, along its rows
  int64_t pair_positions() const;  ///< in memory, and what is written and read behind them
  int64_t block_bytes() const { return pairs() * pair_positions() * 4; }
};

/// The cheapest way; nothing if no block fits into the cache.
std::optional<ConvTilesPlan> PlanConvTiles(const ConvJob& job);
/// Whether it is estimated to take less than multiplying in f32.
bool WinsOverFloats(const ConvJob& job, const ConvTilesPlan& plan);

}  // namespace lathe::lower
