#include "src/driver/port_list.h"

#include <algorithm>

#include "lathe/support/printable.h"
#include "lathe/support/text.h"

namespace lathe {

void AppendPorts(std::string& out, const char* title, const std::vector<SummaryPort>& ports) {
  out += StrCat(title, "\n");
  size_t width = 0;
  std::vector<std::string> names;
  for (const SummaryPort& p : ports) names.push_back(PrintableLine(p.name));
  for (const std::string& name : names) width = std::max(width, name.size());
  for (size_t i = 0; i < ports.size(); ++i) {
    out +=
        StrCat("  ", names[i], std::string(width - names[i].size() + 2, ' '), ports[i].type, "\n");
  }
}

void AppendMetadata(std::string& out, const Metadata& metadata) {
  constexpr size_t kLongest = 100;
  if (!metadata.empty()) out += "metadata\n";
  for (const auto& [name, text] : metadata) {
    out += StrCat("  ", PrintableLine(name), "  ", PrintableLine(text.substr(0, kLongest)));
    if (text.size() > kLongest) out += StrCat("... (", text.size(), " bytes)");
    out += '\n';
  }
}

nlohmann::ordered_json MetadataToJson(const Metadata& metadata) {
  auto object = nlohmann::ordered_json::object();
  for (const auto& [name, text] : metadata) object[name] = text;
  return object;
}

nlohmann::ordered_json PortsToJson(const std::vector<SummaryPort>& ports) {
  auto list = nlohmann::ordered_json::array();
  for (const SummaryPort& p : ports) list.push_back({{"name", p.name}, {"type", p.type}});
  return list;
}

}  // namespace lathe
