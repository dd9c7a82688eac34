#pragma once

#include "lathe/support/dim.h"

namespace lathe::nn {

/// floor(extent * scale), as a resize has it; unknown for a scale that is too fine or too large.
Dim ScaledExtent(const Dim& extent, double scale);

}  // namespace lathe::nn
