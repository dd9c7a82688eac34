#pragma once

#include <string_view>

namespace lathe {

/// The page of a report around its data: what comes before the JSON text, and what comes after. The
/// files are in src/driver/assets/pass_report.
struct ReportPage {
  std::string_view before;
  std::string_view after;
};
ReportPage GetReportPage();

}  // namespace lathe
