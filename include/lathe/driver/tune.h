#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lathe/driver/executable.h"
#include "lathe/lower/strategy.h"

/// Measures the ways to compute the functions of a program, so that later builds take the fastest.
namespace lathe {

struct TuneOptions {
  CompileOptions compile = {};
  std::vector<Dim::Binding> symbols = {};  ///< extents of symbolic dims; 1 for the others
  size_t max_trials = 64;                  ///< implementations measured per function
  double seconds = 0.05;                   ///< of repeated runs per trial
  const TuningRecords* known = nullptr;    ///< what they hold is not measured again
  /// Called with each new record as soon as it is measured.
  std::function<void(const TuningRecords&)> keep = {};
};

/// What came of one function.
struct TunedFunction {
  std::string operations;   ///< "matmul add gelu"
  std::string workload;     ///< what its records are kept under
  std::string first, best;  ///< implementation that is taken without records, and the fastest
  double first_seconds = 0, best_seconds = 0;
  size_t trials = 0;
  size_t calls = 0;  ///< in the program
};

/// Called before each trial: function `index` of `count`, its operations, the implementation that
/// is measured next.
using TuneProgress = std::function<void(size_t index, size_t count, const std::string& operations,
                                        const std::string& implementation)>;
/// Called after each function, with the records of its trials; an interrupted run keeps these.
using TuneResult = std::function<void(const TunedFunction&, const TuningRecords&)>;

/// Tries, for each function of the program, every strategy that takes it, then values of its knobs:
/// all of them where they are few, else those next to the best so far, and random ones. What
/// computes something else than the implementation that is taken without records is an error
/// (tune/wrong-result).
TuningRecords Tune(const Program& program, const TuneOptions& options,
                   const TuneProgress& progress = {}, const TuneResult& result = {});

/// Tunes with the records of a file, to which each new record is appended as soon as it is
/// measured: an interrupted run has kept them. Symbols that `options.symbols` lacks have usual
/// sizes (AddUsualSizes); `options.known` and `options.keep` are set here. Errors: those of Tune
/// and of ResumeTuningRecords; io/... before anything is measured.
void TuneToFile(const Program& program, TuneOptions options, const std::string& path,
                const TuneProgress& progress = {}, const TuneResult& result = {});

/// The records of a file that a run may have been stopped at writing: a last line without an end is
/// cut off. None if there is no such file. Errors: tune/record for any other file, which stays as
/// it is.
TuningRecords ResumeTuningRecords(const std::string& path);

/// From a file of lines. Errors: io/..., tune/record with the line.
TuningRecords ReadTuningRecords(const std::string& path);

}  // namespace lathe
