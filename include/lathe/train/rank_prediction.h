#pragma once

#include <functional>

#include "lathe/driver/executable.h"
#include "lathe/train/trainer.h"

namespace lathe::train {

/// What joins two machines.
struct Network {
  double seconds = 0;           ///< from the start of a message to its first byte
  double bytes_per_second = 0;  ///< that a machine sends, and receives meanwhile
};

struct PredictionOptions {
  TrainingRecipe recipe = {};
  int64_t ranks = 2;
  bool shard = false;
  Network network = {};
  CompileOptions compile = {};
  int runs = 5;  ///< that are measured, after one to warm up
  /// What a rank is given for a step, kRankWeight among it.
  std::function<NamedValues(const Program& step)> inputs = {};
};

/// A step of one of the ranks; of times medians.
struct StepPrediction {
  double seconds = 0;
  CommunicationTimes communication;  ///< of gradients, and of shards of parameters
  uint64_t sent_bytes = 0;           ///< to all others together
  TrainingMemory memory;
};

/// Runs the step that each of the ranks would run, here, as one of them on a machine of its own.
/// The other ones are not there: what they send is zeros, which take the time of the network: each
/// message its latency, one after another, and all of them together their bytes. Ranks are taken to
/// be equally fast. Errors: those of MakeTrainingProgram, of compilation and of runs.
StepPrediction PredictStep(const Program& model, const PredictionOptions& options);

}  // namespace lathe::train
