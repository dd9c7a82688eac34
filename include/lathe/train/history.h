#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lathe/train/trainer.h"

namespace lathe::train {

/// A report as a line of JSON, with an end of line:
///   {"kind": "step", "epoch": 1, "step": 20, "loss": 0.5, "accuracy": 0.9, "samples": 64,
///    "seconds": 0.8}
///   {"kind": "epoch", "epoch": 1, "step": 21, "loss": ..., "accuracy": ..., "samples": ...,
///    "eval_loss": ..., "eval_accuracy": ..., "eval_samples": ..., "seconds": ...,
///    "communication_seconds": ..., "hidden_seconds": ..., "parameter_bytes": ...,
///    "state_bytes": ..., "step_bytes": ...}
/// What a training has not is left out.
std::string ToJsonLine(const StepReport& report);
std::string ToJsonLine(const EpochReport& report);

/// The curves of a training.
class History {
 public:
  void Add(const StepReport& report);
  void Add(const EpochReport& report);
  /// Of a file of such lines, up to step `step`: what a training that goes on has behind it.
  /// Errors: io/..., parse/metrics with the line.
  static History Read(const std::string& path, int64_t step);
  /// All of it as lines of JSON.
  const std::string& ToJsonLines() const { return lines_; }

  /// A picture (SVG) of loss, and accuracy if there is one, over steps: of steps thin, of epochs
  /// and evaluations thick with marks.
  std::string ToSvg(const std::string& title) const;

  struct Point {
    int64_t step;
    double value;
  };
  struct Curves {
    std::vector<Point> steps, epochs, evaluations;
  };
  const Curves& loss() const { return loss_; }
  const Curves& accuracy() const { return accuracy_; }

 private:
  void AddLine(const std::string& text);

  Curves loss_, accuracy_;
  std::string lines_;
};

}  // namespace lathe::train
