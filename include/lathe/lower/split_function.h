#pragma once

#include <span>
#include <vector>

#include "lathe/lower/lower_function.h"

namespace lathe::lower {

/// Whether a function that only plain loops take should rather be taken apart: it has several
/// operations, one of them a product, convolution or the like, which by itself has better ones.
bool IsBetterApart(const Block& function);

/// Takes apart a function that no strategy lowered, so that what can be lowered by itself is:
/// before each operation that has no plain loops, or better ones by itself; then behind the first
/// one; then all operations. What is computed of arguments alone goes with the reduction that reads
/// it. Each call becomes calls of the pieces, new functions next to the old one, which is erased.
/// Returns them in order; nothing, and nothing changes, if there is one operation only.
std::vector<Operation*> SplitFunction(Operation* function, std::span<Operation* const> calls,
                                      const Machine& machine);

}  // namespace lathe::lower
