#pragma once

#include <string>
#include <vector>

#include "lathe/driver/executable.h"
#include "lathe/support/npy.h"
#include "lathe/train/trainer.h"

namespace lathe::train {

/// All that a step changes: its mutable parameters, the counter of random numbers among them.
using StepState = NamedTensors;

/// The compiled step and its state.
class StepRunner {
 public:
  StepRunner(const Program& step, const CompileOptions& options) : executable_(step, options) {}

  const Executable& executable() const { return executable_; }
  NamedValues Run(const NamedValues& inputs) { return executable_.Run(inputs); }
  /// A copy.
  Tensor Parameter(std::string_view name) const { return executable_.GetParameter(name); }
  /// Copies.
  StepState State() const;
  /// Errors: train/checkpoint-parameter if it has not the parameters of the step, or others.
  void SetState(const StepState& state);

 private:
  Executable executable_;
};

/// Of the step of a model, as far as it has run.
TrainingMemory MemoryOf(const Program& model, const Program& step, const Executable& executable);

/// Whether all of its elements are finite; types without infinity and NaN are.
bool IsFinite(const Tensor& tensor);

/// Runs a step on the interpreter and describes the first value that is not finite though all that
/// it is computed from is; empty if there is none. `seed`: of random operations, as the step was
/// compiled with.
struct NotFinite {
  std::string what;   ///< "nn.log makes inf ..."
  std::string where;  ///< location of the operation; may be empty
};
NotFinite FindNotFinite(const Program& step, const StepState& state, const NamedValues& inputs,
                        uint64_t seed);

}  // namespace lathe::train
