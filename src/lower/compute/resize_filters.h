#pragma once

#include "src/lower/compute/resize_axis.h"

/// Resampling with filters that are as wide as the axes shrink (`antialias`), as a whole: shares
/// are computed once per place along an axis.
namespace lathe::lower {

/// Whether it is known before the run how many elements a filter covers at most.
bool HasFilterTables(const Operation& op);
void WriteFiltered(const WholeTensorEmitter& w);

}  // namespace lathe::lower
