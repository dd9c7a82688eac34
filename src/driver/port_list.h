#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lathe/driver/summary.h"

namespace lathe {

/// A title, and a line for each.
void AppendPorts(std::string& out, const char* title, const std::vector<SummaryPort>& ports);
/// The same of metadata, cut to a line each; nothing where there is none.
void AppendMetadata(std::string& out, const Metadata& metadata);
nlohmann::ordered_json MetadataToJson(const Metadata& metadata);
nlohmann::ordered_json PortsToJson(const std::vector<SummaryPort>& ports);

}  // namespace lathe
