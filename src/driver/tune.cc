#include "lathe/driver/tune.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "lathe/codegen/code_generator.h"
#include "lathe/dialect/builtin/op_names.h"
#include "lathe/driver/input_sizes.h"
#include "lathe/driver/pass_checks.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/lowering.h"
#include "lathe/runtime/worker_team.h"
#include "lathe/support/clock.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/random.h"
#include "src/driver/compiled_program.h"
#include "src/driver/knob_search.h"
#include "src/driver/pack_arguments.h"

namespace lathe {
namespace {

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

constexpr size_t kMostAsked = 4;  // implementations that are looked at, per trial

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
  // What became of one implementation.
  struct Trial {
    std::string strategy;
    std::vector<lower::KnobChoice> knobs;
    double seconds;
  };
  std::optional<Kernel> Lower(const std::string& implementation);
  void Compile(Kernel& kernel);
  void MakeReference();
  void MakeTensors(Kernel& kernel);
  Shape ShapeOf(AnyTensorType type) const;
  void CheckResults(const Kernel& kernel, const std::string& implementation);
  double Measure(Kernel& kernel);
  std::optional<double> Known(const std::string& name) const;
  std::optional<double> Measured(Kernel& kernel, const std::string& implementation);
  std::optional<Trial> Try(const std::string& implementation);
  void Search(const Trial& trial, size_t trials);
  bool done() const {
    return tuned_.trials >= options_.max_trials || asked_ >= kMostAsked * options_.max_trials;
  }

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
  size_t asked_ = 0;  // also for what had been measured under the same name
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
std::optional<Kernel> FunctionTuner::Lower(const std::string& implementation) {
  IrMapping mapping;
  Kernel kernel;
  kernel.function = OwningOp(Clone(function_, mapping));
  const lower::LowerOptions how{.target = target_.name,
                                .implementation = implementation,
                                .precision = options_.compile.precision};
  kernel.lowered = lower::LowerFunction(kernel.function.get(), machine_, constant_, how);
  if (!kernel.lowered.done) return std::nullopt;
  return kernel;
}

void FunctionTuner::Compile(Kernel& kernel) {
  const codegen::KernelSource source{"kernel", kernel.function->region(0).front(),
                                     kernel.lowered.in_place};
  kernel.library = codegen::CodeGenerator::Get().Compile({&source, 1}, target_);
  MakeTensors(kernel);
}

// What the others must compute, where that need not be measured again.
void FunctionTuner::MakeReference() {
  std::optional<Kernel> kernel = Lower("");
  Compile(*kernel);
  kernel->Run(team_);
  CheckResults(*kernel, "");
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
  const double start = SecondsNow();
  for (int runs = 0; runs < 3 || SecondsNow() - start < options_.seconds; ++runs) {
    const bool is_slow = !tuned_.best.empty() && best > 2 * tuned_.best_seconds;
    if (runs >= 3 && is_slow) break;
    const double before = SecondsNow();
    kernel.Run(team_);
    best = std::min(best, SecondsNow() - before);
  }
  return best;
}

std::optional<double> FunctionTuner::Known(const std::string& name) const {
  const auto now = records_.Find(tuned_.workload, target_.name, name);
  if (now || options_.known == nullptr) return now;
  return options_.known->Find(tuned_.workload, target_.name, name);
}

// Nothing where there is no code for it, such as for scratch memory that is too large.
std::optional<double> FunctionTuner::Measured(Kernel& kernel, const std::string& implementation) {
  try {
    Compile(kernel);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    return std::nullopt;
  }
  kernel.Run(team_);
  if (reference_.empty() && tuned_.trials > 1) MakeReference();
  CheckResults(kernel, implementation);
  return Measure(kernel);
}

std::optional<FunctionTuner::Trial> FunctionTuner::Try(const std::string& implementation) {
  if (progress) progress(implementation);
  std::optional<Kernel> kernel = Lower(implementation);
  if (!kernel) return std::nullopt;
  ++asked_;
  const std::string& name = kernel->lowered.implementation;
  const bool is_new = !records_.Find(tuned_.workload, target_.name, name);
  if (is_new) ++tuned_.trials;
  if (tuned_.first.empty()) tuned_.first = name;
  const bool was_known = Known(name).has_value();
  const auto seconds = was_known ? Known(name) : Measured(*kernel, implementation);
  if (!seconds) return std::nullopt;
  if (is_new && name.find(" | ") == std::string::npos) {
    TuningRecords record;
    record.Add(tuned_.workload, target_.name, name, *seconds);
    records_.Add(record);
    if (!was_known && options_.keep) options_.keep(record);
  }
  if (tuned_.best.empty() || *seconds < tuned_.best_seconds) {
    tuned_.best = name;
    tuned_.best_seconds = *seconds;
  }
  return Trial{kernel->lowered.strategy, kernel->lowered.knobs, *seconds};
}

void FunctionTuner::Search(const Trial& trial, size_t trials) {
  KnobSearch search(trial.knobs, trial.seconds);
  const size_t end = tuned_.trials + trials;
  while (!done() && tuned_.trials < end) {
    const auto knobs = search.Next();
    if (!knobs) return;
    const auto next = Try(trial.strategy + knobs->ToString());
    search.Tell(next ? std::optional(next->seconds) : std::nullopt);
  }
}

// Every strategy as it is; then the knobs of the fastest with half of the trials that are left, of
// the next one with half of the rest, and so on.
void FunctionTuner::Run() {
  const std::optional<Trial> first = Try("");
  if (!first) return;
  tuned_.first_seconds = first->seconds;
  std::vector<Trial> found;
  if (first->strategy.find(" | ") == std::string::npos) found.push_back(*first);
  for (const std::string& strategy : lower::StrategiesFor(function_, target_.name)) {
    if (done()) break;
    if (strategy == first->strategy) continue;
    if (const auto trial = Try(strategy)) found.push_back(*trial);
  }
  std::ranges::stable_sort(found, {}, [](const Trial& t) { return t.seconds; });
  for (size_t i = 0; i < found.size() && !done(); ++i) {
    const size_t left = options_.max_trials - tuned_.trials;
    Search(found[i], i + 1 < found.size() ? (left + 1) / 2 : left);
  }
}

// Functions of the program's groups, as they are lowered.
std::vector<Operation*> FunctionsOf(Program& program, const CompileOptions& options) {
  GroupOperations(program, options);
  std::vector<Operation*> functions;
  for (Operation& op : *program.block()) {
    if (op.name() == builtin::kFunc && CompilerOf(&op).empty()) functions.push_back(&op);
  }
  return functions;
}

}  // namespace

namespace {

TuningRecords RecordsIn(const std::string& text, const std::string& path) {
  try {
    return TuningRecords::FromText(text);
  } catch (Error& error) {
    const std::string line = error.where();
    error.At(StrCat(path, ", ", line));
    throw;
  }
}

}  // namespace

TuningRecords ReadTuningRecords(const std::string& path) { return RecordsIn(ReadFile(path), path); }

TuningRecords ResumeTuningRecords(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  const std::string text = ReadFile(path);
  const size_t end = text.rfind('\n');
  const size_t whole = end == std::string::npos ? 0 : end + 1;
  // Only what an interrupt has left of a record goes; any other file stays as it is.
  constexpr std::string_view kStart = "{\"implementation\":";
  const std::string_view rest = std::string_view(text).substr(whole);
  const bool is_begun = rest.starts_with(kStart) || kStart.starts_with(rest);
  TuningRecords records = RecordsIn(is_begun ? text.substr(0, whole) : text, path);
  if (is_begun && !rest.empty()) std::filesystem::resize_file(path, whole);
  return records;
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

void TuneToFile(const Program& program, TuneOptions options, const std::string& path,
                const TuneProgress& progress, const TuneResult& result) {
  CheckHost(options.compile);
  for (const Operation* feed : program.feeds()) {
    AddUsualSizes(feed->result(0).type(), options.symbols);
  }
  const TuningRecords known = ResumeTuningRecords(path);
  AppendToFile(path, {});
  options.known = &known;
  options.keep = [&](const TuningRecords& record) { AppendToFile(path, record.ToText()); };
  Tune(program, options, progress, result);
}

}  // namespace lathe
