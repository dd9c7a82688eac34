#include "src/lower/tile_knobs.h"

#include <algorithm>

#include "lathe/support/divide.h"

namespace lathe::lower {

Tile ChooseTile(Knobs& knobs, Tile preferred, const Dim& rows, const Dim& columns, int64_t lanes,
                int64_t registers) {
  const int64_t of_row = columns.is_constant() ? CeilDiv(columns.value(), lanes) : 8;
  const auto most_rows = [&](int64_t vectors) {
    const int64_t most = (registers - vectors - 1) / vectors;
    return rows.is_constant() ? std::min(most, std::max<int64_t>(rows.value(), 1)) : most;
  };
  std::vector<int64_t> widths, heights;
  for (const int64_t v : {1, 2, 3, 4, 6, 8}) {
    if (v <= of_row && most_rows(v) > 0) widths.push_back(v);
  }
  Tile tile = preferred;
  tile.vectors = knobs.Choose("vectors", preferred.vectors, widths);
  const int64_t most = most_rows(tile.vectors);
  if (tile.vectors != preferred.vectors) tile.rows = std::min(most, tile.rows);
  for (int64_t r = most; r > 0 && 3 * r >= most; --r) heights.push_back(r);
  tile.rows = knobs.Choose("rows", std::max<int64_t>(tile.rows, 1), heights);
  return tile;
}

}  // namespace lathe::lower
