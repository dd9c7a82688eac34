#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lathe/driver/summary.h"
#include "lathe/runtime/plan.h"

namespace lathe {

/// What `lathe inspect` shows of an executable.
struct PlanSummary {
  std::vector<SummaryPort> inputs, outputs;  ///< types as "f32[N,3]"
  std::string target;
  std::string precision;                               ///< of its kernels, "f32"
  std::vector<std::pair<std::string, int64_t>> steps;  ///< by label, most frequent first
  int64_t num_steps = 0;
  int64_t num_kernels = 0;
  int64_t code_bytes = 0;
  std::vector<SummaryPort> variables;  ///< mutable parameters, which are constants, too
  int64_t num_constants = 0;
  int64_t constant_bytes = 0;
  int64_t arena_bytes = 0;  ///< memory of a run for tensors between steps
  /// What is alive at the worst step; a result in an operand's bytes counts once with it. No
  /// arrangement of what the plan holds takes less.
  int64_t arena_lower_bound = 0;
  int64_t num_in_place = 0;           ///< steps with a result in the bytes of an operand
  std::vector<Dim::Binding> symbols;  ///< for which that is
  Metadata metadata;
};

/// Symbols that are not given are 1.
PlanSummary Summarize(const runtime::Plan& plan, std::span<const Dim::Binding> symbols = {});
std::string RenderSummary(const PlanSummary& summary);
std::string SummaryToJson(const PlanSummary& summary);

}  // namespace lathe
