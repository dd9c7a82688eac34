#include "lathe/driver/plan_summary.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "lathe/support/printable.h"
#include "lathe/support/text.h"
#include "src/driver/plan_builder.h"
#include "src/driver/port_list.h"

namespace lathe {
namespace {

using runtime::Plan;

std::vector<SummaryPort> PortsOf(const Plan& plan, const std::vector<runtime::PlanPort>& ports) {
  std::vector<SummaryPort> all;
  for (const runtime::PlanPort& p : ports) {
    const runtime::PlanValue& v = plan.values[p.value];
    const std::string tensor = StrCat(Name(v.element), SymShape(v.dims).ToString());
    all.push_back({p.name, v.type.empty() ? tensor : v.type});
  }
  return all;
}

bool IsInPlace(const Plan& plan, const runtime::PlanStep& step) {
  const auto place = [&](size_t i) {
    const runtime::PlanValue& v = plan.values[step.values[i]];
    return std::tuple(v.place, v.index, v.offset);
  };
  for (size_t w = step.reads; w < step.values.size(); ++w) {
    for (size_t r = 0; r < step.reads; ++r) {
      if (place(r) == place(w)) return true;
    }
  }
  return false;
}

std::string Bytes(int64_t bytes) { return HumanBytes(static_cast<uint64_t>(bytes)); }

}  // namespace

PlanSummary Summarize(const Plan& plan, std::span<const Dim::Binding> symbols) {
  PlanSummary s;
  s.inputs = PortsOf(plan, plan.inputs);
  s.outputs = PortsOf(plan, plan.outputs);
  s.target = plan.code.target;
  s.precision = plan.precision;
  for (const runtime::PlanText& entry : plan.metadata) {
    s.metadata.emplace_back(entry.name, entry.text);
  }
  std::map<std::string, int64_t> labels;
  for (const runtime::PlanStep& step : plan.steps) {
    ++labels[step.label];
    s.num_in_place += IsInPlace(plan, step) ? 1 : 0;
  }
  s.steps.assign(labels.begin(), labels.end());
  std::ranges::stable_sort(s.steps, std::greater<>(), [](const auto& step) { return step.second; });
  s.num_steps = static_cast<int64_t>(plan.steps.size());
  s.num_kernels = static_cast<int64_t>(plan.code.entries.size());
  s.code_bytes = static_cast<int64_t>(plan.code.bytes.size());
  for (const runtime::PlanVariable& v : plan.variables) {
    s.variables.push_back({plan.constant_names[v.initial], plan.constants[v.initial].TypeString()});
  }
  s.num_constants = static_cast<int64_t>(plan.constants.size());
  for (const Tensor& t : plan.constants) s.constant_bytes += static_cast<int64_t>(t.byte_size());
  for (const runtime::PlanSymbol& symbol : plan.symbols) {
    const auto given = std::ranges::find(symbols, symbol.name, &Dim::Binding::first);
    s.symbols.emplace_back(symbol.name, given == symbols.end() ? 1 : given->second);
  }
  const PlanMemory memory = MemoryOf(plan, s.symbols);
  s.arena_bytes = static_cast<int64_t>(memory.peak);
  s.arena_lower_bound = static_cast<int64_t>(memory.lower_bound);
  return s;
}

std::string RenderSummary(const PlanSummary& s) {
  std::string out;
  AppendPorts(out, "inputs", s.inputs);
  AppendPorts(out, "outputs", s.outputs);
  if (!s.variables.empty()) AppendPorts(out, "mutable parameters", s.variables);
  AppendMetadata(out, s.metadata);
  out += StrCat("code\n  ", s.num_kernels, " kernels for ", s.target, ", ", Bytes(s.code_bytes),
                ", precision ", s.precision, "\nweights\n  ", s.num_constants, " tensors, ",
                Bytes(s.constant_bytes), "\nmemory of a run\n  ", Bytes(s.arena_bytes),
                "; least possible ", Bytes(s.arena_lower_bound));
  const char* comma = "; for ";
  for (const auto& [name, value] : s.symbols) {
    out += StrCat(comma, name, " = ", value);
    comma = ", ";
  }
  out += StrCat("\nsteps  ", s.num_steps, ", ", s.num_in_place,
                " with a result in the bytes of an operand\n");
  for (const auto& [label, count] : s.steps) {
    const std::string number = StrCat(count);
    out += StrCat(std::string(number.size() < 6 ? 6 - number.size() : 0, ' '), number, "  ",
                  PrintableLine(label), "\n");
  }
  return out;
}

std::string SummaryToJson(const PlanSummary& s) {
  nlohmann::ordered_json json;
  json["inputs"] = PortsToJson(s.inputs);
  json["outputs"] = PortsToJson(s.outputs);
  if (!s.variables.empty()) json["mutable_parameters"] = PortsToJson(s.variables);
  json["symbols"] = nlohmann::ordered_json::array();
  for (const auto& symbol : s.symbols) json["symbols"].push_back(symbol.first);
  json["metadata"] = MetadataToJson(s.metadata);
  json["target"] = s.target;
  json["precision"] = s.precision;
  json["kernels"] = s.num_kernels;
  json["code_bytes"] = s.code_bytes;
  json["weights"] = {{"tensors", s.num_constants}, {"bytes", s.constant_bytes}};
  json["memory"] = {
      {"bytes", s.arena_bytes}, {"lower_bound", s.arena_lower_bound}, {"in_place", s.num_in_place}};
  json["memory"]["for"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : s.symbols) json["memory"]["for"][name] = value;
  json["num_steps"] = s.num_steps;
  json["steps"] = nlohmann::ordered_json::array();
  for (const auto& [label, count] : s.steps) {
    json["steps"].push_back({{"label", label}, {"count", count}});
  }
  return JsonText(json, 2) + "\n";
}

}  // namespace lathe
