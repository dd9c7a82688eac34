#pragma once

#include "lathe/ir/program.h"
#include "lathe/lower/external.h"
#include "lathe/runtime/executor.h"

namespace lathe {

/// Makes each operation of the dialect dist, but for those in functions, a function of its own, of
/// compiler kCollectives.
void OutlineCollectives(Program& program);

/// Which arguments of such a function may have the memory of which results.
std::vector<std::pair<size_t, size_t>> CollectiveInPlace(const Operation* function);

/// The kernel of such a function.
runtime::Executor::Kernel CollectiveKernel(const Operation* function);

}  // namespace lathe
