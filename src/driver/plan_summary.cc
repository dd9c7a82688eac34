#include "lathe/driver/plan_summary.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "lathe/support/text.h"
#include "src/driver/plan_builder.h"

namespace lathe {
namespace {

using runtime::Plan;

std::vector<PlanSummary::Port> PortsOf(const Plan& plan,
                                       const std::vector<runtime::PlanPort>& ports) {
  std::vector<PlanSummary::Port> all;
  for (const runtime::PlanPort& p : ports) {
    const runtime::PlanValue& v = plan.values[p.value];
    all.push_back({p.name, StrCat(Name(v.element), SymShape(v.dims).ToString())});
  }
  return all;
}

void AppendPorts(std::string& out, const char* title, const std::vector<PlanSummary::Port>& ports) {
  out += StrCat(title, "\n");
  size_t width = 0;
  for (const auto& p : ports) width = std::max(width, p.name.size());
  for (const auto& p : ports) {
    out += StrCat("  ", p.name, std::string(width - p.name.size() + 2, ' '), p.type, "\n");
  }
}

std::string Bytes(int64_t bytes) { return HumanBytes(static_cast<uint64_t>(bytes)); }

}  // namespace

PlanSummary Summarize(const Plan& plan) {
  PlanSummary s;
  s.inputs = PortsOf(plan, plan.inputs);
  s.outputs = PortsOf(plan, plan.outputs);
  s.target = plan.code.target;
  std::map<std::string, int64_t> labels;
  for (const runtime::PlanStep& step : plan.steps) ++labels[step.label];
  s.steps.assign(labels.begin(), labels.end());
  std::ranges::stable_sort(s.steps, std::greater<>(), [](const auto& step) { return step.second; });
  s.num_steps = static_cast<int64_t>(plan.steps.size());
  s.num_kernels = static_cast<int64_t>(plan.code.entries.size());
  s.code_bytes = static_cast<int64_t>(plan.code.bytes.size());
  s.num_constants = static_cast<int64_t>(plan.constants.size());
  for (const Tensor& t : plan.constants) s.constant_bytes += static_cast<int64_t>(t.byte_size());
  const PlanMemory memory = MemoryOf(plan);
  s.arena_bytes = static_cast<int64_t>(memory.peak);
  s.arena_lower_bound = static_cast<int64_t>(memory.lower_bound);
  for (const runtime::PlanSymbol& symbol : plan.symbols) s.symbols.push_back(symbol.name);
  return s;
}

std::string RenderSummary(const PlanSummary& s) {
  std::string out;
  AppendPorts(out, "inputs", s.inputs);
  AppendPorts(out, "outputs", s.outputs);
  out += StrCat("code\n  ", s.num_kernels, " kernels for ", s.target, ", ", Bytes(s.code_bytes),
                "\nweights\n  ", s.num_constants, " tensors, ", Bytes(s.constant_bytes),
                "\nmemory of a run\n  ", Bytes(s.arena_bytes));
  if (!s.symbols.empty()) {
    out += " and what depends on";
    for (const std::string& symbol : s.symbols) out += StrCat(" ", symbol);
  }
  out += StrCat("\nsteps  ", s.num_steps, "\n");
  for (const auto& [label, count] : s.steps) {
    const std::string number = StrCat(count);
    out += StrCat(std::string(number.size() < 6 ? 6 - number.size() : 0, ' '), number, "  ", label,
                  "\n");
  }
  return out;
}

std::string SummaryToJson(const PlanSummary& s) {
  nlohmann::ordered_json json;
  const auto ports = [](const std::vector<PlanSummary::Port>& all) {
    auto list = nlohmann::ordered_json::array();
    for (const auto& p : all) list.push_back({{"name", p.name}, {"type", p.type}});
    return list;
  };
  json["inputs"] = ports(s.inputs);
  json["outputs"] = ports(s.outputs);
  json["symbols"] = s.symbols;
  json["target"] = s.target;
  json["kernels"] = s.num_kernels;
  json["code_bytes"] = s.code_bytes;
  json["weights"] = {{"tensors", s.num_constants}, {"bytes", s.constant_bytes}};
  json["memory"] = {{"bytes", s.arena_bytes}, {"lower_bound", s.arena_lower_bound}};
  json["num_steps"] = s.num_steps;
  json["steps"] = nlohmann::ordered_json::array();
  for (const auto& [label, count] : s.steps) {
    json["steps"].push_back({{"label", label}, {"count", count}});
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lathe
