#pragma once

#include "lathe/ir/operation.h"
#include "lathe/support/dim.h"

namespace lathe {

/// What a call of a function takes at least, made of the symbols of its types; unknown where these
/// say too little.
struct FunctionWork {
  Dim flops;
  Dim bytes;  ///< of arguments, as far as they are looked at, and of results
};

/// Of a `builtin.func`, before it is lowered.
FunctionWork WorkOf(const Operation* function);

}  // namespace lathe
