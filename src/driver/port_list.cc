#include "src/driver/port_list.h"

#include <algorithm>

#include "lathe/support/text.h"

namespace lathe {

void AppendPorts(std::string& out, const char* title, const std::vector<SummaryPort>& ports) {
  out += StrCat(title, "\n");
  size_t width = 0;
  for (const SummaryPort& p : ports) width = std::max(width, p.name.size());
  for (const SummaryPort& p : ports) {
    out += StrCat("  ", p.name, std::string(width - p.name.size() + 2, ' '), p.type, "\n");
  }
}

nlohmann::ordered_json PortsToJson(const std::vector<SummaryPort>& ports) {
  auto list = nlohmann::ordered_json::array();
  for (const SummaryPort& p : ports) list.push_back({{"name", p.name}, {"type", p.type}});
  return list;
}

}  // namespace lathe
