#pragma once

#include "lathe/lower/condition.h"
#include "lathe/lower/lowering.h"

namespace lathe::lower {

/// Where groups of several channels are computed faster by conv_filter_lanes, whose vectors are
/// full however short rows of the output are, than by what fills vectors with the positions of a
/// row. `filters` and `channels` are those of a group, `columns` the length of a row.
Condition FiltersFillVectors(const Lowering& l, const Operation& conv, int64_t channels,
                             int64_t filters, const Dim& columns);

}  // namespace lathe::lower
