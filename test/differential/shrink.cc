#include "test/differential/shrink.h"

#include <algorithm>

#include "lathe/driver/reduce.h"
#include "lathe/ir/type.h"
#include "lathe/support/error.h"

namespace lathe::testing {

namespace {

// Labels of sets of inputs are their numbers while it shrinks.
FailingCase ToFailing(const Case& trial) {
  FailingCase failing{trial.program.Clone()};
  for (size_t i = 0; i < trial.inputs.size(); ++i) {
    failing.inputs.push_back({StrCat(i), trial.inputs[i].values});
  }
  return failing;
}

Case ToCase(const FailingCase& failing, const Case& trial) {
  Case result{failing.program.Clone(), {}, trial.kinds};
  for (const LabeledInputs& set : failing.inputs) {
    const InputSet& of = trial.inputs.at(std::stoul(set.label));
    result.inputs.push_back({of.label, set.values, of.decides});
  }
  return result;
}

/// What is compared; where it shrinks, lists may become outputs, too.
bool GivesTensors(const Program& program) {
  return std::ranges::all_of(*program.block(), [](const Operation& op) {
    return op.name() != "nn.fetch" || op.operand(0).type().isa<AnyTensorType>();
  });
}

}  // namespace

Case ShrinkCase(const Case& trial, const Shows& shows, int most) {
  const auto test = [&](const FailingCase& c) {
    return GivesTensors(c.program) && shows(ToCase(c, trial));
  };
  return ToCase(Reduce(ToFailing(trial), test, {.max_runs = most}).smallest, trial);
}

}  // namespace lathe::testing
