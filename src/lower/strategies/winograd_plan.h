#pragma once

#include <optional>
#include <string>

#include "lathe/lower/condition.h"
#include "src/lower/strategies/conv_job.h"
#include "src/lower/strategies/winograd_form.h"
#include "src/lower/tiles.h"

namespace lathe::lower {

/// How a convolution by Winograd's tiles is cut. A piece is a block of tiles by a part of the
/// filters.
struct WinogradPlan {
  /// Channels whose products are added up at once; sums of so many are then added to one another,
  /// which keeps the error of tiles of 4x4 near that of other convolutions.
  static constexpr int64_t kSumChannels = 32;

  WinogradForm form;
  /// Tiles of a block; where extents are symbolic the most of either, and `tiles` the most of both.
  int64_t rows = 1, columns = 1, tiles = 1;
  int64_t lanes = 1;       ///< of vectors that are transformed; symbolic: the most
  int64_t channels = 1;    ///< that are transformed at once
  int64_t part_tiles = 1;  ///< of filters, of a piece, at most
  Tile tile{1, 1};         ///< of registers: filters by tiles
  double cost = 1e300;     ///< of all

  /// What vectors take, in parts of what a vector of positions takes directly (a row of
  /// `kDirectCost`): of tiles, multiplied with all weights, and of neighboring tiles of a row,
  /// transformed there and back. Only where extents are symbolic.
  static constexpr int64_t kDirectCost = 64;
  int64_t tile_cost = 0, transform_cost = 0;

  /// Elements of a row of transformed tiles: whole vectors of products, and what the last row
  /// writes beyond them.
  int64_t pitch = 1;
};

/// The plan that is estimated to take least, with `outputs` (0: any) along the side of a tile.
/// Empty: no block of tiles fits into the cache. Symbolic extents count as usual ones.
std::optional<WinogradPlan> PlanWinograd(const ConvJob& job, int64_t outputs);

/// Whether the plan takes less than multiplying directly; where extents are symbolic, for usual
/// ones.
bool WinsOverDirect(const ConvJob& job, const WinogradPlan& plan);

/// When the plan takes less than multiplying directly: for which symbolic extents, and for which
/// batches, if the weights are only known, and so transformed, at run time.
Condition TilesTakeLess(const ConvJob& job, const WinogradPlan& plan);

}  // namespace lathe::lower
