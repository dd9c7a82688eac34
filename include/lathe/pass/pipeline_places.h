#pragma once

#include <string>
#include <vector>

#include "lathe/pass/pass_manager.h"

namespace lathe {

/// A place in a named pipeline such as `inference`.
struct PipelinePlace {
  std::string pipeline;
  int level = 2;            ///< the pass runs at this level and above
  std::string before = {};  ///< before the first step with this pass; empty: at the end
};

/// Has a named pipeline run the registered pass `pass`, too: from then on, in this process,
/// whatever is compiled. For plug-ins; passes that are put before the same step run in the order in
/// which they came. Once is enough: a pass that is in the place already stays there alone. Errors:
/// pass/unknown; pass/place for an unknown pipeline or step.
void JoinPipeline(const std::string& pass, PipelinePlace place);

/// `pipelines` with the passes that have joined them.
std::vector<NamedPipeline> WithJoined(std::vector<NamedPipeline> pipelines);

}  // namespace lathe
