#include "tools/lathe/precision_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lathe/support/printable.h"
#include "tools/lathe/rates.h"

namespace lathe::command {
namespace {

std::string Percent(const std::optional<double>& part) {
  return part ? fmt::format("{:.2f}%", 100 * *part) : "-";
}

std::string RowOf(const LevelReport& level, const OutputError& output, bool first, size_t width) {
  const std::string speed =
      first ? fmt::format("{:>10.3f} {:>6.2f}", level.milliseconds, level.speedup)
            : fmt::format("{:17}", "");
  return fmt::format("{:6} {:>9.2e} {:>9.2e} {:>8} {:>9} {}  {:{}}{}\n",
                     first ? Name(level.level) : "", output.relative_rms, output.largest,
                     Percent(output.top1), output.different, speed, output.name, width,
                     first && !level.keeps_promise ? "  more than it promises" : "");
}

size_t LongestName(const PrecisionReport& report) {
  size_t longest = 0;
  for (const OutputError& o : report.levels[0].outputs) longest = std::max(longest, o.name.size());
  return longest;
}

std::string WorstText(const LevelReport& level) {
  if (level.same_as_strict && level.level != Precision::kStrict) {
    return fmt::format("{:6} the same bits as strict\n", Name(level.level));
  }
  if (!level.worst) return fmt::format("{:6} no kernel loses anything\n", Name(level.level));
  return fmt::format("{:6} {:.2e} in {} ({}), {}\n", Name(level.level), level.worst->relative_rms,
                     level.worst->operations, level.worst->strategy, level.worst->place);
}

nlohmann::ordered_json ErrorToJson(const OutputError& o) {
  nlohmann::ordered_json json = {{"name", o.name},
                                 {"elements", o.elements},
                                 {"largest", o.largest},
                                 {"relative_largest", o.relative_largest},
                                 {"relative_rms", o.relative_rms},
                                 {"different", o.different}};
  json["top1"] = o.top1 ? nlohmann::ordered_json(*o.top1) : nlohmann::ordered_json();
  return json;
}

nlohmann::ordered_json LevelToJson(const LevelReport& level) {
  nlohmann::ordered_json json = {{"level", Name(level.level)},
                                 {"ms", level.milliseconds},
                                 {"speedup", level.speedup},
                                 {"same_as_strict", level.same_as_strict},
                                 {"keeps_promise", level.keeps_promise}};
  for (const OutputError& o : level.outputs) json["outputs"].push_back(ErrorToJson(o));
  if (!level.worst) return json;
  json["worst_kernel"] = {{"operations", level.worst->operations},
                          {"strategy", level.worst->strategy},
                          {"place", level.worst->place},
                          {"relative_rms", level.worst->relative_rms},
                          {"largest", level.worst->largest}};
  return json;
}

}  // namespace

std::string PrecisionText(const PrecisionReport& report) {
  std::string text =
      fmt::format("errors against f64\n{:6} {:>9} {:>9} {:>8} {:>9} {:>10} {:>6}  output\n",
                  "level", "rms", "largest", "top-1", "different", "ms", "speed");
  const size_t width = LongestName(report);
  for (const LevelReport& level : report.levels) {
    for (const OutputError& output : level.outputs) {
      text += RowOf(level, output, &output == level.outputs.data(), width);
    }
  }
  text += "the kernel that loses most\n";
  for (const LevelReport& level : report.levels) text += WorstText(level);
  for (const auto& [name, count] : report.kept) {
    text += fmt::format("not in f64: {}x {}\n", count, name);
  }
  if (report.kernels_not_compared > 0) {
    text += fmt::format("kernels that were not compared: {}\n", report.kernels_not_compared);
  }
  return text;
}

std::string PrecisionJson(const PrecisionReport& report) {
  nlohmann::ordered_json json = {{"levels", nlohmann::ordered_json::array()}};
  for (const LevelReport& level : report.levels) json["levels"].push_back(LevelToJson(level));
  json["not_in_f64"] = report.kept;
  json["kernels_not_compared"] = report.kernels_not_compared;
  return JsonText(json, 2) + "\n";
}

}  // namespace lathe::command
