#pragma once

#include <functional>
#include <vector>

#include "lathe/ir/builder.h"

namespace lathe {

class Program;

/// Replaces every operation that has the Decompose interface and for which `wanted` holds by
/// simpler ones, and these again, until there is none left; one whose form has no other stays. New
/// operations get the location and the runtime attributes of the one that they stand for. `b` is
/// what builds them. Returns how many were replaced.
int64_t DecomposeOps(Program& program, Builder& b,
                     const std::function<bool(const Operation*)>& wanted);

/// What an operation that has the Decompose interface is made of, built by `b`, which stands before
/// it. Floats of 16 bits are computed in f32 and rounded once, at the end, as the operation itself
/// does. Empty: this form has no other, and nothing was built.
std::vector<Value> DecomposeInFloats(Operation* op, Builder& b);

}  // namespace lathe
