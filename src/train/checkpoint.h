#pragma once

#include <cstdint>
#include <string>

#include "lathe/support/npy.h"

namespace lathe::train {

/// Of several batches.
struct Sums {
  double loss = 0;          ///< over the samples
  double correct = 0;       ///< predictions
  int64_t predictions = 0;  ///< of classes; 0: the loss has none
  int64_t samples = 0;
};

/// Where a training is.
struct Position {
  int64_t epoch = 0;  ///< completed
  int64_t batch = 0;  ///< of the next epoch that are done
  int64_t step = 0;
  Sums sums = {};  ///< of the next epoch so far
};

/// What must be the same for a training to go on.
struct RunIdentity {
  std::string model;  ///< hash of the program and of what it does not train
  uint64_t seed = 0;
  int64_t batch = 0;
  bool shuffle = true, drop_last = false;
};

struct Checkpoint {
  RunIdentity run;
  Position position;
  NamedTensors parameters;  ///< all that a step sets
};

void WriteCheckpoint(const std::string& path, const Checkpoint& checkpoint);
/// Errors: io/..., parse/safetensors, train/checkpoint if it is not one.
Checkpoint ReadCheckpoint(const std::string& path);
/// Throws train/checkpoint with what differs.
void CheckSameRun(const RunIdentity& saved, const RunIdentity& now, const std::string& path);

}  // namespace lathe::train
