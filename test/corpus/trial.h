#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lathe/driver/pass_checks.h"
#include "lathe/ir/program.h"

namespace lathe::testing {

/// How a pass is run: itself with what it needs, as a pipeline.
struct PassSetting {
  std::string pass;      ///< its name
  std::string pipeline;  ///< required passes, then itself with options; empty: not run
  std::string reason;    ///< why not, or why its results are not compared
  bool compare = true;
};
/// One for each registered pass, then one for each named pipeline, at its highest level.
std::vector<PassSetting> AllSettings();

struct Trial {
  std::string failure;  ///< empty: fine
  bool changed = false;
  bool compared = false;  ///< numerically
};

/// Runs `pipeline` on a copy of `program`: verified after each pass, an unreported change is a
/// failure, and a result that changed is compared with `reference` if there is one.
Trial RunTrial(const Program& program, const std::string& pipeline,
               const NumericReference* reference);

/// The reference, or none where the program does not run on these inputs.
std::optional<NumericReference> ReferenceFor(const Program& program, NamedValues inputs = {});

/// Of a program on which a trial fails, as small a one as can be found that fails too: outputs are
/// dropped, and values become inputs with what they were.
struct Shrunk {
  Program program;
  std::string failure;
};
Shrunk Shrink(const Program& program, const NamedValues& inputs, const std::string& pipeline);

}  // namespace lathe::testing
