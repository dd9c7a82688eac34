#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/runtime/function.h"
#include "lathe/runtime/plan.h"
#include "lathe/runtime/profile.h"
#include "lathe/runtime/worker_team.h"
#include "lathe/support/budget.h"
#include "lathe/support/buffer.h"
#include "lathe/support/kernel.h"
#include "lathe/support/rt_value.h"
#include "lathe/support/tensor.h"

namespace lathe::runtime {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using NamedValues = std::vector<std::pair<std::string, RtValue>>;

using lathe::CancelToken;

struct ExecutorOptions {
  int threads = 0;  ///< for parallel loops; 0: one per core (UsableCores)
  /// Shared with other executors; null: a team of its own, of `threads` threads.
  std::shared_ptr<WorkerTeam> team = nullptr;
  /// Cap on what all runs together hold for tensors between steps; 0: none.
  uint64_t max_bytes = 0;
  /// Gives memory of so many bytes for tensors between steps, aligned to Buffer::kAlignment, from
  /// whatever thread runs; empty: Buffer::Allocate.
  std::function<std::shared_ptr<Buffer>(uint64_t bytes)> allocate = {};
  /// Those of the plan, by PlanStep::function; empty: MakeFunctions makes them of their texts.
  std::vector<Function> functions = {};
  /// Bindings of symbols whose placement is remembered.
  size_t max_placements = 256;
  /// Steps of one run, those in loops counted each time: a loop that does not end is an error.
  uint64_t max_steps = 1'000'000'000;
  /// For tests: each run begins with bytes of 0xff (NaN in all floats) in memory that steps write,
  /// so that reading what was not written shows.
  bool poison = false;
};

/// A run looks at its limits before each step, and about every millisecond within long ones.
struct RunOptions {
  const CancelToken* cancel = nullptr;
  double timeout_seconds = 0;  ///< 0: any time
  Profile* profile = nullptr;
};

/// An argument in the caller's memory, row-major and aligned to its element type; of strings a
/// pointer to each, which ends with NUL.
struct InputView {
  ElementType element = ElementType::kUndefined;
  const void* data = nullptr;  ///< may be null if there are no elements
  std::span<const int64_t> shape;
  const RtValue* object = nullptr;  ///< instead, of an input that is an object
};

/// Where an output goes: at least as many bytes as it has, aligned to its element type. Outputs
/// overlap neither one another nor inputs. Strings come as a pointer to each, and behind the
/// pointers the strings, each ending with NUL.
struct OutputView {
  void* data = nullptr;
  uint64_t bytes = 0;
};

/// Gives memory for output `output`, which takes `bytes`, once its shape is known: before anything
/// runs or, if the program computes its sizes, in between.
using OutputMemory =
    std::function<OutputView(size_t output, std::span<const int64_t> shape, uint64_t bytes)>;

/// Runs a plan. Any number of threads may run one executor at once; each run has memory of its own,
/// which later runs take over. Same inputs, same bits, whatever the number of threads.
///
/// All of it is immutable but the mutable parameters, which the program reads and sets. Runs of a
/// program that has some take turns, so results depend on the order of runs alone, and whoever
/// gets or sets one waits for the run that goes on. A run sets all of its parameters or none: after
/// an error they are as before it. From the first step on that writes one, a run is not ended by
/// its limits any more.
class Executor {
 public:
  /// A kernel, and what it needs.
  using Kernel = std::function<void(const KernelBuffer* buffers, KernelTeam* team)>;

  /// Maps the plan's code. Errors: plan/... if the plan contradicts itself, run/processor if the
  /// processor lacks features that the code needs, limit/memory.
  explicit Executor(std::shared_ptr<const Plan> plan, ExecutorOptions options = {});
  /// With kernels from elsewhere, by PlanStep::kernel; the plan's code is not used.
  Executor(std::vector<Kernel> kernels, std::shared_ptr<const Plan> plan,
           ExecutorOptions options = {});
  Executor(Executor&&) noexcept;
  ~Executor();

  /// Outputs in the order of the plan. Arguments are checked before anything runs: run/input-name,
  /// run/input-twice, run/input-missing, run/input-type, run/input-shape. Errors of a run:
  /// run/shape if a dim has no value for these inputs, limit/memory, run/cancelled, limit/time;
  /// what a kernel throws. After an error outputs mean nothing.
  NamedTensors Run(const NamedTensors& inputs, const RunOptions& options = {}) const;
  /// The same with values of any kind.
  NamedValues RunValues(const NamedValues& inputs, const RunOptions& options = {}) const;

  /// The same on the caller's memory, inputs and outputs in the order of the plan; allocates
  /// nothing for shapes that were run before (as many at once). More errors: run/input-count,
  /// run/input-data, run/output-count, run/output-data, run/output-object of an output that is
  /// neither numbers nor strings.
  void Run(std::span<const InputView> inputs, std::span<const OutputView> outputs,
           const RunOptions& options = {}) const;
  /// The same with memory that is asked for, as it must be if the program computes sizes of
  /// outputs.
  void RunInto(std::span<const InputView> inputs, const OutputMemory& memory,
               const RunOptions& options = {}) const;

  /// Shapes of the outputs for inputs of these shapes, whose data is not looked at. Errors as Run,
  /// and run/output-shape if the program computes the sizes of an output.
  std::vector<Shape> OutputShapes(std::span<const InputView> inputs) const;

  /// Sorted names of the parameters that runs set.
  std::vector<std::string> MutableParameters() const;
  /// A mutable parameter as it is between two runs, or a constant of the plan by its name, in bytes
  /// of its own. Not from within a run (OutputMemory), which would wait for itself. Errors:
  /// parameter/missing, limit/memory, run/cancelled and limit/time while it waits.
  Tensor GetParameter(std::string_view name) const;
  /// The next run begins with it. Errors: as GetParameter, parameter/constant if runs do not set
  /// it, parameter/type, parameter/shape.
  void SetParameter(std::string_view name, const Tensor& value) const;
  /// The plan, with the mutable parameters as they are: what SavePlan takes to go on elsewhere.
  std::shared_ptr<const Plan> CurrentPlan() const;

  /// Its constants hold what mutable parameters were at first.
  const Plan& plan() const;
  const std::shared_ptr<WorkerTeam>& team() const;
  /// Bytes that runs hold for tensors between steps, idle memory for later runs included.
  uint64_t arena_bytes() const;
  /// Gives idle memory back. Later runs take it again.
  void Trim() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lathe::runtime
