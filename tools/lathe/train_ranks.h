#pragma once

#include <functional>

#include "lathe/support/communicator.h"

namespace lathe::command {

/// Runs `train` with the ranks that mpirun has started this process as one of, or with none. Rank 0
/// alone prints: what fails on one rank is said once, by it or, if it is the one that is lost, by
/// another one.
int RunOnRanks(double timeout, const std::function<int(Communicator*)>& train);

}  // namespace lathe::command
