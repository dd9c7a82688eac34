#include "lathe/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/clock.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/hash.h"
#include "lathe/support/version.h"
#include "lathe/transform/multi_devices.h"
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
      : options(Checked(given)),
        ranks(options.ranks),
        inference(model.Clone()),
        programs(MakeTrainingProgram(model, options.recipe, ranks.size())),
        run{IdentityOf(model, programs), options.seed, options.batch, options.shuffle,
            options.drop_last},
        step(programs.step, CompileFor()),
        evaluation(programs.evaluation, CompileFor()) {}

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
    return {programs.target, options.labels, programs.is_classes, programs.num_classes,
            options.image};
  }

  // ---- data ----

  // Inputs of a model with a fixed number of samples take no partial batch.
  bool DropsLast() const { return options.drop_last || FixedBatch(StepInputs()).has_value(); }

  std::vector<int64_t> Order(int64_t size) const {
    return SampleOrder(size, options.shuffle, options.seed, position.epoch);
  }

  void CheckBatch(const DataSet& data) const {
    const auto fixed = FixedBatch(StepInputs());
    if (fixed && *fixed * ranks.size() != options.batch) {
      const std::string each =
          ranks.size() == 1 ? "" : StrCat(" on each of ", ranks.size(), " ranks");
      throw Error(ErrorCode::kInvalidArgument, "train/batch",
                  StrCat("the model takes ", *fixed, " samples at a time", each, ", not ",
                         options.batch, each.empty() ? "" : " together"))
          .Hint(StrCat("train with a batch of ", *fixed * ranks.size(),
                       ", or give the first axis of its inputs a symbol"));
    }
    if (options.batch <= data.size()) return;
    throw Error(
        ErrorCode::kInvalidArgument, "train/batch",
        StrCat("a batch of ", options.batch, " samples is more than the data has: ", data.size()))
        .At(data.Describe());
  }

  // Of data.
  std::vector<Port> StepInputs() const {
    std::vector<Port> inputs = step.executable().inputs();
    std::erase_if(inputs, [](const Port& port) { return port.name == kRankWeight; });
    return inputs;
  }

  std::vector<Port> EvaluationInputs() const {
    std::vector<Port> inputs;
    for (const Port& port : evaluation.inputs()) {
      const bool is_shared = std::ranges::any_of(
          programs.shared, [&](const auto& s) { return s.second == port.name; });
      if (!is_shared) inputs.push_back(port);
    }
    return inputs;
  }

  // ---- running ----

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
    if (options.snapshot_every > 0) snapshot = {position, step.State()};
  }
  [[noreturn]] void Diagnose(double loss, const Feeder& feeder);
  NotFinite Replay(const Feeder& feeder);
  NotFinite FirstOf(const NotFinite& here) const;

  // ---- checkpoints ----

  std::string CheckpointPath() const {
    if (options.checkpoint.empty()) return "";
    return StrCat(options.checkpoint, "/checkpoint.safetensors");
  }
  void Save(const std::string& path) const { WriteCheckpoint(path, {run, position, step.State()}); }
  void SaveIfAsked() const {
    if (options.checkpoint.empty() || ranks.rank() != 0) return;
    MakeDirectory(options.checkpoint);
    Save(CheckpointPath());
  }

  TrainerOptions options;
  RankGroup ranks;
  Program inference;
  TrainingProgram programs;
  RunIdentity run;
  StepRunner step;
  Executable evaluation;
  Position position;
  Snapshot snapshot;
  double start = 0;         // of Fit
  int64_t fit_samples = 0;  // that Fit has trained
};

// ---- epochs ----

// Ranks begin with the same, or not at all.
void Trainer::Impl::Synchronize(const DataSet& data, const DataSet* evaluation_data) {
  if (ranks.size() == 1) return;
  const TrainingRecipe& recipe = options.recipe;
  std::string frozen;
  for (const std::string& pattern : recipe.freeze) frozen += pattern + " ";
  ranks.CheckSame({
      {"version of Lathe", std::string(Version())},
      {"model", StrCat(run.model, ", ", inference.feeds().size(), " inputs")},
      {"recipe", StrCat("loss ", recipe.loss, " of '", recipe.output, "', optimizer ",
                        recipe.optimizer, ", frozen ", frozen)},
      {"seed, batch or order", StrCat("seed ", run.seed, ", batch ", run.batch, ", shuffle ",
                                      run.shuffle, ", drop_last ", run.drop_last)},
      {"number of epochs", StrCat(options.epochs)},
      {"number of samples", StrCat(data.size(), " and, to evaluate, ",
                                   evaluation_data == nullptr ? 0 : evaluation_data->size())},
      {"place to go on from", StrCat("step ", position.step, ", epoch ", position.epoch)},
      {"interval of snapshots", StrCat(options.snapshot_every)},
  });
  StepState state = step.State();
  ranks.Share(state);
  step.SetState(state);
}

FitResult Trainer::Impl::Fit(const DataSet& data, const DataSet* evaluation_data) {
  CheckBatch(data);
  Synchronize(data, evaluation_data);
  const Feeder feeder(data, StepInputs(), Feeding());
  if (evaluation_data != nullptr) {  // errors in it come before the work
    (void)Feeder(*evaluation_data, EvaluationInputs(), Feeding());
  }
  start = SecondsNow();
  fit_samples = 0;
  while (position.epoch < options.epochs) {
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
  const Sums sums = ranks.Sum(SumsOf(step.Run(StepValues(batch)), batch, programs.target));
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
  const std::vector<Port> ports = EvaluationInputs();
  const Feeder feeder(data, ports, Feeding());
  const std::optional<int64_t> fixed = FixedBatch(ports);
  std::vector<std::pair<std::string, Tensor>> shared;
  for (const auto& [parameter, input] : programs.shared) {
    shared.emplace_back(input, step.Parameter(parameter));
  }
  const int64_t batch = fixed ? *fixed * ranks.size() : options.batch;
  Loader loader(feeder, SampleOrder(data.size(), false, 0, 0), batch, fixed.has_value(), 0,
                ranks.share());
  Sums sums;
  while (std::optional<Batch> next = loader.Next()) {
    NamedValues inputs = next->values;
    inputs.insert(inputs.end(), shared.begin(), shared.end());
    Add(sums, SumsOf(evaluation.Run(inputs), *next, programs.target));
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
  step.SetState(snapshot.state);
  Loader loader(feeder, Order(size), options.batch, DropsLast(), position.batch, ranks.share());
  while (const std::optional<Batch> batch = loader.Next()) {
    const StepState before = step.State();
    const NamedValues values = StepValues(*batch), outputs = step.Run(values);
    const StepState after = step.State();
    const bool is_finite =
        std::isfinite(ScalarOf(outputs, kLossOutput)) &&
        std::ranges::all_of(after, [](const auto& p) { return IsFinite(p.second); });
    if (ranks.Any(!is_finite)) {
      return FirstOf(FindNotFinite(programs.step, before, values, RandomSeed()));
    }
    ++position.batch;
    ++position.step;
  }
  return {};
}

// ---- the interface ----

Trainer::Trainer(const Program& model, TrainerOptions options)
    : impl_(RankGroup(options.ranks).Run([&] {
        return std::make_unique<Impl>(model, std::move(options));
      })) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

FitResult Trainer::Fit(const DataSet& data, const DataSet* evaluation) {
  return impl_->ranks.Run([&] { return impl_->Fit(data, evaluation); });
}

Metrics Trainer::Evaluate(const DataSet& data) {
  return impl_->ranks.Run([&] { return impl_->Evaluate(data); });
}

std::string Trainer::CheckpointPath() const { return impl_->CheckpointPath(); }

void Trainer::SaveCheckpoint(const std::string& path) const { impl_->Save(path); }

void Trainer::Resume(const std::string& path) {
  impl_->ranks.Run([&] {
    const Checkpoint checkpoint = ReadCheckpoint(path);
    CheckSameRun(checkpoint.run, impl_->run, path);
    impl_->step.SetState(checkpoint.parameters);
    impl_->position = checkpoint.position;
  });
}

int64_t Trainer::step() const { return impl_->position.step; }
int64_t Trainer::epoch() const { return impl_->position.epoch; }

Program Trainer::Trained() const {
  Program trained = impl_->inference.Clone();
  for (const auto& [parameter, input] : impl_->programs.shared) {
    Variable* variable = trained.parameters().Find(parameter);
    if (variable != nullptr) variable->data = impl_->step.Parameter(parameter);
  }
  return trained;
}

const TrainingProgram& Trainer::programs() const { return impl_->programs; }
const Executable& Trainer::executable() const { return impl_->step.executable(); }

}  // namespace lathe::train
