#pragma once

#include <string>

#include "lathe/ir/operation.h"
#include "lathe/support/error.h"

namespace lathe {

/// An error of an op: its name before the message, its place, a note per operand with the name, the
/// type and what made it. The part of `id` before the slash gives the code ("shape/concat":
/// kShape).
[[nodiscard]] Error ErrorAt(const Operation* op, std::string id, const std::string& message,
                            std::string hint = "");

}  // namespace lathe
