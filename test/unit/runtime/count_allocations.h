#pragma once

#include <cstdint>

namespace lathe::runtime::testing {

/// How often `operator new` was called in this test program.
int64_t Allocations();
/// The most bytes it was asked for at once since the last call.
uint64_t TakeLargestAllocation();

}  // namespace lathe::runtime::testing
