#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lathe/ir/block.h"
#include "lathe/ir/operation.h"

namespace lathe::lower {

/// Looks for the one operation that a strategy is about. Says why there is not just one: `what`
/// names the kind ("convolution"); empty if there is, which then is `anchor`.
std::string FindAnchor(const Block& function, std::string_view what,
                       const std::function<bool(const Operation&)>& is_one,
                       const Operation*& anchor);

/// Whether all operands from number `first` on are arguments or absent.
bool ReadsArguments(const Operation& op, size_t first = 0);

}  // namespace lathe::lower
