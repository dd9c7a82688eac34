#pragma once

#include <cstdint>
#include <vector>

#include "lathe/ir/program.h"

namespace lathe {

/// A gradient that travels once it is computed.
struct TravelingGradient {
  Value value;
  int64_t bytes = 0;
};

/// A large gradient that is among the last to be computed, such as that of a table of embeddings,
/// would have nothing to travel behind: operations that others alone need are moved behind it, as
/// many as make half of the other bytes. `gradients` are in program order, and so they are
/// afterwards. Returns how many operations were moved.
int64_t OrderForTravel(Program& program, std::vector<TravelingGradient>& gradients);

}  // namespace lathe
