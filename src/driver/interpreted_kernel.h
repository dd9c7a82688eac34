#pragma once

#include <string>

#include "lathe/ir/operation.h"
#include "lathe/runtime/executor.h"

namespace lathe {

/// Why the interpreter cannot run the function by itself, as a kernel; empty if it can.
std::string WhyNotInterpreted(const Operation* function);

/// A kernel that evaluates the operations of a function, which must live as long.
runtime::Executor::Kernel InterpretedKernel(const Operation* function);

}  // namespace lathe
