#pragma once

#include "src/lower/compute/compute.h"

namespace lathe::lower {

/// Numbers, none of them negative, that every element of an operation depends on, as operands say
/// that are computed: before and behind what a pad leaves of each axis, where a slice begins. They
/// are computed once, outside of all loops; empty if there are none, or if they are not known then.
std::vector<Value> AmountsAt(Elements& e, const Operation& op);

/// Under which Elements names amount number `i`.
Dim AmountKey(const Operation& op, size_t i);

}  // namespace lathe::lower
