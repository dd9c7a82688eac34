#include "tools/lathe/statistics_text.h"

#include <cmath>
#include <cstdio>

#include "lathe/support/text.h"

namespace lathe::command {

std::string Fixed(double value) {
  char text[64];
  const bool plain = value == 0 || (std::fabs(value) >= 1e-4 && std::fabs(value) < 1e6);
  snprintf(text, sizeof(text), plain ? "%.4f" : "%.4g", value);
  return text;
}

std::string StatisticsText(const ValueStatistics& s) {
  return StrCat("min ", Fixed(s.minimum), "   max ", Fixed(s.maximum), "   mean ", Fixed(s.mean),
                "   NaN ", s.nan, s.infinite == 0 ? "" : StrCat("   infinite ", s.infinite));
}

void AddStatistics(nlohmann::ordered_json& entry, const ValueStatistics& s) {
  const auto number = [](double value) {
    return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  entry["min"] = number(s.minimum);
  entry["max"] = number(s.maximum);
  entry["mean"] = number(s.mean);
  entry["nan"] = s.nan;
  entry["infinite"] = s.infinite;
}

}  // namespace lathe::command
