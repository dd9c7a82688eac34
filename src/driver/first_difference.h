#pragma once

#include <string>

#include "lathe/dialect/interpreter.h"

namespace lathe {

/// Those that the program still has: a pass may drop an input that nothing reads.
NamedValues WantedInputs(const Program& program, const NamedValues& inputs);

/// Runs both programs and gives the first op of `actual` whose value differs from what the op at
/// the same place gave in `expected`; empty if no place tells. An op that replaces several stands
/// at the places of all of them, and gives what one of them gave.
std::string FirstDifferentOp(const Program& expected, const Program& actual,
                             const NamedValues& inputs, double rtol, double atol);

}  // namespace lathe
