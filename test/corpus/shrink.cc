#include "lathe/driver/reduce.h"
#include "test/corpus/trial.h"

namespace lathe::testing {

namespace {

std::string FailureOf(const FailingCase& c, const std::string& pipeline) {
  const auto reference =
      ReferenceFor(c.program, c.inputs.empty() ? NamedValues() : c.inputs[0].values);
  return RunTrial(c.program, pipeline, reference ? &*reference : nullptr).failure;
}

/// "error[pass/option]", or that a result differs.
std::string KindOf(const std::string& failure) {
  return failure.substr(0, failure.starts_with("error[") ? failure.find(']') : 6);
}

}  // namespace

Shrunk Shrink(const Program& program, const NamedValues& inputs, const std::string& pipeline) {
  FailingCase failing{program.Clone()};
  if (!inputs.empty()) failing.inputs.push_back({"", inputs});
  std::string failure = FailureOf(failing, pipeline);
  if (failure.empty()) return {program.Clone(), ""};
  ReducedCase r = Reduce(failing, [&](const FailingCase& c) {
    return KindOf(FailureOf(c, pipeline)) == KindOf(failure);
  });
  failure = FailureOf(r.smallest, pipeline);
  return {std::move(r.smallest.program), std::move(failure)};
}

}  // namespace lathe::testing
