#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lathe/driver/value_statistics.h"

namespace lathe::command {

/// Four digits behind the point, or four that count where the number is small or large.
std::string Fixed(double value);
/// "min -1.5   max 2   mean 0.25   NaN 0"
std::string StatisticsText(const ValueStatistics& s);
/// "min", "max", "mean" (null if they are no finite numbers), "nan" and "infinite".
void AddStatistics(nlohmann::ordered_json& entry, const ValueStatistics& s);

}  // namespace lathe::command
