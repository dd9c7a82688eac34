#pragma once

#include <cstddef>

#include "lathe/support/dim.h"

namespace lathe {

/// The nodes of an expression as a tree, as `Dim::kMaxSize` counts them; 1 for anything else.
[[nodiscard]] size_t NumNodes(const Dim& dim);

}  // namespace lathe
