#pragma once

#include <optional>
#include <string>

#include "test/differential/expectation.h"

namespace lathe::testing {

/// What a run of a compiled program gave: outputs, or an error.
struct Outcome {
  NamedValues values;
  std::optional<Error> error;
};

/// What is to be said of an outcome: nothing if it is right.
struct Verdict {
  std::string finding = {};  ///< its kind, what is compared when a case shrinks: "differs"
  std::string detail = {};   ///< for a person
  std::string excuse = {};   ///< why it is no finding though it is not what the interpreter gives
};

/// Whether an outcome is what docs/runtime.md allows where the interpreter gives `wanted`.
Verdict Judge(const Expectation& wanted, const Outcome& got);

}  // namespace lathe::testing
