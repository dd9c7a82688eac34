#pragma once

#include <string_view>

#include "lathe/support/error.h"
#include "lathe/support/kernel.h"

namespace lathe::runtime {

/// What a kernel that failed says, with what it computes and where that comes from: run/index, or
/// run/out-of-bounds, which is a defect of the compiler.
Error KernelError(const KernelStatus& status, std::string_view label, std::string_view origin);

}  // namespace lathe::runtime
