#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "lathe/support/tile_permission.h"
#include "src/runtime/plan_check.h"

namespace lathe::runtime {
namespace {

// Features of the first processor, sorted.
std::vector<std::string> ProcessorFeatures() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const bool here = line.starts_with("flags") || line.starts_with("Features");
    const size_t colon = line.find(':');
    if (!here || colon == std::string::npos) continue;
    std::istringstream words(line.substr(colon + 1));
    std::vector<std::string> features;
    for (std::string word; words >> word;) features.push_back(word);
    std::sort(features.begin(), features.end());
    return features;
  }
  return {};
}

}  // namespace

void CheckProcessor(const PlanCode& code) {
  if (code.features.empty()) return;
  const std::vector<std::string> here = ProcessorFeatures();
  std::string missing;
  for (const std::string& feature : code.features) {
    if (std::binary_search(here.begin(), here.end(), feature)) continue;
    missing += StrCat(missing.empty() ? "" : ", ", feature);
  }
  const bool needs_tiles = std::ranges::count(code.features, "amx_tile") > 0;
  if (missing.empty() && needs_tiles && !MayUseTiles()) {
    throw Error(ErrorCode::kUnsupported, "run/processor",
                StrCat("the program was compiled for '", code.target,
                       "', but the system does not let this process use tile registers"))
        .Hint("compile it for a plainer target");
  }
  if (missing.empty()) return;
  throw Error(
      ErrorCode::kUnsupported, "run/processor",
      StrCat("the program was compiled for '", code.target, "'; this processor lacks ", missing))
      .Hint("compile it for this machine, or for a plainer target");
}

}  // namespace lathe::runtime
