#pragma once

#include <string>
#include <vector>

#include "test/differential/graph_grower.h"

namespace lathe::testing {

struct DifferentialOptions {
  std::vector<std::string> tiers;  ///< names of targets
  std::vector<int> levels = {2};   ///< of optimization
  std::string external = {};
  bool check_accesses = false;  ///< by code that checks each of them
  bool coverage = true;
};

struct Finding {
  std::string kind;    ///< what is compared when it shrinks: "differs", "error verify/inferred"
  std::string detail;  ///< for a person
};

struct TrialResult {
  std::vector<Finding> findings;
  /// "op nn.add", "strategy conv", "refused conv: ...", "interpreted nn.unique", "plan", ...
  std::vector<std::string> coverage;
};

/// Compiles the case for every tier and compares with the interpreter: the first run and the next,
/// from a cold and a warm cache, on one thread and on two, saved and loaded with poisoned memory.
TrialResult RunDifferentialTrial(const Case& trial, uint64_t seed,
                                 const DifferentialOptions& options);

}  // namespace lathe::testing
