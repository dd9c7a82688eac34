#pragma once

#include <map>
#include <string>
#include <vector>

#include "lathe/driver/explain.h"

namespace lathe {

/// Why groups of a program are not larger.
struct FusionBoundaries {
  std::vector<FusionBoundary> all;  ///< the most frequent first
  /// The same by the name of the function that a group becomes.
  std::map<std::string, std::vector<FusionBoundary>> ends, begins;
};

FusionBoundaries FindFusionBoundaries(const Program& source, const CompileOptions& options);

}  // namespace lathe
