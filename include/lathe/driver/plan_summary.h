#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lathe/runtime/plan.h"

namespace lathe {

/// What `lathe inspect` shows of an executable.
struct PlanSummary {
  struct Port {
    std::string name;
    std::string type;  ///< "f32[N,3]"
  };
  std::vector<Port> inputs, outputs;
  std::string target;
  std::vector<std::pair<std::string, int64_t>> steps;  ///< by label, most frequent first
  int64_t num_steps = 0;
  int64_t num_kernels = 0;
  int64_t code_bytes = 0;
  int64_t num_constants = 0;
  int64_t constant_bytes = 0;
  int64_t arena_bytes = 0;        ///< of tensors whose size is no matter of symbols
  int64_t arena_lower_bound = 0;  ///< no plan for these steps takes less
  std::vector<std::string> symbols;
};

PlanSummary Summarize(const runtime::Plan& plan);
std::string RenderSummary(const PlanSummary& summary);
std::string SummaryToJson(const PlanSummary& summary);

}  // namespace lathe
