#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/ir/program.h"
#include "lathe/support/rt_value.h"

/// The interpreter is the meaning of a program: it runs every op's `Eval` in program order.
namespace lathe {

/// Values by name, in order.
using NamedValues = std::vector<std::pair<std::string, RtValue>>;

/// The value of that name, or null.
const RtValue* Find(const NamedValues& values, std::string_view name);

/// What just ran, for an observer. Views; valid during the call.
struct RanOp {
  const Operation* op;
  std::span<const RtValue> inputs;
  std::span<const RtValue> outputs;
  uint64_t step;  ///< how many ops ran before, those in regions included
};

struct InterpreterOptions {
  bool verify = true;      ///< check the program first
  uint64_t seed = 0;       ///< for random ops that have no seed of their own
  uint64_t max_bytes = 0;  ///< of values alive at once; 0: four fifths of the machine's memory
  uint64_t max_steps = 1'000'000'000;  ///< ops that may run
  uint32_t max_depth = 500;            ///< regions that may run within one another
  /// Asked before each `builtin.call`; true: it has run the function and set the results.
  std::function<bool(const Operation* call, std::span<const RtValue> arguments,
                     std::span<RtValue> results)>
      run_call = {};
  /// Called after each op; an exception ends the run.
  std::function<void(const RanOp&)> observer = {};
  /// Called with the block of a region and its arguments, before it runs.
  std::function<void(const Block* block, std::span<const RtValue> arguments)> at_begin = {};
  /// Called with the terminator of a region, or of a function, whenever it has come to its end.
  std::function<void(const Operation* end)> at_end = {};
};

/// Runs one program. The program must outlive the interpreter and not change. One run at a time.
class Interpreter {
 public:
  /// Throws if the program is invalid or has an op that cannot be run (run/no-eval).
  explicit Interpreter(Program& program, InterpreterOptions options = {});
  ~Interpreter();
  Interpreter(Interpreter&&) noexcept;

  /// Outputs in the order of the program's `nn.fetch` ops. Inputs are checked before anything runs:
  /// names (run/input-name, run/input-missing), kinds, element types and shapes (run/input-type,
  /// run/input-shape), that dims of one symbol agree, and what the program states that it relies
  /// on. Limits: limit/memory, limit/steps, limit/depth. Sets parameters of the program if it has
  /// `builtin.set_parameter`. An input of type `tensor` that some op of the program can write
  /// (itself or through a view) is given back after the outputs, by name, with what it holds then.
  NamedValues Run(const NamedValues& inputs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Runs `startup`, which sets parameters, and moves its parameters to `main`.
void RunStartup(Program& startup, Program& main, InterpreterOptions options = {});

/// Runs one op without regions on `inputs` (none: absent). Results in order.
std::vector<RtValue> EvalOp(Operation* op, std::span<const RtValue> inputs, uint64_t seed = 0);

}  // namespace lathe
