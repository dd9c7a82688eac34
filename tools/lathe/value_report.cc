#include "tools/lathe/value_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "lathe/support/printable.h"
#include "lathe/support/text.h"

namespace lathe::command {

std::string DifferenceText(std::span<const ValueDifference> differences) {
  std::string text;
  for (const ValueDifference& d : differences) {
    text += StrCat(PrintableLine(d.name), " ", d.type, ": ");
    if (!d.mismatch.empty()) {
      text += d.mismatch + "\n";
      continue;
    }
    text += fmt::format("max abs {:.3g}, max rel {:.3g}", d.max_abs, d.max_rel);
    text += d.beyond == 0 ? ": agrees\n"
                          : StrCat(": ", d.beyond, " of ", d.elements, " differ, first at ",
                                   d.first_place, ": ", d.first_a, " and ", d.first_b, "\n");
  }
  return text;
}

nlohmann::ordered_json DifferenceJson(std::span<const ValueDifference> differences) {
  auto list = nlohmann::ordered_json::array();
  for (const ValueDifference& d : differences) {
    nlohmann::ordered_json entry{{"name", d.name}, {"type", d.type}, {"agrees", d.agrees()}};
    if (!d.mismatch.empty()) entry["mismatch"] = d.mismatch;
    entry["max_abs"] = d.max_abs;
    entry["max_rel"] = d.max_rel;
    entry["elements"] = d.elements;
    entry["beyond"] = d.beyond;
    if (d.beyond > 0) {
      entry["first"] = {{"place", d.first_place}, {"a", d.first_a}, {"b", d.first_b}};
    }
    list.push_back(std::move(entry));
  }
  return list;
}

bool AllAgree(std::span<const ValueDifference> differences) {
  return std::ranges::all_of(differences, &ValueDifference::agrees);
}

}  // namespace lathe::command
