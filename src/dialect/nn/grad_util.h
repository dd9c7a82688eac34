#pragma once

#include <cstdint>
#include <span>

#include "lathe/ir/builder.h"

// What rules of Grad are written with.
namespace lathe::nn {

// A constant vector of i64.
Value IntsConstant(Builder& b, std::span<const int64_t> values);
// A tensor of the type and shape of `like` whose elements are all `value`.
Value FilledLike(Builder& b, Value like, double value);
// The gradient of a value that was broadcast: `grad` summed over what it was repeated along, in the
// shape of `like`. Throws gradient/unknown-shape when the shapes do not tell.
Value SumTo(Builder& b, Value grad, Value like);

}  // namespace lathe::nn
