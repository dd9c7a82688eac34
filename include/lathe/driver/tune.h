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

/// Tries, for each function of the program, every strategy that takes it, and the values of its
/// knobs one after another, each with the best so far of the others. What computes something else
/// than the implementation that is taken without records is an error (tune/wrong-result).
TuningRecords Tune(const Program& program, const TuneOptions& options,
                   const TuneProgress& progress = {}, const TuneResult& result = {});

/// From a file of lines. Errors: io/..., tune/record with the line.
TuningRecords ReadTuningRecords(const std::string& path);

}  // namespace lathe
