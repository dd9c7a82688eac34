#pragma once

#include <cstddef>

#include "lathe/support/error.h"

namespace lathe::lower {

/// Throws lower/budget: loops of more operations than that.
[[noreturn]] inline void ThrowTooLong(size_t most) {
  throw Error(ErrorCode::kLimit, "lower/budget",
              StrCat("its loops are more than ", most, " operations"));
}

}  // namespace lathe::lower
