#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lathe/lower/strategy.h"
#include "lathe/support/error.h"

namespace lathe {

namespace {

using Json = nlohmann::json;

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
  auto& of_call = seconds_[Call(workload, target)];
  const auto [at, added] = of_call.emplace(implementation, seconds);
  if (!added) at->second = std::min(at->second, seconds);
}

void TuningRecords::Add(const TuningRecords& others) {
  for (const auto& [call, implementations] : others.seconds_) {
    for (const auto& [name, seconds] : implementations) {
      Add(call.first, call.second, name, seconds);
    }
  }
}

std::optional<double> TuningRecords::Find(std::string_view workload, std::string_view target,
                                          std::string_view implementation) const {
  const auto of_call = seconds_.find(Call(workload, target));
  if (of_call == seconds_.end()) return std::nullopt;
  const auto at = of_call->second.find(implementation);
  return at == of_call->second.end() ? std::nullopt : std::optional(at->second);
}

std::vector<std::pair<std::string, double>> TuningRecords::Ranked(std::string_view workload,
                                                                  std::string_view target) const {
  const auto of_call = seconds_.find(Call(workload, target));
  if (of_call == seconds_.end()) return {};
  std::vector<std::pair<std::string, double>> ranked(of_call->second.begin(),
                                                     of_call->second.end());
  std::ranges::stable_sort(ranked, {}, [](const auto& e) { return e.second; });
  return ranked;
}

std::optional<std::pair<std::string, double>> TuningRecords::Best(std::string_view workload,
                                                                  std::string_view target) const {
  const auto of_call = seconds_.find(Call(workload, target));
  if (of_call == seconds_.end()) return std::nullopt;
  return *std::ranges::min_element(of_call->second, {}, [](const auto& e) { return e.second; });
}

size_t TuningRecords::size() const {
  size_t count = 0;
  for (const auto& [call, implementations] : seconds_) count += implementations.size();
  return count;
}

std::string TuningRecords::ToText() const {
  std::string text;
  for (const auto& [call, implementations] : seconds_) {
    for (const auto& [name, seconds] : implementations) {
      const Json json = {{"workload", call.first},
                         {"target", call.second},
                         {"implementation", name},
                         {"seconds", seconds}};
      text += json.dump() + "\n";
    }
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
