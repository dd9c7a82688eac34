#include "lathe/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/driver/input_sizes.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/clock.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/hash.h"
#include "lathe/support/version.h"
#include "lathe/transform/multi_devices.h"
#include "src/driver/program_ports.h"
#include "src/train/batches.h"
#include "src/train/checkpoint.h"
#include "src/train/rank_group.h"
#include "src/train/step_runner.h"

namespace lathe::train {
namespace {

[[noreturn]] void BadOption(std::string message) {
  throw Error(ErrorCode::kInvalidArgument, "train/option", std::move(message));
}

const TrainerOptions& Checked(const TrainerOptions& options) {
  if (options.epochs < 0) BadOption(StrCat("cannot train ", options.epochs, " epochs"));
  if (options.batch < 1) BadOption(StrCat("a batch has ", options.batch, " samples"));
  const int64_t ranks = RankGroup(options.ranks).size();
  if (options.batch < ranks) {
    BadOption(
        StrCat("a batch of ", options.batch, " samples has none for some of ", ranks, " ranks"));
  }
  return options;
}

constexpr const char* kUnknownShape = "gradient/unknown-shape";

void CheckSamples(const DataSet& data, int64_t batch) {
  if (batch <= data.size()) return;
  throw Error(ErrorCode::kInvalidArgument, "train/batch",
              StrCat("a batch of ", batch, " samples is more than the data has: ", data.size()))
      .At(data.Describe());
}

// Of what a checkpoint does not hold: the program, and the parameters that are not trained.
std::string IdentityOf(const Program& model, const TrainingProgram& made) {
  uint64_t hash = HashString(Print(model, {.locations = false, .file_locations = false}));
  for (const auto& [name, variable] : model.parameters()) {
    const bool is_trained =
        std::ranges::any_of(made.shared, [&](const auto& s) { return s.first == name.value(); });
    hash = HashString(name.value(), hash);
    if (!is_trained) hash = HashBytes(variable.data.raw(), variable.data.byte_size(), hash);
  }
  return StrCat(hash);
}

double ScalarOf(const NamedValues& values, std::string_view name) {
  return ToDoubles(Find(values, name)->tensor())[0];
}

// The sums of an epoch are sums of these, over all ranks.
Sums SumsOf(const NamedValues& outputs, const Batch& batch, const std::string& target) {
  Sums sums;
  sums.samples = batch.samples;
  if (sums.samples == 0) return sums;
  sums.loss = ScalarOf(outputs, kLossOutput) * static_cast<double>(sums.samples);
  if (Find(outputs, kCorrectOutput) == nullptr) return sums;
  sums.correct = ScalarOf(outputs, kCorrectOutput);
  sums.predictions = Find(batch.values, target)->tensor().num_elements();
  return sums;
}

void Add(Sums& to, const Sums& more) {
  to.loss += more.loss;
  to.correct += more.correct;
  to.predictions += more.predictions;
  to.samples += more.samples;
}

Metrics MetricsOf(const Sums& sums) {
  Metrics metrics{0, {}, sums.samples};
  if (sums.samples > 0) metrics.loss = sums.loss / static_cast<double>(sums.samples);
  if (sums.predictions > 0) metrics.accuracy = sums.correct / static_cast<double>(sums.predictions);
  return metrics;
}

}  // namespace

struct Trainer::Impl {
  Impl(const Program& model, TrainerOptions given)
      : options(Checked(given)), ranks(options.ranks), inference(model.Clone()) {
    try {
      MakePrograms();
    } catch (const Error& error) {
      const bool data_may_help = options.recipe.sizes.empty() && error.id() == kUnknownShape;
      if (!data_may_help) throw;
      unmade = error;
    }
  }

  void MakePrograms() {
    made.emplace(MakeTrainingProgram(inference, options.recipe, ranks.size(), options.shard));
    run = {IdentityOf(inference, *made), options.seed, options.batch, options.shuffle,
           options.drop_last};
  }
  // Where gradients need sizes that the model leaves open, those of all samples.
  void MakeProgramsFor(const DataSet& data) {
    if (made) return;
    options.recipe.sizes = SampleSizes(data);
    MakePrograms();
  }
  const TrainingProgram& programs() const {
    if (!made) throw Error(*unmade);
    return *made;
  }

  StepRunner& step() {
    if (!compiled_step) {
      CompileOptions compile = CompileFor();
      compile.recompute = recompute;
      compiled_step.emplace(programs().step, compile);
    }
    return *compiled_step;
  }
  Executable& evaluation() {
    if (!compiled_evaluation) compiled_evaluation.emplace(programs().evaluation, CompileFor());
    return *compiled_evaluation;
  }

  CompileOptions CompileFor() const {
    CompileOptions compile = options.compile;
    compile.interpreter.seed = RandomSeed();
    return compile;
  }

  // Ranks draw different masks.
  uint64_t RandomSeed() const {
    if (ranks.rank() == 0) return options.seed;
    return HashBytes(&options.seed, sizeof(options.seed), static_cast<uint64_t>(ranks.rank()));
  }

  FeedOptions Feeding() const {
    return {programs().target, options.labels, programs().is_classes, programs().num_classes,
            options.image};
  }

  // ---- data ----

  // Of symbols that do not count samples.
  std::vector<Dim::Binding> SampleSizes(const DataSet& data) const;

  // Inputs of a model with a fixed number of samples take no partial batch.
  bool DropsLast() const { return options.drop_last || FixedBatch(StepPorts()).has_value(); }

  std::vector<int64_t> Order(int64_t size) const {
    return SampleOrder(size, options.shuffle, options.seed, position.epoch);
  }

  void Check(const DataSet& data, const DataSet* evaluation_data) const;
  void CheckBatch(const DataSet& data) const;

  // Inputs that data feed.
  std::vector<Port> StepPorts() const {
    std::vector<Port> ports = InputPorts(programs().step);
    std::erase_if(ports, [](const Port& port) { return port.name == kRankWeight; });
    return ports;
  }
  std::vector<Port> EvaluationPorts() const {
    std::vector<Port> ports = InputPorts(programs().evaluation);
    std::erase_if(ports, [&](const Port& port) {
      return std::ranges::any_of(programs().shared,
                                 [&](const auto& s) { return s.second == port.name; });
    });
    return ports;
  }

  // ---- running ----

  void FitIntoMemory(const Feeder& feeder);
  void Synchronize(const DataSet& data, const DataSet* evaluation_data);
  FitResult Fit(const DataSet& data, const DataSet* evaluation_data);
  NamedValues StepValues(const Batch& batch) const;
  bool RunEpoch(const Feeder& feeder);
  Sums RunStep(const Batch& batch, const Feeder& feeder);
  void Report(const Sums& sums, int64_t batches) const;
  Metrics Evaluate(const DataSet& data);

  // ---- a loss that is not finite ----

  struct Snapshot {
    Position position;
    StepState state;
  };
  void TakeSnapshot() {
    if (options.snapshot_every > 0) snapshot = {position, step().State()};
  }
  [[noreturn]] void Diagnose(double loss, const Feeder& feeder);
  NotFinite Replay(const Feeder& feeder);
  NotFinite FirstOf(const NotFinite& here) const;

  // ---- checkpoints ----

  std::string CheckpointPath() const {
    if (options.checkpoint.empty()) return "";
    return StrCat(options.checkpoint, "/checkpoint.safetensors");
  }
  void Save(const std::string& path) { WriteCheckpoint(path, {run, position, WholeState()}); }
  void SaveIfAsked() {
    if (options.checkpoint.empty()) return;
    const StepState whole = WholeState();  // for which all ranks are needed
    if (ranks.rank() != 0) return;
    MakeDirectory(options.checkpoint);
    WriteCheckpoint(CheckpointPath(), {run, position, whole});
  }

  // Null unless the parameter is a shard.
  const Shape* WholeShape(const std::string& parameter) const {
    const auto at =
        std::ranges::find(programs().shards, parameter, &std::pair<std::string, Shape>::first);
    return at == programs().shards.end() ? nullptr : &at->second;
  }
  StepState WholeState();
  void SetWholeState(StepState state);

  TrainerOptions options;
  RankGroup ranks;
  Program inference;
  std::optional<TrainingProgram> made;
  std::optional<Error> unmade;  // why there is none
  RunIdentity run;
  std::optional<StepRunner> compiled_step;
  RecomputeOptions recompute;
  bool fits_memory = false;
  std::optional<Executable> compiled_evaluation;
  Position position;
  Snapshot snapshot;
  double start = 0;         // of Fit
  int64_t fit_samples = 0;  // that Fit has trained
};

// ---- data ----

void Trainer::Impl::CheckBatch(const DataSet& data) const {
  for (const Port& port : StepPorts()) {
    if (port.dims.empty() || !port.dims[0].is_constant()) continue;
    const int64_t each = port.dims[0].value(), all = each * ranks.size();
    if (all == options.batch) break;
    const std::string of_rank =
        ranks.size() == 1 ? "" : StrCat(" on each of ", ranks.size(), " ranks");
    throw Error(ErrorCode::kInvalidArgument, "train/batch",
                StrCat("input '", port.name, "' is ", TypeOf(port), ": the model takes ", each,
                       each == 1 ? " sample" : " samples", " at a time", of_rank,
                       ", not a batch of ", options.batch))
        .Hint(StrCat("train with a batch of ", all,
                     ", or export the model with a symbol for the first axis of its inputs"));
  }
  CheckSamples(data, options.batch);
}

std::vector<Dim::Binding> Trainer::Impl::SampleSizes(const DataSet& data) const {
  constexpr int64_t kSamples = -1;
  const Feeder feeder(data, InputPorts(inference),
                      {.labels = options.labels, .image = options.image});
  std::map<std::string, int64_t> sizes;
  for (const runtime::BoundSymbol& size : feeder.Sizes(kSamples)) {
    const auto [at, added] = sizes.emplace(size.name, size.value);
    if (!added && size.value == kSamples) at->second = kSamples;
  }
  std::erase_if(sizes, [](const auto& size) { return size.second == kSamples; });
  return {sizes.begin(), sizes.end()};
}

// Before anything is compiled.
void Trainer::Impl::Check(const DataSet& data, const DataSet* evaluation_data) const {
  CheckBatch(data);
  const int64_t samples = options.batch / ranks.size();
  const Feeder feeder(data, StepPorts(), Feeding());
  CheckSizes(programs().step, feeder.Sizes(samples));
  if (evaluation_data == nullptr) return;
  const std::vector<Port> ports = EvaluationPorts();
  const Feeder evaluated(*evaluation_data, ports, Feeding());
  if (const auto fixed = FixedBatch(ports)) CheckSamples(*evaluation_data, *fixed * ranks.size());
  CheckSizes(programs().evaluation, evaluated.Sizes(samples));
}

// ---- epochs ----

// The state of a step that was compiled before, of one that resumes, moves on.
void Trainer::Impl::FitIntoMemory(const Feeder& feeder) {
  if (options.memory == 0 || fits_memory) return;
  std::vector<Dim::Binding> sizes;
  for (const runtime::BoundSymbol& size : feeder.Sizes(options.batch / ranks.size())) {
    sizes.emplace_back(size.name, size.value);
  }
  CompileOptions compile = CompileFor();
  const MemoryTrade trade = FitMemory(programs().step, sizes, options.memory, compile);
  recompute = compile.recompute;
  options.compile.engine = compile.engine;
  fits_memory = true;
  if (compiled_step) {
    const StepState state = compiled_step->State();
    compiled_step.reset();
    step().SetState(state);
  }
  if (options.on_memory) options.on_memory(trade);
}

// Ranks begin with the same, or not at all.
void Trainer::Impl::Synchronize(const DataSet& data, const DataSet* evaluation_data) {
  if (ranks.size() == 1) return;
  const TrainingRecipe& recipe = options.recipe;
  std::string frozen;
  for (const std::string& pattern : recipe.freeze) frozen += pattern + " ";
  ranks.CheckSame({
      {"version of Lathe", std::string(Version())},
      {"model", StrCat(run.model, ", ", inference.feeds().size(), " inputs")},
      {"recipe",
       StrCat("loss ", recipe.loss, " of '", recipe.output, "', optimizer ", recipe.optimizer,
              ", frozen ", frozen, ", shard ", options.shard, ", scale ", recipe.loss_scale)},
      {"seed, batch or order", StrCat("seed ", run.seed, ", batch ", run.batch, ", shuffle ",
                                      run.shuffle, ", drop_last ", run.drop_last)},
      {"number of epochs", StrCat(options.epochs)},
      {"number of samples", StrCat(data.size(), " and, to evaluate, ",
                                   evaluation_data == nullptr ? 0 : evaluation_data->size())},
      {"place to go on from", StrCat("step ", position.step, ", epoch ", position.epoch)},
      {"interval of snapshots", StrCat(options.snapshot_every)},
  });
  StepState state = step().State();
  for (auto& [name, tensor] : state) {
    if (WholeShape(name) == nullptr) ranks.Share(tensor);
  }
  step().SetState(state);
}

FitResult Trainer::Impl::Fit(const DataSet& data, const DataSet* evaluation_data) {
  MakeProgramsFor(data);
  Check(data, evaluation_data);
  const Feeder feeder(data, StepPorts(), Feeding());
  FitIntoMemory(feeder);
  Synchronize(data, evaluation_data);
  (void)step();  // what is compiled takes no time of the epochs
  if (evaluation_data != nullptr) (void)evaluation();
  start = SecondsNow();
  fit_samples = 0;
  while (position.epoch < options.epochs) {
    const CommunicationTimes before = CommunicationSoFar();
    if (!RunEpoch(feeder)) {
      SaveIfAsked();
      return FitResult::kCancelled;
    }
    EpochReport report{.epoch = position.epoch + 1,
                       .epochs = options.epochs,
                       .step = position.step,
                       .training = MetricsOf(position.sums),
                       .evaluation = std::nullopt,
                       .seconds = 0};
    if (ranks.size() > 1) report.communication = CommunicationSoFar() - before;
    report.memory = MemoryOf(inference, programs().step, step().executable());
    position = {.epoch = position.epoch + 1, .batch = 0, .step = position.step, .sums = {}};
    SaveIfAsked();
    if (evaluation_data != nullptr) report.evaluation = Evaluate(*evaluation_data);
    report.seconds = SecondsNow() - start;
    if (options.on_epoch) options.on_epoch(report);
  }
  return FitResult::kDone;
}

// False if it was cancelled.
bool Trainer::Impl::RunEpoch(const Feeder& feeder) {
  const int64_t size = feeder.data().size();
  const bool drop_last = DropsLast();
  const int64_t batches = NumBatches(size, options.batch, drop_last);
  Loader loader(feeder, Order(size), options.batch, drop_last, position.batch, ranks.share());
  TakeSnapshot();
  for (;;) {
    if (ranks.Any(options.cancel != nullptr && options.cancel->cancelled())) return false;
    const std::optional<Batch> batch = loader.Next();
    if (!batch) return true;
    const Sums sums = RunStep(*batch, feeder);
    Report(sums, batches);
    if (options.snapshot_every > 0 && position.step % options.snapshot_every == 0) TakeSnapshot();
  }
}

NamedValues Trainer::Impl::StepValues(const Batch& batch) const {
  NamedValues values = batch.values;
  if (ranks.size() > 1) values.emplace_back(kRankWeight, Tensor::Scalar<double>(batch.weight));
  return values;
}

Sums Trainer::Impl::RunStep(const Batch& batch, const Feeder& feeder) {
  const Sums sums = ranks.Sum(SumsOf(step().Run(StepValues(batch)), batch, programs().target));
  if (!std::isfinite(sums.loss)) Diagnose(sums.loss, feeder);
  Add(position.sums, sums);
  ++position.batch;
  ++position.step;
  fit_samples += sums.samples;
  return sums;
}

void Trainer::Impl::Report(const Sums& sums, int64_t batches) const {
  if (!options.on_step) return;
  const double seconds = SecondsNow() - start;
  options.on_step({.epoch = position.epoch + 1,
                   .epochs = options.epochs,
                   .batch = position.batch,
                   .batches = batches,
                   .step = position.step,
                   .metrics = MetricsOf(sums),
                   .seconds = seconds,
                   .samples_per_second = static_cast<double>(fit_samples) / seconds});
}

Metrics Trainer::Impl::Evaluate(const DataSet& data) {
  MakeProgramsFor(data);
  const std::vector<Port> ports = EvaluationPorts();
  const Feeder feeder(data, ports, Feeding());
  const std::optional<int64_t> fixed = FixedBatch(ports);
  std::vector<std::pair<std::string, Tensor>> shared;
  for (const auto& [parameter, input] : programs().shared) {
    shared.emplace_back(input, step().Parameter(parameter));
  }
  const int64_t batch = fixed ? *fixed * ranks.size() : options.batch;
  Loader loader(feeder, SampleOrder(data.size(), false, 0, 0), batch, fixed.has_value(), 0,
                ranks.share());
  Sums sums;
  while (std::optional<Batch> next = loader.Next()) {
    NamedValues inputs = next->values;
    inputs.insert(inputs.end(), shared.begin(), shared.end());
    Add(sums, SumsOf(evaluation().Run(inputs), *next, programs().target));
  }
  return MetricsOf(ranks.Sum(sums));
}

// ---- a loss that is not finite ----

void Trainer::Impl::Diagnose(double loss, const Feeder& feeder) {
  const int64_t failed = position.step + 1;
  Error error(ErrorCode::kInvalidArgument, "train/not-finite",
              StrCat("the loss is ",
                     std::isnan(loss) ? "nan"
                     : loss > 0       ? "inf"
                                      : "-inf",
                     " in step ", failed, ", epoch ", position.epoch + 1));
  if (options.snapshot_every > 0) {
    const NotFinite found = Replay(feeder);
    if (!found.where.empty()) error.At(found.where);
    if (!found.what.empty()) error.Note(StrCat("step ", position.step + 1, ": ", found.what));
  }
  throw std::move(error.Hint("a lower rate, or gradients that are clipped, may help"));
}

// What the first rank has found that made it itself: others get it by the reduction of gradients.
NotFinite Trainer::Impl::FirstOf(const NotFinite& here) const {
  if (ranks.size() == 1) return here;
  const std::vector<std::string> what = ranks.Gather(here.what), where = ranks.Gather(here.where);
  size_t first = 0;
  while (first < what.size() && (what[first].empty() || what[first].starts_with("dist."))) ++first;
  if (first == what.size()) return here;
  return {StrCat("on rank ", first, ", ", what[first]), where[first]};
}

// From the last snapshot to the step after which something is not finite, which the interpreter
// then runs.
NotFinite Trainer::Impl::Replay(const Feeder& feeder) {
  const int64_t size = feeder.data().size();
  position = snapshot.position;
  step().SetState(snapshot.state);
  Loader loader(feeder, Order(size), options.batch, DropsLast(), position.batch, ranks.share());
  while (const std::optional<Batch> batch = loader.Next()) {
    const StepState before = step().State();
    const NamedValues values = StepValues(*batch), outputs = step().Run(values);
    const StepState after = step().State();
    const bool is_finite =
        std::isfinite(ScalarOf(outputs, kLossOutput)) &&
        std::ranges::all_of(after, [](const auto& p) { return IsFinite(p.second); });
    if (ranks.Any(!is_finite)) {
      return FirstOf(FindNotFinite(programs().step, before, values, RandomSeed()));
    }
    ++position.batch;
    ++position.step;
  }
  return {};
}

// ---- checkpoints ----

StepState Trainer::Impl::WholeState() {
  StepState state = step().State();
  for (auto& [name, tensor] : state) {
    if (const Shape* whole = WholeShape(name)) tensor = ranks.Whole(tensor, *whole);
  }
  return state;
}

void Trainer::Impl::SetWholeState(StepState state) {
  for (auto& [name, tensor] : state) {
    const Shape* whole = WholeShape(name);
    if (whole != nullptr && tensor.shape() == *whole) tensor = ranks.ShardOf(tensor);
  }
  step().SetState(state);
}

// ---- the interface ----

Trainer::Trainer(const Program& model, TrainerOptions options)
    : impl_(RankGroup(options.ranks).Run([&] {
        return std::make_unique<Impl>(model, std::move(options));
      })) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

void Trainer::Check(const DataSet& data, const DataSet* evaluation) const {
  impl_->ranks.Run([&] {
    impl_->MakeProgramsFor(data);
    impl_->Check(data, evaluation);
  });
}

FitResult Trainer::Fit(const DataSet& data, const DataSet* evaluation) {
  return impl_->ranks.Run([&] { return impl_->Fit(data, evaluation); });
}

Metrics Trainer::Evaluate(const DataSet& data) {
  return impl_->ranks.Run([&] { return impl_->Evaluate(data); });
}

std::string Trainer::CheckpointPath() const { return impl_->CheckpointPath(); }

void Trainer::SaveCheckpoint(const std::string& path) const {
  if (impl_->programs().shards.empty()) return impl_->Save(path);
  impl_->ranks.Run([&] { impl_->Save(path); });
}

void Trainer::Resume(const std::string& path) {
  impl_->ranks.Run([&] {
    const Checkpoint checkpoint = ReadCheckpoint(path);
    CheckSameRun(checkpoint.run, impl_->run, path);
    impl_->SetWholeState(checkpoint.parameters);
    impl_->position = checkpoint.position;
  });
}

int64_t Trainer::step() const { return impl_->position.step; }
int64_t Trainer::epoch() const { return impl_->position.epoch; }

Program Trainer::Trained() const {
  Program trained = impl_->inference.Clone();
  for (const auto& [parameter, input] : impl_->programs().shared) {
    Variable* variable = trained.parameters().Find(parameter);
    if (variable == nullptr) continue;
    const Tensor data = impl_->step().Parameter(parameter);
    const ElementType element = variable->data.element_type();
    variable->data = data.element_type() == element ? data : Cast(data, element);
  }
  return trained;
}

const TrainingProgram& Trainer::programs() const { return impl_->programs(); }
const Executable& Trainer::executable() const { return impl_->step().executable(); }

}  // namespace lathe::train
