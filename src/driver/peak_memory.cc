#include "lathe/driver/peak_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lathe/support/divide.h"
#include "lathe/support/printable.h"
#include "lathe/support/text.h"

namespace lathe {
namespace {

using runtime::Plan;
using runtime::PlanStorage;
using runtime::PlanValue;

constexpr size_t kRows = 20;
constexpr size_t kLabelWidth = 32;

std::vector<int64_t> SizesOf(const Plan& plan, std::span<const Dim::Binding> symbols) {
  std::vector<int64_t> sizes;
  for (const PlanStorage& s : plan.storages) {
    const int64_t bytes = s.bytes.Evaluate(symbols).value_or(0);
    sizes.push_back(RoundUp(bytes, static_cast<int64_t>(runtime::kStorageAlignment)));
  }
  return sizes;
}

/// How many bytes are alive at each step.
std::vector<int64_t> BytesByStep(const Plan& plan, std::span<const int64_t> sizes) {
  std::vector<int64_t> changes(plan.steps.size() + 1, 0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    changes[plan.storages[i].begin] += sizes[i];
    changes[std::min<size_t>(plan.storages[i].end + size_t{1}, plan.steps.size())] -= sizes[i];
  }
  changes.pop_back();
  for (size_t i = 1; i < changes.size(); ++i) changes[i] += changes[i - 1];
  return changes;
}

/// Of the largest tensor in each storage.
std::vector<std::string> TypesOf(const Plan& plan, std::span<const Dim::Binding> symbols) {
  std::vector<std::string> types(plan.storages.size());
  std::vector<int64_t> largest(plan.storages.size(), -1);
  for (const PlanValue& v : plan.values) {
    if (v.place != PlanValue::Place::kArena) continue;
    const SymShape shape(v.dims);
    const int64_t elements = shape.NumElements().Evaluate(symbols).value_or(0);
    const auto bytes = static_cast<int64_t>(
        StorageBytes(v.element, static_cast<size_t>(std::max<int64_t>(elements, 0))));
    if (bytes <= largest[v.index]) continue;
    largest[v.index] = bytes;
    types[v.index] = StrCat(Name(v.element), shape.ToString());
  }
  return types;
}

std::string StepText(uint32_t step, const std::string& label) {
  std::string text = PrintableLine(label);
  if (text.size() > kLabelWidth) text = text.substr(0, kLabelWidth - 3) + "...";
  return fmt::format("{:>5} {:<{}}", step + 1, text, kLabelWidth);
}

std::string Bytes(int64_t bytes) { return HumanBytes(static_cast<uint64_t>(bytes)); }

}  // namespace

PeakMemory PeakOf(const Plan& plan, std::span<const Dim::Binding> symbols) {
  PeakMemory peak;
  peak.num_steps = static_cast<uint32_t>(plan.steps.size());
  if (plan.steps.empty() || plan.storages.empty()) return peak;
  const std::vector<int64_t> sizes = SizesOf(plan, symbols);
  const std::vector<int64_t> alive = BytesByStep(plan, sizes);
  const auto worst = std::max_element(alive.begin(), alive.end());
  peak.step = static_cast<uint32_t>(worst - alive.begin());
  peak.bytes = *worst;
  peak.label = plan.steps[peak.step].label;
  const std::vector<std::string> types = TypesOf(plan, symbols);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const PlanStorage& s = plan.storages[i];
    if (s.begin > peak.step || s.end < peak.step || sizes[i] == 0) continue;
    const uint32_t last = std::min(s.end, peak.num_steps - 1);
    peak.storages.push_back(
        {sizes[i], types[i], s.begin, last, plan.steps[s.begin].label, plan.steps[last].label});
  }
  std::ranges::stable_sort(peak.storages, std::greater<>(), &PeakStorage::bytes);
  return peak;
}

std::string RenderPeak(const PeakMemory& peak) {
  if (peak.storages.empty()) return "alive at the worst step\n  nothing\n";
  std::string out = StrCat("alive at the worst step, ", peak.step + 1, " of ", peak.num_steps, " (",
                           PrintableLine(peak.label), ")\n");
  out +=
      fmt::format("  {:>9}  {:<24}  {:<38} {}\n", Bytes(peak.bytes), "", "  from step", "to step");
  int64_t others = peak.bytes;
  for (size_t i = 0; i < std::min(kRows, peak.storages.size()); ++i) {
    const PeakStorage& s = peak.storages[i];
    others -= s.bytes;
    std::string line =
        fmt::format("  {:>9}  {:<24}  {} {}", Bytes(s.bytes), s.type,
                    StepText(s.first_step, s.written_by), StepText(s.last_step, s.needed_by));
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  if (peak.storages.size() > kRows) {
    out += fmt::format("  {:>9}  in {} others\n", Bytes(others), peak.storages.size() - kRows);
  }
  return out;
}

nlohmann::ordered_json PeakToJson(const PeakMemory& peak) {
  nlohmann::ordered_json json = {{"step", peak.step}, {"label", peak.label}, {"bytes", peak.bytes}};
  json["storages"] = nlohmann::ordered_json::array();
  for (const PeakStorage& s : peak.storages) {
    json["storages"].push_back({{"bytes", s.bytes},
                                {"type", s.type},
                                {"first_step", s.first_step},
                                {"written_by", s.written_by},
                                {"last_step", s.last_step},
                                {"needed_by", s.needed_by}});
  }
  return json;
}

}  // namespace lathe
