#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/pass/pass_manager.h"

namespace lathe {

/// One step of a pipeline: a pass, or a pipeline for the regions of an op kind.
struct Step {
  std::unique_ptr<Pass> pass;
  std::string op;
  std::vector<Step> nested;
  bool enabled = true;  ///< set by EnableSteps
};

/// The steps of a pipeline as text; named pipelines as far as the level and the names switched on
/// reach.
std::vector<Step> MakeSteps(std::string_view pipeline, const PassManagerOptions& options);
std::string StepsToText(const std::vector<Step>& steps);
/// Switches passes off by name, and all after the first `stop_after`. A pass counts once, on
/// however many operations its pipeline runs.
void EnableSteps(std::vector<Step>& steps, const PassManagerOptions& options);
/// Other passes of the same kinds, with the same options and attributes.
std::vector<Step> CloneSteps(const std::vector<Step>& steps);
/// Adds what the passes of `parts`, a clone, have counted.
void AbsorbStatistics(const std::vector<Step>& steps, const std::vector<Step>& parts);
/// A row for each enabled pass, in order.
std::vector<PassTiming> EmptyTimings(const std::vector<Step>& steps, int depth);

}  // namespace lathe
