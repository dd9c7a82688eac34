#pragma once

#include <optional>
#include <vector>

#include "lathe/driver/reduce.h"

namespace lathe::reduction {

/// What the interpreter computes for a case, when it is first asked for. It may crash: it is tried
/// in a child process first.
class CaseValues {
 public:
  explicit CaseValues(const FailingCase& of) : case_(&of) {}
  /// The results of operation `index`, in the order of OpWalker, when it first runs on a set of
  /// inputs; empty if it does not. Errors: io/fork.
  const std::vector<RtValue>& ResultsOf(size_t set, size_t index);

 private:
  using Results = std::vector<std::vector<RtValue>>;  ///< by the place of the operation
  Results Compute(const NamedValues& inputs) const;

  const FailingCase* case_;
  std::vector<std::optional<Results>> sets_;
};

}  // namespace lathe::reduction
