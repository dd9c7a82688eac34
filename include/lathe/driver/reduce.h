#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/ir/program.h"

/// Test case reduction: of a program that fails, one as small as can be found that still does.
namespace lathe {

/// Values to run a program on.
struct LabeledInputs {
  std::string label;  ///< for the caller; stays with the values
  NamedValues values;
};

/// A program that fails, and on what it does so: without inputs whoever tests it finds some.
struct FailingCase {
  Program program;
  std::vector<LabeledInputs> inputs = {};

  FailingCase Clone() const;  ///< shares data
};

/// Whether a candidate fails in the way that is looked for. An Error counts as no; other exceptions
/// end the reduction. Called by several threads at a time if ReduceOptions::jobs says so.
using FailureTest = std::function<bool(const FailingCase&)>;

/// What has been found so far.
struct ReduceProgress {
  int64_t runs;  ///< of the test
  const FailingCase& smallest;
  bool is_new;  ///< it was found just now
};

struct ReduceOptions {
  int64_t max_runs = 0;  ///< of the test; 0: any number
  int jobs = 1;          ///< tests at a time; the result does not depend on it
  /// Called after tests, by the thread that called Reduce.
  std::function<void(const ReduceProgress&)> progress = {};
};

struct ReducedCase {
  FailingCase smallest;
  int64_t runs;   ///< of the test
  bool finished;  ///< no single step makes it smaller; false: max_runs came first
};

/// Removes outputs and operations (their results become inputs, and what only they read becomes
/// outputs; those of a branch or of a loop go, too), takes operands for results, one branch for an
/// `if` and one round for a loop, or has the loop go one round and carry less, inlines functions,
/// fixes symbolic sizes, shrinks static ones all over the program at once, and makes floating-point
/// weights tensors of one number: many at a time first, then half as many (delta debugging).
/// Values keep their names. Candidates are valid programs, and none is tested twice. Inputs follow:
/// values that become inputs are what the interpreter computes for them, within a loop in the first
/// round.
/// Errors: reduce/no-failure if `failing` does not fail.
ReducedCase Reduce(const FailingCase& failing, const FailureTest& test,
                   const ReduceOptions& options = {});

/// Operations in the program and its regions, without inputs, parameters, constants and outputs.
size_t CountOperations(const Program& program);

}  // namespace lathe
