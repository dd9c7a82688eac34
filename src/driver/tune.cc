#include "lathe/driver/tune.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "lathe/codegen/code_generator.h"
#include "lathe/driver/pass_checks.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/lowering.h"
#include "lathe/runtime/worker_team.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/random.h"
#include "src/driver/compiled_program.h"
#include "src/driver/external_functions.h"
#include "src/driver/pack_arguments.h"

namespace lathe {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string OperationsOf(const std::string& workload) {
  return workload.substr(0, workload.rfind(' '));
}

// A function as the code of one implementation, ready to be called.
struct Kernel {
  OwningOp function;
  std::unique_ptr<codegen::KernelLibrary> library;
  lower::Lowered lowered;
  std::vector<Tensor> tensors;  // inputs, then outputs
  size_t num_inputs = 0;
  std::optional<codegen::Workspaces> scratch;

  void Run(runtime::WorkerTeam& team) {
    std::vector<KernelBuffer> buffers;
    for (Tensor& t : tensors) {
      buffers.push_back({const_cast<std::byte*>(t.raw()), t.shape().data()});
    }
    scratch->AddTo(buffers);
    library->Find("kernel")(buffers.data(), team.for_kernels());
  }
};

class FunctionTuner {
 public:
  FunctionTuner(Operation* function, const std::vector<bool>& constant, const TuneOptions& options,
                runtime::WorkerTeam& team)
      : function_(function),
        constant_(constant),
        options_(options),
        team_(team),
        target_(TargetOf(options.compile)),
        machine_(MachineOf(target_)) {
    tuned_.workload = lower::WorkloadOf(function);
    tuned_.operations = OperationsOf(tuned_.workload);
  }

  std::function<void(const std::string& implementation)> progress;

  void Run();
  TunedFunction& tuned() { return tuned_; }
  const TuningRecords& records() const { return records_; }

 private:
  std::optional<Kernel> Make(const std::string& implementation);
  void MakeTensors(Kernel& kernel);
  Shape ShapeOf(AnyTensorType type) const;
  void CheckResults(const Kernel& kernel, const std::string& implementation);
  double Measure(Kernel& kernel);
  std::optional<Kernel> Try(const std::string& implementation, double& seconds);
  void TryKnobs(const std::string& strategy, const std::vector<lower::KnobChoice>& knobs,
                double seconds);
  bool done() const { return tuned_.trials >= options_.max_trials; }

  Operation* function_;
  const std::vector<bool>& constant_;
  const TuneOptions& options_;
  runtime::WorkerTeam& team_;
  const codegen::Target& target_;
  lower::Machine machine_;
  std::vector<Tensor> inputs_;     // as the function takes them before anything is packed
  std::vector<Tensor> reference_;  // results of the first implementation
  TunedFunction tuned_;
  TuningRecords records_;
};

Shape FunctionTuner::ShapeOf(AnyTensorType type) const {
  Shape shape;
  const auto lookup = [&](std::string_view name) -> std::optional<int64_t> {
    for (const auto& [symbol, extent] : options_.symbols) {
      if (symbol == name) return extent;
    }
    return 1;
  };
  for (const Dim& dim : type.dims()) shape.push_back(dim.Evaluate(lookup).value_or(1));
  return shape;
}

// Integers are zero, so that they are indices of whatever they index.
void FunctionTuner::MakeTensors(Kernel& kernel) {
  const Block& body = *kernel.function->region(0).front();
  if (inputs_.empty()) {
    const Block& original = *function_->region(0).front();
    for (size_t i = 0; i < original.num_arguments(); ++i) {
      const auto type = original.argument(i).type().cast<AnyTensorType>();
      Tensor t = RandomTensor(type.element(), ShapeOf(type), 1, i);
      if (IsInteger(type.element())) std::memset(t.mutable_raw(), 0, t.byte_size());
      inputs_.push_back(std::move(t));
    }
  }
  kernel.tensors = inputs_;
  for (const lower::PackedLayout& layout : kernel.lowered.packed) {
    kernel.tensors[layout.argument] = lower::Pack(inputs_[layout.argument], layout);
  }
  kernel.num_inputs = inputs_.size();
  std::vector<Shape> shapes;
  for (const Tensor& t : kernel.tensors) shapes.push_back(t.shape());
  kernel.scratch.emplace(kernel.library->image().Find("kernel").workspaces,
                         codegen::ArgumentTypes(body), shapes);
  for (size_t i = 0; i < body.back()->num_operands(); ++i) {
    const auto type = body.back()->operand(i).type().cast<AnyTensorType>();
    kernel.tensors.emplace_back(type.element(), ShapeOf(type));
  }
}

// Nothing where no strategy takes the function under that name.
std::optional<Kernel> FunctionTuner::Make(const std::string& implementation) {
  IrMapping mapping;
  Kernel kernel;
  kernel.function = OwningOp(Clone(function_, mapping));
  const lower::LowerOptions how{.target = target_.name, .implementation = implementation};
  kernel.lowered = lower::LowerFunction(kernel.function.get(), machine_, constant_, how);
  if (!kernel.lowered.done) return std::nullopt;
  const codegen::KernelSource source{"kernel", kernel.function->region(0).front()};
  kernel.library = codegen::CodeGenerator::Get().Compile({&source, 1}, target_);
  MakeTensors(kernel);
  return kernel;
}

void FunctionTuner::CheckResults(const Kernel& kernel, const std::string& implementation) {
  const std::span<const Tensor> results(
      kernel.tensors.begin() + static_cast<std::ptrdiff_t>(kernel.num_inputs),
      kernel.tensors.end());
  if (reference_.empty()) reference_.assign(results.begin(), results.end());
  for (size_t i = 0; i < results.size(); ++i) {
    const Closeness close = AllClose(results[i], reference_[i], 1e-3, 1e-3);
    if (close) continue;
    throw Error(ErrorCode::kInternal, "tune/wrong-result",
                StrCat(implementation, " computes something else than ", tuned_.first, " for ",
                       tuned_.operations, ": ", close.description));
  }
}

// The fastest of the runs: whatever else the machine does only adds.
double FunctionTuner::Measure(Kernel& kernel) {
  const runtime::WorkerTeam::InRun in_run(team_);
  double best = 1e300;
  const double start = Now();
  for (int runs = 0; runs < 3 || Now() - start < options_.seconds; ++runs) {
    const double before = Now();
    kernel.Run(team_);
    best = std::min(best, Now() - before);
  }
  return best;
}

std::optional<Kernel> FunctionTuner::Try(const std::string& implementation, double& seconds) {
  if (progress) progress(implementation);
  std::optional<Kernel> kernel = Make(implementation);
  if (!kernel) return kernel;
  ++tuned_.trials;
  kernel->Run(team_);
  if (tuned_.first.empty()) tuned_.first = kernel->lowered.implementation;
  CheckResults(*kernel, implementation);
  seconds = Measure(*kernel);
  const std::string& name = kernel->lowered.implementation;
  if (name.find(" | ") == std::string::npos) {
    records_.Add(tuned_.workload, target_.name, name, seconds);
  }
  if (tuned_.best.empty() || seconds < tuned_.best_seconds) {
    tuned_.best = name;
    tuned_.best_seconds = seconds;
  }
  return kernel;
}

void FunctionTuner::TryKnobs(const std::string& strategy,
                             const std::vector<lower::KnobChoice>& knobs, double seconds) {
  lower::Knobs best;
  for (const lower::KnobChoice& knob : knobs) {
    for (const int64_t value : knob.values) {
      if (value == knob.taken || done()) continue;
      lower::Knobs next = best;
      next.Set(knob.name, value);
      double measured = 0;
      if (!Try(strategy + next.ToString(), measured) || measured >= seconds) continue;
      seconds = measured;
      best = next;
    }
  }
}

void FunctionTuner::Run() {
  double seconds = 0;
  const std::optional<Kernel> first = Try("", seconds);
  if (!first) return;
  tuned_.first_seconds = seconds;
  for (const std::string& strategy : lower::StrategiesFor(function_, target_.name)) {
    if (done()) break;
    if (strategy == first->lowered.strategy) {
      TryKnobs(strategy, first->lowered.knobs, tuned_.first_seconds);
    } else if (const auto kernel = Try(strategy, seconds)) {
      TryKnobs(strategy, kernel->lowered.knobs, seconds);
    }
  }
}

// Functions of the program's groups, as they are lowered.
std::vector<Operation*> FunctionsOf(Program& program, const CompileOptions& options) {
  GroupOperations(program, options);
  std::vector<Operation*> functions;
  for (Operation& op : *program.block()) {
    if (op.name() == "builtin.func" && CompilerOf(&op).empty()) functions.push_back(&op);
  }
  return functions;
}

}  // namespace

TuningRecords ReadTuningRecords(const std::string& path) {
  const std::string text = ReadFile(path);
  try {
    return TuningRecords::FromText(text);
  } catch (Error& error) {
    const std::string line = error.where();
    error.At(StrCat(path, ", ", line));
    throw;
  }
}

TuningRecords Tune(const Program& source, const TuneOptions& options, const TuneProgress& progress,
                   const TuneResult& result) {
  CheckHost(options.compile);
  Program program = source.Clone();
  const std::vector<Operation*> functions = FunctionsOf(program, options.compile);
  const FunctionCalls calls(program);
  runtime::WorkerTeam team(options.compile.threads);
  TuningRecords records;
  for (size_t i = 0; i < functions.size(); ++i) {
    const std::vector<bool> constant = calls.ConstantArguments(functions[i]);
    FunctionTuner tuner(functions[i], constant, options, team);
    tuner.progress = [&](const std::string& implementation) {
      if (progress) progress(i, functions.size(), tuner.tuned().operations, implementation);
    };
    tuner.Run();
    tuner.tuned().calls = calls.Of(functions[i]).size();
    records.Add(tuner.records());
    if (result && tuner.tuned().trials > 0) result(tuner.tuned(), tuner.records());
  }
  return records;
}

}  // namespace lathe
