#pragma once

#include "lathe/ir/program.h"

namespace lathe::testing {

/// The model as passes in the middle of a pipeline meet it: shapes computed, weights constant, and
/// those that hold one number over and over (the light models) filled with various ones.
Program Prepare(const Program& program);

}  // namespace lathe::testing
