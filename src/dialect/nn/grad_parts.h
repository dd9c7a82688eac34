#pragma once

#include <functional>
#include <span>
#include <vector>

#include "lathe/ir/builder.h"

namespace lathe::nn {

/// Builds the results of an operation from its operands by other operations; null for a result that
/// no gradient is given of.
using MakeParts = std::function<std::vector<Value>(Builder& b, std::span<const Value> operands)>;

/// The gradients of the operands of `op`, through what `make` says it is made of: that is computed
/// again and then backwards. Operands without a gradient get null.
std::vector<Value> GradByParts(Operation* op, std::span<const Value> grads, Builder& b,
                               const MakeParts& make);

}  // namespace lathe::nn
