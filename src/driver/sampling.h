#pragma once

#include <cstdint>
#include <span>

#include "lathe/driver/generate.h"

namespace lathe {

/// Errors: generate/option.
void CheckSampling(const GenerateOptions& options);

/// A token by its logits: the likeliest without a temperature, else the one that `random`, uniform
/// in [0, 1), falls on. Errors: generate/logits (NaN, infinity, or -infinity alone).
int64_t ChooseToken(std::span<const double> logits, const GenerateOptions& options, double random);

}  // namespace lathe
