#pragma once

#include <span>
#include <unordered_set>
#include <vector>

#include "lathe/ir/builder.h"

namespace lathe {

/// Builds, at the builder's insertion point, the gradients of the sum of the elements of `y` with
/// respect to each of `xs`: the operations between them are walked backwards, and each gives its
/// part through its Grad interface. `xs` and `held` are independent variables, however they are
/// made; other values are constants. A gradient has the type of its x, and is zero where y does not
/// depend on x.
///
/// A value whose property `stop_gradient` is true lets no gradient through to what it was computed
/// from. An operation without a rule that is made of others (Decompose) is replaced by these.
/// Regions are differentiated too: the gradient of a `cf.if` is a `cf.if` that computes its region
/// again and then backwards; a `cf.while` becomes one that pushes what each iteration starts from
/// on a stack, and its gradient a loop that pops them.
///
/// `y` and `xs` belong to the block of the insertion point or to blocks around it; only operations
/// of that block are differentiated. Throws gradient/unsupported for an operation without a rule,
/// gradient/unknown-shape where a rule needs to know more of a shape, gradient/type unless all are
/// tensors of floats.
std::vector<Value> BuildGradients(Builder& b, Value y, std::span<const Value> xs,
                                  std::span<const Value> held = {});

/// The same of the sum of several ys. Operations that were replaced by others are left without
/// uses; they are added to `replaced`, for the caller to erase. `seeds`, if given, receives the
/// gradients of the ys that all begins with.
std::vector<Value> BuildGradients(Builder& b, std::span<const Value> ys, std::span<const Value> xs,
                                  std::span<const Value> held, std::vector<Operation*>& replaced,
                                  std::vector<Value>* seeds = nullptr);

/// The ys and all that they are computed from, be it through values that stop the gradient. To be
/// looked up, not iterated.
std::unordered_set<Value> ValuesBehind(std::span<const Value> ys);

}  // namespace lathe
