#pragma once

#include "lathe/support/dim.h"

namespace lathe::nn {

/// floor(extent * scale), as a resize has it; unknown for a scale that is too fine or too large.
Dim ScaledExtent(const Dim& extent, double scale);

/// Interpolated integers are rounded to such a part of one before they are cut to whole numbers:
/// shares such as thirds sum up to a little less than a whole number or to it, by their order.
inline constexpr double kPartsOfInteger = 0x1p16;

}  // namespace lathe::nn
