#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "lathe/ir/type.h"
#include "lathe/support/rt_value.h"

namespace lathe {

/// Errors: parse/json at `where`.
nlohmann::json ParseJson(std::string_view text, const std::string& where);

/// The value of type `expected` that a document of JSON holds: lists in lists are a tensor, a list
/// of values a list, null an optional that is absent. Errors: run/input-value.
RtValue ValueOfJson(const nlohmann::json& document, Type expected);

/// The tensor under the shape that `expected` wants, where that shape follows from the number of
/// elements; else as it is, for the check of arguments to refuse.
Tensor Fitted(const Tensor& tensor, AnyTensorType expected);

}  // namespace lathe
