#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/runtime/constraints.h"
#include "lathe/runtime/worker_team.h"
#include "lathe/support/size_condition.h"
#include "src/driver/compiled_program.h"

namespace lathe {

/// Runs a compiled program that has no plan: the interpreter goes through it, and calls the code of
/// the functions that have some. Runs of several threads take turns.
class InterpretedRun {
 public:
  /// `compiled` must outlive it.
  InterpretedRun(CompiledProgram& compiled, std::shared_ptr<runtime::WorkerTeam> team,
                 InterpreterOptions options);
  NamedValues Run(const NamedValues& inputs);

  /// As Executable has them.
  std::vector<std::string> MutableParameters();
  Tensor GetParameter(std::string_view name);
  void SetParameter(std::string_view name, const Tensor& value);

 private:
  /// Throws parameter/missing.
  Variable& Named(std::string_view name);
  void CheckSizes(const NamedValues& inputs);
  /// Binds what an operation says of sizes, and, outside of regions, checks what relies on it.
  void CheckComputed(const RanOp& ran);
  /// Binds what an iteration of a loop starts from.
  void BindIteration(const Block* block, std::span<const RtValue> arguments);
  /// Checks what a region relies on where it ends, of which `end` is the terminator.
  void CheckRegion(const Operation* end) const;
  /// Throws where sizes contradict what a function was made of.
  static void CheckRequired(const CompiledFunction& f, std::span<const RtValue> arguments);
  /// Whether code of the function is right for these arguments.
  bool Fits(size_t function, std::span<const RtValue> arguments) const;
  /// As the types of the results and the sizes of this run say; nothing if they do not.
  std::optional<std::vector<Shape>> ShapesOfResults(const Operation* call) const;
  bool RunCall(const Operation* call, std::span<const RtValue> arguments,
               std::span<RtValue> results);

  CompiledProgram& compiled_;
  PackedConstants packed_;  // of calls with code
  std::shared_ptr<runtime::WorkerTeam> team_;
  std::mutex mutex_;
  Interpreter interpreter_;
  std::vector<runtime::PlanSymbol> symbols_;
  std::vector<runtime::BoundSymbol> bound_;  ///< in this run
  std::deque<std::string> computed_;         ///< names of those that the run computes
  std::map<std::string, int64_t> regional_;  ///< what regions have last bound
  /// What code relies on of the sizes of its arguments, in terms of the function's; parallel to the
  /// functions.
  std::vector<std::vector<SizeCondition>> relied_on_;
};

}  // namespace lathe
