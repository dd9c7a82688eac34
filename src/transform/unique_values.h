#pragma once

#include <vector>

#include "lathe/ir/operation.h"
#include "src/transform/data_sizes.h"

namespace lathe {

/// The results of a `unique` from a sort, whose count is bound. Empty for strings and complex
/// numbers, and for slices of more than a few elements or of a number that is not known.
std::vector<Value> ComputeUnique(Operation* op, SizeBuilder& build);

}  // namespace lathe
