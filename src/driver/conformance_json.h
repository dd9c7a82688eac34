#pragma once

#include <nlohmann/json.hpp>

#include "lathe/driver/conformance.h"

namespace lathe {

nlohmann::ordered_json CaseToJson(const CaseResult& result);
CaseResult CaseFromJson(const nlohmann::json& json);
/// Name, operators and opset of a case that could not say so itself.
CaseResult DescribeCase(const std::string& directory);

}  // namespace lathe
