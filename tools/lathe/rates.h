#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lathe/driver/executable.h"
#include "lathe/driver/machine_peak.h"
#include "lathe/driver/plan_summary.h"

namespace lathe::command {

/// Work and the time that it took. Negative: unknown.
struct WorkDone {
  double ms = -1;
  double gflop = -1;
  double gigabytes = -1;
  Bound bound = {};
  double memory_ms = 0;  ///< of the bound of a sum, what memory bounds

  static WorkDone None() { return {.ms = 0, .gflop = 0, .gigabytes = 0, .bound = {.ms = 0}}; }
  /// A sum is unknown if a part is; memory bounds it if it bounds most of it.
  void Add(const WorkDone& other);
  double GflopPerSecond() const { return ms > 0 && gflop >= 0 ? gflop / ms * 1e3 : -1; }
  double GbPerSecond() const { return ms > 0 && gigabytes >= 0 ? gigabytes / ms * 1e3 : -1; }
  /// Of the bound in the time, 0 to 1; above 1 data came from caches.
  double Share() const { return ms > 0 && bound.ms >= 0 ? bound.ms / ms : -1; }
};

/// "84% of compute", "71% of memory", "cached", "-".
std::string RooflineText(const WorkDone& work);

/// "GFLOP/s    GB/s  roofline", and a row of it; both as wide.
inline constexpr const char* kRateTitles = " GFLOP/s    GB/s  roofline        ";
std::string RateColumns(const WorkDone& work);
/// "gflop", "gigabytes", "gflop_per_s", "gb_per_s", "bound_ms", "bound_by", "roofline"; null where
/// unknown.
void AddRates(nlohmann::ordered_json& json, const WorkDone& work);

/// A number that is negative if it is unknown.
nlohmann::ordered_json NumberOrNull(double value);

/// Of the target that the executable has code for; nothing known where there is no code generator.
MachinePeak MeasureMachineFor(const Executable& executable, const CompileOptions& options);
/// "this machine: 265 GFLOP/s f32, 41.3 GB/s from memory, by 1 thread"; says so if it is unknown.
std::string MachineText(const MachinePeak& machine);
nlohmann::ordered_json MachineToJson(const MachinePeak& machine);

/// "9.6 MB": of 1e6 bytes.
std::string Megabytes(double bytes);
/// A line: weights, memory of a run and the least that it could be, for which symbols.
std::string PlanText(const PlanSummary& plan);
/// "N = 1, L = 128"
std::string SymbolsText(std::span<const Dim::Binding> symbols);
/// {"bytes": ..., "lower_bound": ..., "in_place": ..., "for": {"N": 1}}
nlohmann::ordered_json MemoryToJson(const PlanSummary& plan);

}  // namespace lathe::command
