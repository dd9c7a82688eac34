#pragma once

#include <span>
#include <vector>

#include "lathe/ir/builder.h"

namespace lathe {

/// Builds, at the builder's insertion point, the gradients of the sum of the elements of `y` with
/// respect to each of `xs`: the operations between them are walked backwards, and each gives its
/// part through its Grad interface. `xs` and `held` are independent variables, however they are
/// made; other values are constants. A gradient has the type of its x, and is zero where y does not
/// depend on x.
///
/// `y` and `xs` belong to the block of the insertion point or to blocks around it; only operations
/// of that block are differentiated. Throws gradient/unsupported for an operation without a rule,
/// gradient/unknown-shape where a rule needs to know more of a shape, gradient/type unless all are
/// tensors of floats.
std::vector<Value> BuildGradients(Builder& b, Value y, std::span<const Value> xs,
                                  std::span<const Value> held = {});

}  // namespace lathe
