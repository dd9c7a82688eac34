#pragma once

#include <string>
#include <vector>

#include "lathe/ir/operation.h"

namespace lathe {

/// The symbols that say sizes from where the operation runs: names of a `nn.bind_sizes`, extents of
/// what a `cf.while` carries, those of its iterations first, and of what it stacks.
std::vector<std::string> BoundSizes(const Operation* op);

}  // namespace lathe
