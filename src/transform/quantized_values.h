#pragma once

#include "lathe/ir/program.h"

namespace lathe {

/// Whether the result has the elements of operand 0, or the greatest of some: the same scale fits.
bool IsMove(const Operation* op);

/// The value that is to quantize instead of `v`: behind the bias and the activations that
/// stand right after it and that a kernel computes along.
Value EndOf(const Program& program, Value v);

}  // namespace lathe
