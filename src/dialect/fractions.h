#pragma once

#include <optional>
#include <vector>

#include "lathe/ir/interfaces.h"

namespace lathe {

/// What a cast of floats to integers gives where exporters compute sizes in floats (a size times
/// 0.5, rounded down), or nothing. Only what floats compute without an error that shows is
/// followed: sizes up to 2^20 with factors of few bits, and one division before the rounding.
std::optional<std::vector<Dim>> RoundedContents(Operation* cast, ValueFacts& facts);

}  // namespace lathe
