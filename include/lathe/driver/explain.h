#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/driver/executable.h"
#include "lathe/driver/machine_peak.h"
#include "lathe/driver/plan_summary.h"

/// What a program becomes, and why: groups, strategies, what they cost and what they could cost.
namespace lathe {

struct ExplainOptions {
  CompileOptions compile = {};  ///< its cache is not used: what it holds says no reasons
  int runs = 0;                 ///< that are measured; 0: none
  /// Of these runs; their shapes say what symbols are. Without, work of symbolic size is unknown.
  NamedValues inputs = {};
};

/// Where groups are not one: `op` is computed, and its result written, before `into` reads it.
struct FusionBoundary {
  std::string op, into;  ///< "nn.conv"; into nothing: its uses do not meet
  std::string why;
  size_t count = 0;  ///< how often
};

/// A function: operations that one kernel computes.
struct ExplainedFunction {
  CompiledFunctionInfo info;
  std::string results;    ///< of the first call, "f32[1,64,56,56]"; empty without a plan
  double gigabytes = -1;  ///< of a run (all calls); negative: unknown
  double gflop = -1;
  Bound bound;                       ///< no run can be faster, but for data that is still in caches
  double ms = -1;                    ///< measured, of a run
  std::vector<FusionBoundary> ends;  ///< why what follows is not part of it
  std::vector<FusionBoundary> begins;  ///< why what comes before is not

  bool interpreted() const { return info.strategy.empty(); }
  /// Of the bound in what was measured, 0 to 1; negative: unknown.
  double share() const { return ms > 0 && bound.ms >= 0 ? bound.ms / ms : -1; }
};

struct Explanation {
  std::string target;
  Precision precision = Precision::kStrict;
  bool runs_here = true;              ///< false: there is no plan, and nothing is known of times
  std::vector<Dim::Binding> symbols;  ///< of the inputs
  std::vector<ExplainedFunction> functions;                 ///< the most expensive first
  std::optional<PlanSummary> plan;                          ///< none: see `obstacles`
  double run_ms = -1;                                       ///< measured, median
  std::vector<std::pair<std::string, size_t>> interpreted;  ///< as Executable
  std::vector<std::string> obstacles;                       ///< why there is no plan
  std::vector<FusionBoundary> boundaries;  ///< of all groups, the most frequent first
  MachinePeak machine;
};

/// Errors: as Executable; a target that does not run here is one only if runs are to be measured.
Explanation Explain(const Program& program, const ExplainOptions& options);

}  // namespace lathe
