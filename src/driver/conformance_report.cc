#include <algorithm>
#include <map>

#include "lathe/support/printable.h"
#include "src/driver/conformance_json.h"

namespace lathe {

namespace {

struct Tally {
  size_t counts[3] = {};
  void Add(CaseOutcome outcome) { ++counts[static_cast<size_t>(outcome)]; }
  size_t total() const { return counts[0] + counts[1] + counts[2]; }
};
using Tallies = std::map<std::string, Tally>;

std::string Pad(std::string text, size_t width, bool right = false) {
  const std::string space(text.size() < width ? width - text.size() : 0, ' ');
  return right ? space + text : text + space;
}

// The operators that a case is about: of one-operator cases that one.
void Count(const ConformanceReport& report, Tallies& groups, Tallies& opsets, Tallies& operators) {
  for (const CaseResult& c : report.cases) {
    groups[c.group].Add(c.outcome);
    opsets[Pad(std::to_string(c.opset), 3, true)].Add(c.outcome);
    for (const std::string& op : c.operators) operators[op].Add(c.outcome);
  }
}

void AppendTable(std::string& out, const char* title, const Tallies& rows, bool only_incomplete) {
  constexpr size_t kNumber = 8;
  size_t width = std::string_view(title).size();
  for (const auto& [name, tally] : rows) width = std::max(width, name.size());
  out += Pad(title, width);
  for (const char* head : {"passed", "failed", "refused"}) out += Pad(head, kNumber + 1, true);
  out += '\n';
  size_t complete = 0;
  for (const auto& [name, tally] : rows) {
    if (only_incomplete && tally.counts[0] == tally.total()) {
      ++complete;
      continue;
    }
    out += Pad(name, width);
    for (const size_t count : tally.counts) {
      out += Pad(std::to_string(count), kNumber + 1, true);
    }
    out += '\n';
  }
  if (complete != 0) out += StrCat("and ", complete, " of which every case passes\n");
  out += '\n';
}

void AppendReasons(std::string& out, const ConformanceReport& report, CaseOutcome outcome,
                   const char* title) {
  std::map<std::string, std::pair<size_t, std::string>> reasons;
  for (const CaseResult& c : report.cases) {
    if (c.outcome != outcome) continue;
    auto& [count, example] = reasons[StrCat(c.id, ": ", c.reason)];
    if (count++ == 0) example = StrCat(c.group, "/", c.name);
  }
  if (reasons.empty()) return;
  out += StrCat(title, "\n");
  std::vector<std::pair<size_t, std::string>> lines;
  for (const auto& [reason, entry] : reasons) {
    lines.emplace_back(entry.first, StrCat(Pad(std::to_string(entry.first), 5, true), "  ", reason,
                                           "  (", entry.second, ")\n"));
  }
  std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  for (const auto& [count, line] : lines) out += line;
  out += '\n';
}

nlohmann::ordered_json ToJsonTable(const Tallies& rows) {
  auto table = nlohmann::ordered_json::object();
  for (const auto& [name, tally] : rows) {
    const size_t first = name.find_first_not_of(' ');
    table[first == std::string::npos ? name : name.substr(first)] = {
        {"passed", tally.counts[0]}, {"failed", tally.counts[1]}, {"refused", tally.counts[2]}};
  }
  return table;
}

}  // namespace

std::string ConformanceReport::ToText(bool list_cases) const {
  Tallies groups, opsets, operators;
  Count(*this, groups, opsets, operators);
  std::string out;
  if (list_cases) {
    for (const CaseResult& c : cases) {
      out += StrCat(Pad(std::string(Name(c.outcome)), 8), c.group, "/", c.name,
                    c.reason.empty() ? "" : StrCat("  ", c.id, ": ", c.reason), "\n");
    }
    out += '\n';
  }
  AppendTable(out, "operator", operators, true);
  AppendTable(out, "opset", opsets, false);
  AppendTable(out, "group", groups, false);
  AppendReasons(out, *this, CaseOutcome::kRefused, "refused because");
  AppendReasons(out, *this, CaseOutcome::kFailed, "failed because");
  return out + StrCat(passed, " passed, ", failed, " failed, ", refused, " refused\n");
}

std::string ConformanceReport::ToJson() const {
  Tallies groups, opsets, operators;
  Count(*this, groups, opsets, operators);
  nlohmann::ordered_json json;
  json["passed"] = passed;
  json["failed"] = failed;
  json["refused"] = refused;
  json["groups"] = ToJsonTable(groups);
  json["opsets"] = ToJsonTable(opsets);
  json["operators"] = ToJsonTable(operators);
  auto list = nlohmann::ordered_json::array();
  for (const CaseResult& c : cases) list.push_back(CaseToJson(c));
  json["cases"] = std::move(list);
  return JsonText(json, 1) + "\n";
}

nlohmann::ordered_json CaseToJson(const CaseResult& c) {
  return {
      {"group", c.group},    {"name", c.name},     {"path", c.path},   {"outcome", Name(c.outcome)},
      {"id", c.id},          {"reason", c.reason}, {"opset", c.opset}, {"operators", c.operators},
      {"seconds", c.seconds}};
}

CaseResult CaseFromJson(const nlohmann::json& json) {
  CaseResult c;
  c.group = json.value("group", "");
  c.name = json.value("name", "");
  c.path = json.value("path", "");
  c.id = json.value("id", "");
  c.reason = json.value("reason", "");
  c.opset = json.value("opset", 0);
  c.seconds = json.value("seconds", 0.0);
  c.operators = json.value("operators", std::vector<std::string>());
  for (const auto outcome : {CaseOutcome::kPassed, CaseOutcome::kFailed, CaseOutcome::kRefused}) {
    if (json.value("outcome", "") == Name(outcome)) c.outcome = outcome;
  }
  return c;
}

}  // namespace lathe
