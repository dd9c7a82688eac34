#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "test/corpus/trial.h"

namespace lathe::testing {

namespace {

std::vector<Operation*> TopOps(const Program& program) {
  std::vector<Operation*> ops;
  for (Operation& op : *program.block()) ops.push_back(&op);
  return ops;
}

void EraseUnused(Program& program) {
  std::vector<Operation*> ops = TopOps(program);
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    const bool drop = IsRemovableWhenUnused(*op) || (*op)->name() == "nn.feed";
    if (drop && (*op)->use_empty()) (*op)->Erase();
  }
}

class Shrinker {
 public:
  Shrinker(const Program& program, NamedValues inputs, const std::string& pipeline)
      : pipeline_(pipeline), best_{program.Clone(), ""}, inputs_(std::move(inputs)) {}

  Shrunk Run() {
    best_.failure = FailureOf(best_.program, inputs_);
    if (best_.failure.empty()) return std::move(best_);
    DropOutputs();
    CutValues();
    return std::move(best_);
  }

 private:
  std::string FailureOf(const Program& program, const NamedValues& inputs) const {
    const auto reference = ReferenceFor(program, inputs);
    return RunTrial(program, pipeline_, reference ? &*reference : nullptr).failure;
  }

  /// "error[pass/option]", or that a result differs.
  static std::string KindOf(const std::string& failure) {
    return failure.substr(0, failure.starts_with("error[") ? failure.find(']') : 6);
  }

  bool Take(Program candidate, const NamedValues& inputs) {
    EraseUnused(candidate);
    std::string failure = FailureOf(candidate, inputs);
    if (KindOf(failure) != KindOf(best_.failure)) return false;
    best_ = {std::move(candidate), std::move(failure)};
    inputs_ = inputs;
    return true;
  }

  void DropOutputs() {
    for (size_t i = best_.program.fetches().size(); i-- > 0;) {
      if (best_.program.fetches().size() == 1) return;
      Program candidate = best_.program.Clone();
      candidate.fetches()[i]->Erase();
      Take(std::move(candidate), inputs_);
    }
  }

  /// From the last op on, so that what a cut leaves unused goes at once.
  void CutValues() {
    for (size_t i = TopOps(best_.program).size(); i-- > 0;) {
      if (i >= TopOps(best_.program).size()) continue;
      Program candidate = best_.program.Clone();
      NamedValues inputs = inputs_;
      if (CutAt(candidate, i, inputs)) Take(std::move(candidate), inputs);
    }
  }

  /// Makes the results of op `i` inputs; false if there is nothing to gain.
  bool CutAt(Program& program, size_t i, NamedValues& inputs) const {
    Operation* op = TopOps(program)[i];
    if (op->num_operands() == 0 || op->num_results() == 0) return false;
    const std::vector<RtValue> values = ResultsOf(i);
    if (values.size() != op->num_results()) return false;
    for (size_t r = 0; r < values.size(); ++r) {
      if (op->result(r).use_empty() || !values[r].is_tensor()) continue;
      const std::string name = StrCat("cut_", i, "_", r, "_", inputs.size());
      Builder b = Builder::Before(op);
      const NamedAttribute named = b.Named("name", b.Attr(name));
      const Type type = op->result(r).type();
      op->result(r).ReplaceAllUsesWith(b.Create("nn.feed", {}, {&named, 1}, {&type, 1})->result(0));
      inputs.emplace_back(name, values[r]);
    }
    return true;
  }

  std::vector<RtValue> ResultsOf(size_t i) const {
    Program copy = best_.program.Clone();
    const Operation* wanted = TopOps(copy)[i];
    std::vector<RtValue> results;
    InterpreterOptions options;
    options.verify = false;
    options.observer = [&](const RanOp& ran) {
      if (ran.op == wanted) results.assign(ran.outputs.begin(), ran.outputs.end());
    };
    try {
      (void)Interpreter(copy, options).Run(inputs_);
    } catch (const Error&) {
      return {};
    }
    return results;
  }

  std::string pipeline_;
  Shrunk best_;
  NamedValues inputs_;
};

}  // namespace

Shrunk Shrink(const Program& program, const NamedValues& inputs, const std::string& pipeline) {
  return Shrinker(program, inputs, pipeline).Run();
}

}  // namespace lathe::testing
