#pragma once

#include <functional>

#include "lathe/lower/loop_builder.h"

namespace lathe::lower {

/// A tensor [N, C, D1, ..., Dk] as planes [N * C, D1, ..., Dk]; at most one of the latter may be
/// symbolic in all.
Value ViewPlanes(LoopBuilder& lb, Value tensor);

/// A loop over N * C planes, parallel if they are worth it; `work`: operations per plane.
void ForPlanes(LoopBuilder& lb, const Dim& n, const Dim& c, int64_t work,
               const std::function<void(Value n, Value c, Value plane)>& body);

}  // namespace lathe::lower
