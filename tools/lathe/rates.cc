#include "tools/lathe/rates.h"

#include <fmt/format.h>

#include <algorithm>

#include "lathe/support/error.h"
#include "lathe/support/processors.h"

namespace lathe::command {
namespace {

std::string Cell(double value, int width, int digits) {
  return value < 0 ? fmt::format("{:>{}}", "-", width)
                   : fmt::format("{:{}.{}f}", value, width, digits);
}

void AddKnown(double& sum, double part) { sum = sum < 0 || part < 0 ? -1 : sum + part; }

}  // namespace

void WorkDone::Add(const WorkDone& other) {
  AddKnown(ms, other.ms);
  AddKnown(gflop, other.gflop);
  AddKnown(gigabytes, other.gigabytes);
  AddKnown(bound.ms, other.bound.ms);
  memory_ms += other.bound.by_memory ? std::max(other.bound.ms, 0.0) : 0;
  bound.by_memory = memory_ms > bound.ms / 2;
}

std::string RooflineText(const WorkDone& work) {
  if (work.Share() < 0) return "-";
  if (work.bound.by_memory && work.Share() > 1) return "cached";
  return fmt::format("{:.0f}% of {}", 100 * work.Share(),
                     work.bound.by_memory ? "memory" : "compute");
}

std::string RateColumns(const WorkDone& work) {
  return fmt::format("{} {}  {:<16}", Cell(work.GflopPerSecond(), 8, 1),
                     Cell(work.GbPerSecond(), 7, 1), RooflineText(work));
}

nlohmann::ordered_json NumberOrNull(double value) {
  return value < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
}

void AddRates(nlohmann::ordered_json& json, const WorkDone& work) {
  json["gflop"] = NumberOrNull(work.gflop);
  json["gigabytes"] = NumberOrNull(work.gigabytes);
  json["gflop_per_s"] = NumberOrNull(work.GflopPerSecond());
  json["gb_per_s"] = NumberOrNull(work.GbPerSecond());
  json["bound_ms"] = NumberOrNull(work.bound.ms);
  json["bound_by"] = work.bound.by_memory ? "memory" : "compute";
  json["roofline"] = NumberOrNull(work.Share());
}

MachinePeak MeasureMachineFor(const Executable& executable, const CompileOptions& options) {
  const runtime::Executor* executor = executable.executor();
  std::string target = executor == nullptr ? "" : executor->plan().code.target;
  if (target.empty()) target = options.target;
  try {
    return MeasureMachine(target.empty() ? codegen::Target::Host() : codegen::Target::Named(target),
                          options.threads > 0 ? options.threads : UsableCores());
  } catch (const Error& error) {
    if (error.id() != "codegen/missing") throw;
    return {};
  }
}

std::string MachineText(const MachinePeak& machine) {
  if (machine.gflops <= 0) return "this machine: not measured, there is no code generator";
  return fmt::format("this machine: {:.0f} GFLOP/s f32, {:.1f} GB/s from memory, by {} thread{}",
                     machine.gflops, machine.gbytes, machine.threads,
                     machine.threads == 1 ? "" : "s");
}

nlohmann::ordered_json MachineToJson(const MachinePeak& machine) {
  return {
      {"threads", machine.threads}, {"gflop_per_s", machine.gflops}, {"gb_per_s", machine.gbytes}};
}

std::string Megabytes(double bytes) {
  const double megabytes = bytes * 1e-6;
  return fmt::format("{:.{}f} MB", megabytes, megabytes < 10 ? 2 : megabytes < 100 ? 1 : 0);
}

std::string SymbolsText(std::span<const Dim::Binding> symbols) {
  std::string text;
  for (const auto& [name, value] : symbols) {
    text += StrCat(text.empty() ? "" : ", ", name, " = ", value);
  }
  return text;
}

std::string PlanText(const PlanSummary& plan) {
  const std::string symbols = SymbolsText(plan.symbols);
  return fmt::format("precision {}   weights {}   memory of a run {}, least possible {}{}{}\n",
                     plan.precision, Megabytes(static_cast<double>(plan.constant_bytes)),
                     Megabytes(static_cast<double>(plan.arena_bytes)),
                     Megabytes(static_cast<double>(plan.arena_lower_bound)),
                     symbols.empty() ? "" : ", for ", symbols);
}

nlohmann::ordered_json MemoryToJson(const PlanSummary& plan) {
  nlohmann::ordered_json json = {{"bytes", plan.arena_bytes},
                                 {"lower_bound", plan.arena_lower_bound},
                                 {"in_place", plan.num_in_place}};
  json["for"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : plan.symbols) json["for"][name] = value;
  return json;
}

}  // namespace lathe::command
