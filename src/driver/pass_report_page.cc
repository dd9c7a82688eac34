#include "src/driver/pass_report_page.h"

#include <string>
#include <utility>

#include "lathe/support/error.h"

namespace lathe {

namespace {

constexpr std::string_view kPage =
#include "src/driver/assets/pass_report/page.html.inc"
    ;
constexpr std::string_view kStyle =
#include "src/driver/assets/pass_report/page.css.inc"
    ;
constexpr std::string_view kScripts[] = {
#include "src/driver/assets/pass_report/graphs.js.inc"
    ,
    "\n",
#include "src/driver/assets/pass_report/panes.js.inc"
    ,
    "\n",
#include "src/driver/assets/pass_report/controls.js.inc"
};

/// What comes before and behind `mark`, which stands in `text` once.
std::pair<std::string_view, std::string_view> SplitAt(std::string_view text,
                                                      std::string_view mark) {
  const size_t at = text.find(mark);
  LATHE_CHECK(at != std::string_view::npos);
  return {text.substr(0, at), text.substr(at + mark.size())};
}

struct Texts {
  std::string before, after;
};

Texts MakeTexts() {
  const auto [head, body] = SplitAt(kPage, "@STYLE@");
  const auto [start, rest] = SplitAt(body, "@DATA@");
  const auto [middle, end] = SplitAt(rest, "@SCRIPT@");
  Texts texts{StrCat(head, kStyle, start), std::string(middle)};
  for (const std::string_view script : kScripts) texts.after += script;
  texts.after += end;
  return texts;
}

}  // namespace

ReportPage GetReportPage() {
  static const Texts texts = MakeTexts();
  return {texts.before, texts.after};
}

}  // namespace lathe
