#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "lathe/driver/value_difference.h"

namespace lathe::command {

/// A line for each value: how far apart its numbers are, and the first that does not agree.
std::string DifferenceText(std::span<const ValueDifference> differences);
/// A list of objects.
nlohmann::ordered_json DifferenceJson(std::span<const ValueDifference> differences);
/// The elements of a tensor, lists in lists, as --input takes them: what is no number of JSON is
/// text ("nan"). Null for complex ones.
nlohmann::ordered_json ElementsJson(const Tensor& tensor);

bool AllAgree(std::span<const ValueDifference> differences);

}  // namespace lathe::command
