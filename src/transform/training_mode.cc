#include <set>
#include <vector>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/norm.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "src/transform/learned.h"
#include "src/transform/name_pattern.h"

namespace lathe {

namespace {

using nn::BatchNormalizationOp;
using nn::DropoutOp;

/// The parameter that a value is, read in the top block; null if it is none.
builtin::GetParameterOp ParameterOf(const Program& program, Value value) {
  Operation* op = value.defining_op();
  const bool is_read = op != nullptr && op->block() == program.block();
  return is_read ? op->dyn_cast<builtin::GetParameterOp>() : builtin::GetParameterOp();
}

class TrainingModePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    std::vector<Operation*> norms, dropouts;
    for (OpWalker w(program.block()); Operation* op = w.Next();) {
      if (op->isa<BatchNormalizationOp>()) norms.push_back(op);
      if (op->isa<DropoutOp>()) dropouts.push_back(op);
    }
    Rewriter rewriter(program, this);
    for (Operation* op : norms) Normalize(rewriter, op);
    for (Operation* op : dropouts) Drop(rewriter, op);
    program.RefreshMutability();
  }

 private:
  /// Statistics are no weights: they follow the batches.
  void Normalize(Rewriter& rewriter, Operation* op) {
    if (BatchNormalizationOp(op).training_mode()) return;
    const Value mean = op->operand(BatchNormalizationOp::kMean);
    const Value var = op->operand(BatchNormalizationOp::kVar);
    const auto mean_of = ParameterOf(rewriter.program(), mean);
    const auto var_of = ParameterOf(rewriter.program(), var);
    for (const Value statistic : {mean, var}) {
      if (ParameterOf(rewriter.program(), statistic)) Stop(statistic);
    }
    if (IsFrozen(mean_of) || IsFrozen(var_of)) {
      return rewriter.Missed(op, "its statistics are frozen");
    }
    if (mean_of && var_of && (ReadsConstant(mean_of) || ReadsConstant(var_of))) {
      return rewriter.Missed(op, "its statistics are constants");
    }
    if (!mean_of || !var_of || op->block() != rewriter.program().block()) {
      return rewriter.Missed(op, "its statistics are not parameters of the top block");
    }
    if (!taken_.insert(std::string(mean_of.name())).second) {
      return rewriter.Missed(op, "its statistics are those of another normalization");
    }
    const std::string names[] = {std::string(mean_of.name()), std::string(var_of.name())};
    Operation* trained = Recreate(rewriter, op);
    rewriter.SetInsertionPointToEnd(rewriter.program().block());
    for (size_t i = 0; i < 2; ++i) {
      builtin::SetParameterOp::Create(
          rewriter, trained->result(BatchNormalizationOp::kRunningMean + i), {.name = names[i]});
    }
    rewriter.Applied(trained, "normalizes each batch by its own statistics");
    Count("normalizations");
  }

  bool IsFrozen(const builtin::GetParameterOp& read) const {
    return read && MatchesAny(read.name(), option_list("frozen"));
  }

  void Stop(Value statistic) {
    statistic.set_property("stop_gradient", BoolAttribute::Get(*statistic.context(), true));
    MarkChanged();
  }

  static Operation* Recreate(Rewriter& rewriter, Operation* op) {
    const Rewriter::Replacing scope(rewriter, {&op, 1});
    std::vector<Value> operands;
    for (size_t i = 0; i < op->num_operands(); ++i) operands.push_back(op->operand(i));
    const BatchNormalizationOp norm(op);
    std::vector<NamedAttribute> attributes = {
        rewriter.Named(BatchNormalizationOp::kEpsilonAttr, rewriter.Attr(norm.epsilon())),
        rewriter.Named(BatchNormalizationOp::kMomentumAttr, rewriter.Attr(norm.momentum())),
        rewriter.Named(BatchNormalizationOp::kTrainingModeAttr, rewriter.Attr(true))};
    if (const auto layout = norm.layout()) {
      attributes.push_back(
          rewriter.Named(BatchNormalizationOp::kLayoutAttr, rewriter.Attr(*layout)));
    }
    Operation* trained = rewriter.Create(BatchNormalizationOp::kName, operands, attributes, 3);
    for (size_t i = 0; i < op->num_results(); ++i) {
      rewriter.ReplaceAllUses(op->result(i), trained->result(i));
    }
    rewriter.Erase(op);
    return trained;
  }

  void Drop(Rewriter& rewriter, Operation* op) {
    const Value mode = op->num_operands() > 2 ? op->operand(2) : Value();
    if (mode) {
      const Tensor* known = ConstantValue(rewriter.program(), mode);
      const bool is_off =
          known != nullptr && known->num_elements() == 1 && ToInt64s(*known)[0] == 0;
      if (!is_off) return;
    }
    const Rewriter::Replacing scope(rewriter, {&op, 1});
    std::vector<Value> operands = {op->operand(0),
                                   op->num_operands() > 1 ? op->operand(1) : Value(),
                                   rewriter.Constant(Tensor::Scalar(true))};
    std::vector<NamedAttribute> attributes;
    if (const Attribute seed = op->attribute(DropoutOp::kSeedAttr)) {
      attributes.push_back(rewriter.Named(DropoutOp::kSeedAttr, seed));
    }
    // Its gradient needs the mask.
    Operation* trained = rewriter.Create(DropoutOp::kName, operands, attributes, 2);
    for (size_t i = 0; i < op->num_results(); ++i) {
      rewriter.ReplaceAllUses(op->result(i), trained->result(i));
    }
    rewriter.Erase(op);
    rewriter.Applied(trained, "drops elements");
    Count("dropouts");
  }

  std::set<std::string> taken_;  ///< parameters that a normalization sets
};

REGISTER_PASS(training_mode, TrainingModePass)
    .Doc("switches batch normalization and dropout to training")
    .Details(
        "A batch normalization whose statistics are parameters normalizes each batch by its own, "
        "and sets the running ones; they are marked `stop_gradient`, as optimizers do not change "
        "them. One whose statistics are frozen or constants keeps them. A dropout whose mode is "
        "not computed "
        "draws masks.")
    .Option("frozen", PassOption::Kind::kStrings, "",
            "names and patterns of parameters, as append_backward has them");

}  // namespace

}  // namespace lathe
