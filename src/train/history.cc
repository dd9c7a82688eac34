#include "lathe/train/history.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lathe/support/error.h"
#include "lathe/support/file.h"

namespace lathe::train {
namespace {

using Json = nlohmann::ordered_json;

// Numbers that JSON lacks are text.
Json Number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

void AddMetrics(Json& line, const std::string& prefix, const Metrics& metrics) {
  line[prefix + "loss"] = Number(metrics.loss);
  if (metrics.accuracy) line[prefix + "accuracy"] = *metrics.accuracy;
  line[prefix + "samples"] = metrics.samples;
}

template <class Report>
Json Begin(const char* kind, const Report& report) {
  return {{"kind", kind}, {"epoch", report.epoch}, {"step", report.step}};
}

Json ToJson(const StepReport& report) {
  Json line = Begin("step", report);
  AddMetrics(line, "", report.metrics);
  line["seconds"] = report.seconds;
  return line;
}

Json ToJson(const EpochReport& report) {
  Json line = Begin("epoch", report);
  AddMetrics(line, "", report.training);
  if (report.evaluation) AddMetrics(line, "eval_", *report.evaluation);
  line["seconds"] = report.seconds;
  if (report.communication) {
    line["communication_seconds"] = report.communication->seconds;
    line["hidden_seconds"] = report.communication->hidden();
  }
  line["parameter_bytes"] = report.memory.parameters;
  line["state_bytes"] = report.memory.states;
  line["step_bytes"] = report.memory.step;
  return line;
}

void AddPoint(const Json& line, const char* key, std::vector<History::Point>& curve) {
  const auto at = line.find(key);
  if (at != line.end() && at->is_number()) curve.push_back({line["step"], *at});
}

}  // namespace

std::string ToJsonLine(const StepReport& report) { return ToJson(report).dump() + "\n"; }
std::string ToJsonLine(const EpochReport& report) { return ToJson(report).dump() + "\n"; }

void History::AddLine(const std::string& text) {
  const Json line = Json::parse(text);
  const bool is_step = line.at("kind") == "step";
  AddPoint(line, "loss", is_step ? loss_.steps : loss_.epochs);
  AddPoint(line, "accuracy", is_step ? accuracy_.steps : accuracy_.epochs);
  AddPoint(line, "eval_loss", loss_.evaluations);
  AddPoint(line, "eval_accuracy", accuracy_.evaluations);
  lines_ += text;
}

void History::Add(const StepReport& report) { AddLine(ToJsonLine(report)); }
void History::Add(const EpochReport& report) { AddLine(ToJsonLine(report)); }

History History::Read(const std::string& path, int64_t step) {
  const std::string text = ReadFile(path);
  History history;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    try {
      if (Json::parse(line).at("step").get<int64_t>() <= step) history.AddLine(line + "\n");
    } catch (const Json::exception& e) {
      throw Error(ErrorCode::kParse, "parse/metrics", "this is not a line of metrics")
          .At(StrCat(path, ":", number))
          .Note(e.what());
    }
  }
  return history;
}

}  // namespace lathe::train
