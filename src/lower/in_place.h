#pragma once

#include <utility>
#include <vector>

#include "lathe/ir/block.h"

namespace lathe::lower {

/// Pairs (argument, result) of a lowered function that may be the same memory: as many bytes, and
/// no element of the argument is read when, or after, that element of the result may have been
/// written. It is proven of the loops, whatever the extents; what is not proven is not a pair.
/// Several arguments may have a result in common, but only one of them, or arguments that are one
/// tensor, can take its memory. Arguments that are constant are not part of any.
std::vector<std::pair<size_t, size_t>> InPlacePairs(const Block& loops,
                                                    const std::vector<bool>& constant);

}  // namespace lathe::lower
