#pragma once

#include "lathe/ir/interfaces.h"

namespace lathe::loop {

/// Throws loop/indices unless there is an index per axis of operand 0, from operand `first` on.
void CheckIndexCount(const InferShapeContext& c, size_t first);
/// Throws loop/indices unless operands from `first` on, where they are given, are scalars.
void CheckScalars(const InferShapeContext& c, size_t first);

}  // namespace lathe::loop
