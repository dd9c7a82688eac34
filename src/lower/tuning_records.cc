#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lathe/lower/strategy.h"
#include "lathe/support/error.h"

namespace lathe {

namespace {

using Json = nlohmann::json;

std::string KeyOf(std::string_view workload, std::string_view target,
                  std::string_view implementation) {
  return Json{{"implementation", implementation}, {"target", target}, {"workload", workload}}
      .dump();
}

[[noreturn]] void BadLine(size_t number, std::string_view why) {
  throw Error(ErrorCode::kParse, "tune/record", StrCat("a tuning record ", why))
      .At(StrCat("line ", number));
}

void AddLine(std::string_view line, size_t number, TuningRecords& records) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) BadLine(number, "must be a JSON object");
  for (const char* key : {"workload", "target", "implementation"}) {
    if (!json.contains(key) || !json[key].is_string()) {
      BadLine(number, StrCat("needs the string '", key, "'"));
    }
  }
  if (!json.contains("seconds") || !json["seconds"].is_number()) {
    BadLine(number, "needs the number 'seconds'");
  }
  const double seconds = json["seconds"].get<double>();
  if (!std::isfinite(seconds) || seconds < 0) BadLine(number, "needs 'seconds' of at least 0");
  records.Add(json["workload"].get<std::string>(), json["target"].get<std::string>(),
              json["implementation"].get<std::string>(), seconds);
}

}  // namespace

void TuningRecords::Add(std::string_view workload, std::string_view target,
                        std::string_view implementation, double seconds) {
  const auto [at, added] = seconds_.emplace(KeyOf(workload, target, implementation), seconds);
  if (!added) at->second = std::min(at->second, seconds);
}

std::optional<double> TuningRecords::Find(std::string_view workload, std::string_view target,
                                          std::string_view implementation) const {
  const auto at = seconds_.find(KeyOf(workload, target, implementation));
  return at == seconds_.end() ? std::nullopt : std::optional(at->second);
}

std::string TuningRecords::ToText() const {
  std::string text;
  for (const auto& [key, seconds] : seconds_) {
    Json json = Json::parse(key);
    json["seconds"] = seconds;
    text += json.dump() + "\n";
  }
  return text;
}

TuningRecords TuningRecords::FromText(std::string_view text) {
  TuningRecords records;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) AddLine(line, number, records);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return records;
}

}  // namespace lathe
