#include <optional>
#include <string_view>
#include <vector>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/ir/context.h"
#include "lathe/ir/op_def.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/transform/multi_devices.h"
#include "lathe/transform/optimizer.h"
#include "src/transform/name_pattern.h"

namespace lathe {

namespace {

/// What a layer that computes something else in training calls the attribute, or the operand, that
/// says so.
constexpr const char* kTrainingMode = "training_mode";

/// The operand that says whether an operation is in training; nothing if it has none.
std::optional<size_t> TrainingOperand(const Operation* op) {
  const OpDef* def = op->info().def();
  for (size_t i = 0; def != nullptr && i < def->operands.size(); ++i) {
    if (std::string_view(def->operands[i].name) == kTrainingMode) return i;
  }
  return std::nullopt;
}

/// Those within regions, too, in program order.
std::vector<Operation*> AllOperations(Program& program) {
  std::vector<Operation*> ops;
  for (OpWalker w(program.block()); Operation* op = w.Next();) ops.push_back(op);
  return ops;
}

class TrainingToInferencePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    const std::vector<std::string> keep = option_list("keep");
    Rewriter rewriter(program, this);
    std::vector<Operation*> writers;
    for (Operation* op : AllOperations(program)) {
      LeaveTraining(rewriter, op);
      if (IsOfTraining(op, keep)) writers.push_back(op);
    }
    for (Operation* op : writers) {
      Count(op->isa<nn::FetchOp>() ? "gradients" : "updates");
      rewriter.Erase(op);
    }
    if (changed()) PassRegistry::Global().Make("dead_code")->Apply(graph);
    EraseState(program);
    if (changed()) program.RefreshMutability();
  }

 private:
  /// Whether the operation sets a parameter or gives a gradient to the caller.
  static bool IsOfTraining(const Operation* op, const std::vector<std::string>& keep) {
    if (op->isa<nn::FetchOp>()) return static_cast<bool>(op->attribute(kGradOf));
    if (!op->isa<builtin::SetParameterOp>()) return false;
    return !MatchesAny(op->attribute("name").cast<StrAttribute>().value(), keep);
  }

  void LeaveTraining(Rewriter& rewriter, Operation* op) {
    const auto mode = op->attribute(kTrainingMode).dyn_cast<BoolAttribute>();
    if (mode && mode.value()) {
      rewriter.SetAttribute(op, kTrainingMode, BoolAttribute::Get(rewriter.context(), false));
      Count("layers");
    }
    const std::optional<size_t> operand = TrainingOperand(op);
    if (!operand || *operand >= op->num_operands() || !op->operand(*operand)) return;
    rewriter.SetOperand(op, *operand, Value());
    Count("layers");
  }

  /// Forgets the state of optimizers that nothing reads any more.
  void EraseState(Program& program) {
    std::vector<StrAttribute> state;
    for (const ParameterMap::Entry& entry : program.parameters()) {
      if (IsOptimizerState(entry.name.value())) state.push_back(entry.name);
    }
    for (const Operation* op : AllOperations(program)) {
      if (!op->isa<builtin::GetParameterOp>() && !op->isa<builtin::SetParameterOp>()) continue;
      std::erase(state, op->attribute("name").cast<StrAttribute>());
    }
    for (const StrAttribute name : state) program.parameters().Erase(name);
    if (!state.empty()) MarkChanged();
  }
};

REGISTER_PASS(training_to_inference, TrainingToInferencePass)
    .Doc("makes the inference program of a training program: no gradients, no updates, no dropout")
    .Details(
        "Drops what sets parameters and what gives gradients, with all that was computed for them, "
        "and the state of optimizers; takes layers out of training mode (attribute or operand "
        "`training_mode`): dropout is the identity then, and batch normalization uses its running "
        "statistics. The parameters keep their values and are constants again, so that what "
        "follows "
        "folds them.")
    .Option("keep", PassOption::Kind::kStrings, "",
            "parameters that stay set: names, `*` and `?` as in file names");

}  // namespace

}  // namespace lathe
