#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/driver/executable.h"

/// What a program becomes, and why: groups, strategies, what they cost and what they could cost.
namespace lathe {

struct ExplainOptions {
  CompileOptions compile = {};  ///< its cache is not used: what it holds says no reasons
  int runs = 0;                 ///< that are measured; 0: none
  NamedValues inputs = {};      ///< of these runs
};

/// A function: operations that one kernel computes.
struct ExplainedFunction {
  CompiledFunctionInfo info;
  double gigabytes = -1;  ///< of a run (all calls); negative: unknown
  double gflop = -1;
  double bound_ms = -1;    ///< no run can be faster: arithmetic at the peak, or memory at its speed
  bool by_memory = false;  ///< which of them bounds
  double ms = -1;          ///< measured, of a run
  /// Of the bound in what was measured, 0 to 1; negative: unknown.
  double share() const { return ms > 0 && bound_ms >= 0 ? bound_ms / ms : -1; }
};

struct Explanation {
  std::vector<ExplainedFunction> functions;                 ///< the most expensive first
  std::vector<std::pair<std::string, size_t>> interpreted;  ///< operations without functions
  std::vector<std::string> obstacles;                       ///< why there is no plan
  /// "nn.conv with nn.max_pool: why not", and how often.
  std::vector<std::pair<std::string, size_t>> refusals;
  double peak_gflops = 0;  ///< of the threads together
  double read_gbytes = 0;  ///< per second
};

/// Errors: as Executable.
Explanation Explain(const Program& program, const ExplainOptions& options);

}  // namespace lathe
