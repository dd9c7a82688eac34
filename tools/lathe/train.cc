#include "lathe/train.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "lathe/driver/emit.h"
#include "lathe/driver/model_file.h"
#include "lathe/support/clock.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/processors.h"
#include "tools/lathe/command.h"
#include "tools/lathe/inputs.h"
#include "tools/lathe/limits.h"
#include "tools/lathe/recipe.h"
#include "tools/lathe/train_ranks.h"

namespace lathe::command {
namespace {

using train::EpochReport;
using train::StepReport;

struct TrainArguments {
  ModelOptions model;
  RecipeOptions recipe;
  MemoryOption memory;
  train::TrainerOptions trainer;
  OutputOptions outputs;
  std::vector<std::string> data, evaluation;
  std::string normalize = "unit";
  std::string output, metrics, plot;
  bool no_shuffle = false;
  bool resume = false;
  bool json = false;
  double rank_timeout = kRankTimeout;

  /// Of several ranks the first one prints and writes.
  bool IsFirst() const { return trainer.ranks == nullptr || trainer.ranks->rank() == 0; }
};

// ---- files ----

std::vector<OutputFile> TrainedFiles(const std::string& path) {
  if (FileExtension(path) == ".lx") return ExecutableFiles(path);
  return ModelFiles(path);
}

void CheckFiles(const TrainArguments& o) {
  std::vector<OutputFile> outputs;
  if (!o.output.empty()) outputs = TrainedFiles(o.output);
  if (!o.metrics.empty()) outputs.push_back({o.metrics, FileKind::kMetrics});
  if (!o.plot.empty()) outputs.push_back({o.plot, FileKind::kCurves});
  std::vector<std::string> inputs = o.model.Files();
  for (const auto* sources : {&o.data, &o.evaluation}) {
    for (const std::string& s : *sources) inputs.push_back(s.substr(s.find('=') + 1));
  }
  o.outputs.Check(outputs, inputs);
}

// A format that nobody can write is told before the training, not after it.
void CheckFormat(const std::string& path) {
  const std::string extension = FileExtension(path);
  if (path.empty() || extension == ".onnx" || extension == ".lathe" || extension == ".lx") return;
  throw UsageError(StrCat("-o ", path, ": the trained model is written as .onnx, .lathe or .lx"));
}

void SaveTrained(const TrainArguments& o, const Program& trained) {
  if (o.output.empty()) return;
  if (FileExtension(o.output) == ".lx") {
    (void)CompileToFile(trained, o.trainer.compile, o.output);
  } else {
    SaveModel(trained, o.output);
  }
  Words(StrCat("wrote ", o.output, "\n"));
}

// ---- what is shown ----

std::string MetricsText(const train::Metrics& metrics, const char* prefix = "") {
  std::string text = fmt::format("{}loss {:.4f}", prefix, metrics.loss);
  if (metrics.accuracy) text += fmt::format(", {}accuracy {:.4f}", prefix, *metrics.accuracy);
  return text;
}

std::string MemoryText(const train::TrainingMemory& memory) {
  return StrCat("each rank holds ", HumanBytes(memory.parameters), " of parameters, ",
                HumanBytes(memory.states), " of states of the optimizer, ", HumanBytes(memory.step),
                " for a step\n");
}

std::string CommunicationText(const EpochReport& report) {
  if (!report.communication || report.communication->seconds <= 0) return "";
  return fmt::format("; reductions {:.2f} s, {:.0f}% hidden", report.communication->seconds,
                     100 * report.communication->hidden() / report.communication->seconds);
}

std::string DurationText(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

// What is shown and kept of a training while it runs.
class Display {
 public:
  explicit Display(const TrainArguments& o) : o_(o) {}
  ~Display() { Flush(); }

  /// Of a training that has made `step` steps before.
  void Begin(int64_t step) {
    start_step_ = step;
    if (o_.metrics.empty() && o_.plot.empty()) return;
    const bool goes_on = o_.resume && !o_.metrics.empty() && FileExists(o_.metrics);
    if (goes_on) history_ = train::History::Read(o_.metrics, step);
    written_ = history_.ToJsonLines().size();
    if (!o_.metrics.empty()) WriteFile(o_.metrics, history_.ToJsonLines());
  }

  void OnStep(const StepReport& report) {
    if (KeepsHistory()) history_.Add(report);
    if (SecondsNow() - flushed_ > 1) Flush();
    if (!bar_) bar_.emplace("training");
    const int64_t total = report.batches * report.epochs, made = report.step - start_step_;
    const double left = report.seconds / static_cast<double>(std::max<int64_t>(made, 1)) *
                        static_cast<double>(total - report.step);
    bar_->Update(static_cast<size_t>(report.step), static_cast<size_t>(total),
                 fmt::format("{}, {:.0f} samples/s, {} left", MetricsText(report.metrics),
                             report.samples_per_second, DurationText(left)));
  }

  void OnEpoch(const EpochReport& report) {
    bar_.reset();
    if (KeepsHistory()) history_.Add(report);
    Flush();
    if (o_.json) return Out(ToJsonLine(report));
    if (report.communication && !tells_memory_) Out(MemoryText(report.memory));
    tells_memory_ = true;
    const std::string evaluation =
        report.evaluation ? StrCat("; ", MetricsText(*report.evaluation, "eval ")) : "";
    Out(StrCat("epoch ", report.epoch, " of ", report.epochs, ": ", MetricsText(report.training),
               evaluation, CommunicationText(report), "\n"));
    fflush(stdout);
  }

  /// Also after an error: what is known of it is of use then.
  void Flush() {
    flushed_ = SecondsNow();
    bar_.reset();
    if (!o_.metrics.empty() && history_.ToJsonLines().size() > written_) {
      AppendToFile(o_.metrics, std::string_view(history_.ToJsonLines()).substr(written_));
      written_ = history_.ToJsonLines().size();
    }
    if (!o_.plot.empty()) WriteFile(o_.plot, history_.ToSvg(o_.model.path));
  }

 private:
  bool KeepsHistory() const { return !o_.metrics.empty() || !o_.plot.empty(); }

  const TrainArguments& o_;
  train::History history_;
  std::optional<Progress> bar_;
  int64_t start_step_ = 0;
  bool tells_memory_ = false;
  size_t written_ = 0;
  double flushed_ = 0;
};

// ---- the command ----

void ResumeOrBegin(const TrainArguments& o, train::Trainer& trainer) {
  const std::string path = trainer.CheckpointPath();
  if (o.resume) {
    if (!FileExists(path)) {
      throw Error(ErrorCode::kNotFound, "train/checkpoint", "there is no checkpoint to go on from")
          .At(path)
          .Hint("without --resume the training begins anew");
    }
    trainer.Resume(path);
    Words(StrCat("going on after step ", trainer.step(), ", epoch ", trainer.epoch(), "\n"));
  } else if (o.IsFirst() && !path.empty() && !o.outputs.force && FileExists(path)) {
    throw Error(ErrorCode::kInvalidArgument, "output/checkpoint",
                "there is a checkpoint, which this training would replace")
        .At(path)
        .Hint("--resume goes on from it, --force begins anew");
  }
}

void TellInterrupted(const train::Trainer& trainer) {
  const std::string path = trainer.CheckpointPath();
  Words(StrCat("interrupted after step ", trainer.step(), "; ",
               path.empty() ? "nothing was saved, for want of --checkpoint DIR\n"
                            : StrCat("wrote ", path,
                                     "\nthe same command with --resume goes on from there\n")));
}

// Ranks of one machine share its processors.
int ThreadsOfRank(const TrainArguments& o) {
  const int threads = o.trainer.compile.threads;
  if (threads > 0 || o.trainer.ranks == nullptr) return threads;
  return std::max(1, UsableCores() / o.trainer.ranks->size());
}

int TrainModel(const TrainArguments& given, Communicator* ranks) {
  TrainArguments o = given;
  o.trainer.ranks = ranks;
  o.trainer.compile.threads = ThreadsOfRank(o);
  if (o.resume && o.trainer.checkpoint.empty()) {
    throw UsageError("--resume needs the folder of the checkpoint: --checkpoint DIR");
  }
  CheckFormat(o.output);
  if (o.IsFirst()) {
    CheckFiles(o);
  } else {
    o.output = o.metrics = o.plot = "";
  }
  o.trainer.recipe = o.recipe.recipe;
  o.trainer.memory = o.memory.Bytes();
  o.trainer.shuffle = !o.no_shuffle;
  o.trainer.image = ImageOptions::Named(o.normalize);
  o.trainer.cancel = o.trainer.compile.cancel = &InterruptToken();
  IrContext context;
  const Program program = o.recipe.Load(o.model, context, o.trainer.seed);
  const train::DataOptions data_options = DataOptionsFor(InputsOf(program), o.trainer.image);
  const auto data = train::OpenData(o.data, data_options);
  const auto evaluation =
      o.evaluation.empty() ? nullptr : train::OpenData(o.evaluation, data_options);
  Display display(o);
  if (o.IsFirst()) {
    o.trainer.on_memory = [](const train::MemoryTrade& trade) { Words(TextOf(trade) + "\n"); };
    o.trainer.on_step = [&](const StepReport& report) { display.OnStep(report); };
    o.trainer.on_epoch = [&](const EpochReport& report) { display.OnEpoch(report); };
  }
  train::Trainer trainer(program, o.trainer);
  trainer.Check(*data, evaluation.get());
  ResumeOrBegin(o, trainer);
  display.Begin(trainer.step());
  if (trainer.Fit(*data, evaluation.get()) == train::FitResult::kCancelled) {
    display.Flush();
    TellInterrupted(trainer);
    return kFine;
  }
  SaveTrained(o, trainer.Trained());
  return kFine;
}

void AddDataOptions(CLI::App& app, TrainArguments& o) {
  app.add_option("--data", o.data,
                 "what to train on: .npz, .safetensors, NAME=FILE (.npy, IDX), or a folder of "
                 "pictures by class")
      ->required()
      ->allow_extra_args(false)
      ->type_name("SOURCE");
  app.add_option("--eval", o.evaluation, "what to evaluate on after each epoch, as --data")
      ->allow_extra_args(false)
      ->type_name("SOURCE");
  app.add_option("--labels", o.trainer.labels, "the array with labels or targets")
      ->type_name("NAME");
  app.add_option("--normalize", o.normalize,
                 "pixels (u8) to floats: unit, imagenet, signed or raw, as `lathe run` does")
      ->capture_default_str();
  app.add_option("--batch", o.trainer.batch, "samples of a step")
      ->check(CountBetween(1, 1 << 30))
      ->capture_default_str();
  app.add_flag("--drop-last", o.trainer.drop_last, "leave out a last batch that is not full");
  app.add_flag("--no-shuffle", o.no_shuffle, "samples in the order of the data");
}

void AddRunOptions(CLI::App& app, TrainArguments& o) {
  app.add_option("--epochs", o.trainer.epochs)
      ->check(CountBetween(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--seed", o.trainer.seed, "of the order of samples and of random operations")
      ->capture_default_str();
}

}  // namespace

Run AddTrain(CLI::App& app) {
  auto o = std::make_shared<TrainArguments>();
  o->model.AddTo(app);
  AddDataOptions(app, *o);
  o->recipe.AddTo(app);
  AddRunOptions(app, *o);
  o->memory.AddTo(app);
  app.add_option("--checkpoint", o->trainer.checkpoint,
                 "folder for a checkpoint, written after each epoch and when interrupted")
      ->type_name("DIR");
  app.add_flag("--resume", o->resume, "go on from the checkpoint");
  app.add_option("--output,-o", o->output, "the trained model: .onnx, .lathe or .lx")
      ->type_name("FILE");
  app.add_option("--metrics", o->metrics, "loss and accuracy as lines of JSON")->type_name("FILE");
  app.add_option("--plot", o->plot, "a picture of the curves (SVG)")->type_name("FILE");
  app.add_flag("--json", o->json, "the metrics of each epoch as a line of JSON");
  app.add_option("--rank-timeout", o->rank_timeout,
                 "of several processes (mpirun -n 4 lathe train ...): seconds after which one that "
                 "the others wait for is lost")
      ->check(NumberBetween(0.1, 1e6))
      ->capture_default_str();
  app.add_flag("--shard", o->trainer.shard,
               "each of several processes keeps the optimizer's states, and the gradients, of its "
               "share of the parameters alone");
  o->outputs.AddTo(app);
  AddCompileOptions(app, o->trainer.compile);
  return [o] {
    return RunOnRanks(o->rank_timeout, [&](Communicator* ranks) { return TrainModel(*o, ranks); });
  };
}

}  // namespace lathe::command
