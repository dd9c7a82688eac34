#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lathe/driver/executable.h"
#include "lathe/support/background_communication.h"
#include "lathe/support/budget.h"
#include "lathe/support/communicator.h"
#include "lathe/train/data.h"
#include "lathe/train/memory_budget.h"
#include "lathe/train/training_program.h"

namespace lathe::train {

/// Means over samples.
struct Metrics {
  double loss = 0;
  std::optional<double> accuracy = {};  ///< of losses of classes: the share that is right
  int64_t samples = 0;
};

/// After a step.
struct StepReport {
  int64_t epoch, epochs;   ///< from 1 on
  int64_t batch, batches;  ///< of the epoch, from 1 on
  int64_t step;            ///< of all epochs, from 1 on
  Metrics metrics;         ///< of the batch
  double seconds;          ///< since Fit began
  double samples_per_second;
};

/// Bytes that a rank holds between steps and for one.
struct TrainingMemory {
  uint64_t parameters = 0;  ///< of the model
  uint64_t states = 0;      ///< of the optimizer, and counters
  uint64_t step = 0;        ///< activations, gradients, buckets: of the largest step so far
};

/// After an epoch.
struct EpochReport {
  int64_t epoch, epochs;              ///< from 1 on
  int64_t step;                       ///< steps so far
  Metrics training;                   ///< of the batches as they were trained
  std::optional<Metrics> evaluation;  ///< of the data for it, after the epoch
  double seconds;                     ///< since Fit began
  /// Of several ranks: what reductions of gradients have taken on this one, in the epoch.
  std::optional<CommunicationTimes> communication = {};
  TrainingMemory memory = {};  ///< of this rank
};

struct TrainerOptions {
  TrainingRecipe recipe = {};
  int64_t epochs = 1;
  int64_t batch = 32;
  /// Of the order of samples and of random operations. With the same seed, data and recipe all
  /// losses and weights have the same bits, for any number of threads; with several ranks, for
  /// their number, and each draws random numbers of its own.
  uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;   ///< a last batch of an epoch that has fewer samples than the others
  std::string labels = {};  ///< the array with labels or targets; empty: found by name
  ImageOptions image = {};  ///< of arrays of u8 that feed floats
  CompileOptions compile = {};
  /// Bytes that parameters, states and a step of `batch` samples of this rank may take; 0: any.
  /// Values are computed twice where they do not fit: the same losses, in more time.
  uint64_t memory = 0;
  /// Folder for checkpoints, made if missing; empty: none are written. One is written after each
  /// epoch, and when Fit is cancelled.
  std::string checkpoint = {};
  /// When the loss is not finite, the steps since the last snapshot are run again to find the
  /// operation that made it. A snapshot, a copy of all parameters in memory, is taken every so many
  /// steps; 0: none, and nothing is found.
  int64_t snapshot_every = 256;
  /// With a budget of memory, before the first step.
  std::function<void(const MemoryTrade&)> on_memory = {};
  std::function<void(const StepReport&)> on_step = {};
  std::function<void(const EpochReport&)> on_epoch = {};
  const CancelToken* cancel = nullptr;  ///< ends Fit after the step that runs
  /// The ranks that train together, each with a trainer of the same options on the same data; null:
  /// this one alone. Must outlive the trainer. `batch` is that of all ranks: each reads and
  /// computes a stretch of it, gradients are reduced, and metrics are those of the whole. Every
  /// rank makes all calls of the trainer, but for SaveCheckpoint; rank 0 alone writes
  /// TrainerOptions::checkpoint. Errors of one rank end the others with rank/failed.
  Communicator* ranks = nullptr;
  /// Each rank keeps the states of the optimizer for its shard of each parameter alone, gets that
  /// of the gradients, and gives the others what it makes of the parameters (ZeRO, stages 1 and 2).
  /// Then SaveCheckpoint, too, is called by every rank.
  bool shard = false;
};

enum class FitResult : uint8_t { kDone, kCancelled };

/// Trains a program: makes a training program of it, compiles that and an evaluation that reads the
/// same parameters, and runs epochs.
///
///     lathe::train::Trainer trainer(model.program(), {.recipe = {.optimizer = "adamw{lr=1e-3}"},
///                                                     .epochs = 5});
///     trainer.Fit(*lathe::train::OpenData({{"train.npz"}}), eval.get());
///     lathe::SaveModel(trainer.Trained(), "trained.onnx");
///
/// Not for several threads at once.
class Trainer {
 public:
  /// The program is copied; its context must outlive the trainer. It is compiled by the first call
  /// that needs it, whose errors are also those of compilation. Errors: those of
  /// MakeTrainingProgram; train/option.
  Trainer(const Program& model, TrainerOptions options);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  /// Throws what makes Fit fail before its first step, but for the compilation: data that do not
  /// fit the model (train/array..., shape/...) or the batch (train/batch).
  void Check(const DataSet& data, const DataSet* evaluation = nullptr) const;

  /// Runs the epochs that are left, from where the last Fit or Resume has stopped. Errors:
  /// those of Check; train/memory if the budget is too small; train/not-finite with the operation
  /// that made the first value that is not finite; train/ranks-differ if ranks have another model,
  /// recipe or data; those of data, of runs, of files and of Communicator.
  FitResult Fit(const DataSet& data, const DataSet* evaluation = nullptr);
  /// The loss of the model as it is now, in inference mode.
  Metrics Evaluate(const DataSet& data);

  /// Where TrainerOptions::checkpoint has the checkpoint: safetensors with weights and states of
  /// optimizers, and in its metadata where the training is. Empty if there is no folder.
  std::string CheckpointPath() const;
  /// Replaced as a whole: there is the old one or the new one, whatever happens. Errors: io/...
  void SaveCheckpoint(const std::string& path) const;
  /// Goes on from a checkpoint, with the same bits as if there had been no stop. Errors: io/...,
  /// parse/safetensors; train/checkpoint if the file is none, or is of another model, optimizer,
  /// seed or batch.
  void Resume(const std::string& path);

  /// Steps made, and epochs completed.
  int64_t step() const;
  int64_t epoch() const;

  /// The inference program with the weights as they are now. Shares nothing that changes.
  Program Trained() const;
  const TrainingProgram& programs() const;
  /// Of the training step.
  const Executable& executable() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lathe::train
