#include "tools/lathe/value_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

namespace {

using Json = nlohmann::ordered_json;

Json NumberJson(double number) {
  if (std::isfinite(number)) return number;
  return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
}

std::vector<Json> FlatElements(const Tensor& tensor) {
  std::vector<Json> all;
  const ElementType element = tensor.element_type();
  if (element == ElementType::kString) {
    for (const std::string& text : tensor.data<std::string>()) all.emplace_back(text);
  } else if (element == ElementType::kBool) {
    for (const int64_t v : ToInt64s(tensor)) all.emplace_back(v != 0);
  } else if (element == ElementType::kU64) {
    for (const uint64_t v : tensor.data<uint64_t>()) all.emplace_back(v);
  } else if (IsInteger(element)) {
    for (const int64_t v : ToInt64s(tensor)) all.emplace_back(v);
  } else {
    for (const double v : ToDoubles(tensor)) all.push_back(NumberJson(v));
  }
  return all;
}

}  // namespace

nlohmann::ordered_json ElementsJson(const Tensor& tensor) {
  if (IsComplex(tensor.element_type())) return nullptr;
  std::vector<Json> lists = FlatElements(tensor);
  for (size_t axis = tensor.shape().size(); axis-- > 0;) {
    const auto count = static_cast<size_t>(NumElements(std::span(tensor.shape()).first(axis)));
    std::vector<Json> outer(count, Json::array());
    for (size_t i = 0; i < lists.size(); ++i) {
      outer[i * count / lists.size()].push_back(std::move(lists[i]));
    }
    lists = std::move(outer);
  }
  return lists[0];
}

bool AllAgree(std::span<const ValueDifference> differences) {
  return std::ranges::all_of(differences, &ValueDifference::agrees);
}

}  // namespace lathe::command
