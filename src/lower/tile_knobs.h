#pragma once

#include "lathe/lower/lowering.h"
#include "src/lower/tiles.h"

namespace lathe::lower {

/// The tile that `knobs` ask for, or the preferred one: sums, a row of the panel and the broadcast
/// element fit into the registers.
Tile ChooseTile(Knobs& knobs, Tile preferred, const Dim& rows, const Dim& columns, int64_t lanes,
                int64_t registers);

}  // namespace lathe::lower
