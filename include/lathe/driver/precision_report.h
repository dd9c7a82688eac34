#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lathe/driver/executable.h"

/// What the levels of precision cost a program, and what they gain.
namespace lathe {

/// How far an output is from that of the same program computed in f64, over all inputs.
struct OutputError {
  std::string name;
  int64_t elements = 0;
  double largest = 0;           ///< error of an element
  double relative_largest = 0;  ///< the same, relative to the largest element
  double relative_rms = 0;      ///< root of the sum of squared errors over that of squared values
  /// Elements of what is not floats that differ; of floats, those where only one of both is finite,
  /// or that are not the same infinity or NaN.
  int64_t different = 0;
  /// Part of the rows whose greatest element is at the same place; of floats in rows of several.
  std::optional<double> top1 = {};
};

/// A kernel that computes something else than its operations do in f64 on the same inputs.
struct KernelError {
  std::string operations = {};  ///< "conv relu"
  std::string strategy = {};
  std::string place = {};  ///< of its call: "builtin.call at 'layer1.conv2'"
  double relative_rms = 0, largest = 0;
};

struct LevelReport {
  Precision level = Precision::kStrict;
  std::vector<OutputError> outputs;  ///< tensors, in the order of the program
  std::optional<KernelError> worst;  ///< by relative RMS error, with the first inputs
  double milliseconds = 0;           ///< of a run with the first inputs: the least of several
  double speedup = 1;                ///< over the level strict
  bool same_as_strict = true;        ///< all outputs have the bits that they have at strict
  bool keeps_promise = true;         ///< that docs/precision.md gives for the level
};

struct PrecisionReport {
  std::vector<LevelReport> levels;  ///< all of them, in order
  /// Operations that have no form in f64 and were computed as they are, by name.
  std::map<std::string, int> kept;
  int64_t kernels_not_compared = 0;  ///< for which there is no program in f64
};

struct PrecisionReportOptions {
  CompileOptions compile = {};  ///< but for the level
  double seconds = 1;           ///< of measured runs, for all levels together
  /// Called when something begins that takes time, with what it is.
  std::function<void(const std::string& what)> progress = {};
};

/// Compiles the program at each level of precision, runs it on `inputs`, of which there is at least
/// one set, and compares with the same program in f64. Each kernel is compared with its operations
/// in f64, too. Runs of the levels alternate while they are timed. Parameters that runs set begin
/// each run as the program has them. Errors: those of compilation and of runs.
PrecisionReport ReportPrecision(const Program& program, std::span<const NamedValues> inputs,
                                const PrecisionReportOptions& options = {});

}  // namespace lathe
