#pragma once

#include <cstdlib>
#include <string_view>
#include <vector>

#include "lathe/codegen/target.h"

namespace lathe::codegen {

/// The targets that this machine can run, plainest first. LATHE_TEST_TARGETS says which of them:
/// the `outer` two are the plainest and the one with most instructions, between them are the
/// `inner` ones (the plainest if there are two in all).
inline std::vector<const Target*> RunnableTargets() {
  std::vector<const Target*> targets;
  for (const Target& target : Target::All()) {
    if (target.RunsHere()) targets.push_back(&target);
  }
  const char* setting = std::getenv("LATHE_TEST_TARGETS");
  const std::string_view which = setting != nullptr ? setting : "";
  if (targets.size() < 2) return targets;
  if (which == "outer") return {targets.front(), targets.back()};
  if (which != "inner") return targets;
  if (targets.size() == 2) return {targets.front()};
  return {targets.begin() + 1, targets.end() - 1};
}

}  // namespace lathe::codegen
