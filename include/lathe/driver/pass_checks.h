#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/lower/precision.h"
#include "lathe/pass/pass_manager.h"

/// Checks of passes against the interpreter.
namespace lathe {

/// On what two programs are compared, and how much they may differ.
struct NumericOptions {
  int samples = 1;  ///< sets of seeded random inputs
  uint64_t seed = 1;
  std::optional<double> rtol;  ///< without: ToleranceOf the program
  std::optional<double> atol;
  int64_t symbol_extent = 2;  ///< extent of every symbolic dim of the inputs
};

/// Two results agree if |a - b| <= atol + rtol * |b| for all elements.
struct Tolerance {
  double rtol, atol;
};
/// How far results may differ, by the narrowest floating type among the values of a program: a
/// rewrite may keep, drop or move a rounding, and each costs about one unit of the type's precision
/// (f32 2^-24, f16 2^-11, bf16 2^-8, f8 2^-3). f32 and wider 1e-3 and 1e-5, f16 1e-2 and 1e-2, bf16
/// 5e-2 and 5e-2, 8 bits and less 0.25 and 0.25. A level that rounds to a type counts as its
/// values.
Tolerance ToleranceOf(const Program& program, Precision precision = Precision::kStrict);

/// Seeded random inputs for every `nn.feed`; small integers for integer inputs, so that they can be
/// indices, and every symbol with one extent.
NamedValues SampleInputs(const Program& program, const NumericOptions& options, uint64_t seed);

/// What a program gives on sampled inputs, to compare others with it.
class NumericReference {
 public:
  /// What a run gave, and the parameters that it left.
  struct Outcome {
    struct Parameter {
      std::string name;
      Tensor data;
      bool set;  ///< the run changed it
    };
    NamedValues outputs;
    std::vector<Parameter> parameters;
  };
  /// Runs `original` once per sample, on `inputs` if there are any.
  explicit NumericReference(const Program& original, NumericOptions options = {},
                            NamedValues inputs = {});
  /// Empty when `actual` gives the same, else what differs. An Error while it runs differs too.
  std::string Difference(const Program& actual) const;
  /// The first op of `actual` that gives another value than its counterpart in `before`, found by
  /// location; empty if none is found.
  std::string FirstOp(const Program& before, const Program& actual) const;
  /// One set per sample.
  const std::vector<NamedValues>& inputs() const { return inputs_; }

 private:
  NumericOptions options_;
  std::vector<NamedValues> inputs_;
  std::vector<Outcome> expected_;
};

/// Runs the program on sampled inputs before the first pass and after each pass that changed it. A
/// result, or a parameter that the program sets, that differs throws check/numerics naming the
/// pass, the output, the error and, by location, the first op whose value differs. A change that
/// the pass does not own up to throws check/unmarked-change.
std::shared_ptr<PassInstrumentation> MakeNumericCheck(const Program& original,
                                                      NumericOptions options = {});

/// After each pass that says it changed nothing: the program is as it was, or
/// check/unmarked-change.
std::shared_ptr<PassInstrumentation> MakeChangeCheck();

/// Compares two programs on sampled inputs; empty when they agree, else what differs.
std::string CompareNumerically(const Program& expected, const Program& actual,
                               const NumericOptions& options = {});

/// Where a pipeline begins to fail.
struct BisectResult {
  int64_t passes = 0;  ///< passes after which `holds` is false for the first time; -1: it never is
  std::string pass;    ///< the last of them
  std::string error;   ///< what a pass threw, rendered; empty if `holds` said no
};
/// The shortest beginning of `pipeline` after which `holds(program)` is false, by bisection. An
/// Error while running counts as false.
BisectResult BisectPasses(const Program& program, const std::string& pipeline,
                          const std::function<bool(const Program&)>& holds,
                          PassManagerOptions options = {});

}  // namespace lathe
