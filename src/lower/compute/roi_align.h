#pragma once

#include "src/lower/compute/compute.h"

/// Means over regions of images, as a whole: where the points of a region lie is found once for all
/// channels.
namespace lathe::lower {

/// Whether regions are averaged, with so few points that tables of them are small.
bool HasPointTables(const Operation& op);
void WriteAligned(const WholeTensorEmitter& w);

}  // namespace lathe::lower
