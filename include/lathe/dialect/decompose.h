#pragma once

#include <functional>

#include "lathe/ir/builder.h"

namespace lathe {

class Program;

/// Replaces every operation that has the Decompose interface and for which `wanted` holds by
/// simpler ones, and these again, until there is none left; one whose form has no other stays. New
/// operations get the location and the runtime attributes of the one that they stand for. `b` is
/// what builds them. Returns how many were replaced.
int64_t DecomposeOps(Program& program, Builder& b,
                     const std::function<bool(const Operation*)>& wanted);

}  // namespace lathe
