#include "lathe/driver/code_checks.h"

#include <map>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"
#include "src/driver/compiled_program.h"
#include "src/driver/interpreted_run.h"

namespace lathe {
namespace {

// A call by the name of the function, and how many of it came before.
class CallCounter {
 public:
  std::string Next(const Operation* op) {
    const std::string callee(builtin::CallOp(op).callee());
    return StrCat(callee, " ", seen_[callee]++);
  }

 private:
  std::map<std::string, size_t> seen_;
};

using Results = std::map<std::string, std::vector<RtValue>>;

Results InterpretedResults(const Program& program, const CompileOptions& options,
                           const NamedValues& inputs) {
  Program grouped = program.Clone();
  GroupOperations(grouped, options);
  Results results;
  CallCounter counter;
  InterpreterOptions run = options.interpreter;
  run.observer = [&](const RanOp& ran) {
    if (!ran.op->isa<builtin::CallOp>()) return;
    results[counter.Next(ran.op)] = {ran.outputs.begin(), ran.outputs.end()};
  };
  Interpreter(grouped, run).Run(inputs);
  return results;
}

}  // namespace

std::string FirstDifferentCall(const Program& program, const CompileOptions& options,
                               const NamedValues& inputs, double rtol, double atol) {
  const Results wanted = InterpretedResults(program, options, inputs);
  const auto compiled = CompileProgram(program, options);
  std::string difference;
  CallCounter counter;
  InterpreterOptions run = options.interpreter;
  run.observer = [&](const RanOp& ran) {
    if (!ran.op->isa<builtin::CallOp>()) return;
    const auto found = wanted.find(counter.Next(ran.op));
    if (found == wanted.end() || !difference.empty()) return;
    for (size_t i = 0; i < ran.outputs.size(); ++i) {
      const Closeness close = AllClose(ran.outputs[i], found->second[i], rtol, atol);
      if (!close) difference = StrCat(ran.op->Describe(), ": ", close.description);
    }
  };
  const auto team = std::make_shared<runtime::WorkerTeam>(options.threads);
  InterpretedRun(*compiled, team, std::move(run)).Run(inputs);
  return difference;
}

}  // namespace lathe
