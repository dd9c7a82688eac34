#pragma once

#include <string_view>

namespace lathe {

/// The page of a report around its data: what comes before the JSON text, and what comes after.
struct ReportPage {
  std::string_view before;
  std::string_view after;
};
ReportPage GetReportPage();
/// The end of the page: what controls do.
std::string_view ReportPageScript();

}  // namespace lathe
