#pragma once

#include "lathe/ir/type.h"
#include "lathe/ir/value.h"

namespace lathe {

/// The type of a value that is a tensor; an internal error for any other.
inline AnyTensorType TensorOf(Value value) { return value.type().cast<AnyTensorType>(); }

/// Null for a value that is not a tensor or has no type yet, and for no value at all.
inline AnyTensorType TensorOrNull(Value value) {
  return value && value.type() ? value.type().dyn_cast<AnyTensorType>() : AnyTensorType();
}

}  // namespace lathe
