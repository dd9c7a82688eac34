#pragma once

#include <string>

#include "lathe/driver/executable.h"

namespace lathe {

/// Runs a program compiled and interpreted, and gives the first call of a function whose results
/// differ, with what differs; empty if none does. Slow: for programs that are known to differ.
std::string FirstDifferentCall(const Program& program, const CompileOptions& options,
                               const NamedValues& inputs, double rtol, double atol);

}  // namespace lathe
