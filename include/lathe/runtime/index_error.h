#pragma once

#include <string_view>

#include "lathe/support/error.h"
#include "lathe/support/kernel.h"

namespace lathe::runtime {

/// run/index: what a kernel that failed says, with what it computes and where that comes from.
Error IndexError(const KernelStatus& status, std::string_view label, std::string_view origin);

}  // namespace lathe::runtime
