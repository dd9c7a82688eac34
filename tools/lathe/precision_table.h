#pragma once

#include "lathe/driver/precision_report.h"

namespace lathe::command {

/// A row for each level and output, then what loses most at each level.
std::string PrecisionText(const PrecisionReport& report);
/// {"levels": [{"level", "outputs": [...], "worst_kernel", "ms", "speedup", ...}], ...}
std::string PrecisionJson(const PrecisionReport& report);

}  // namespace lathe::command
