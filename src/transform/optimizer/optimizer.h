#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/transform/optimizer.h"
#include "src/dialect/nn/term.h"
#include "src/transform/optimizer/scalar.h"

namespace lathe {

/// A variable that an update reads and sets: `before` is its value before it.
struct VariableUpdate {
  std::string name;
  Value before, after;
  std::string shard_of = {};  ///< the parameter whose shape it is a shard of; empty: it is whole
};

/// One parameter of a program, or the shard of it that this rank updates, while its update is
/// built. All terms have its element type.
class ParameterUpdate {
 public:
  ParameterUpdate(Program& program, Builder& reads, std::string_view optimizer,
                  VariableUpdate& parameter, nn::Term gradient, const Scalar& rate,
                  const Scalar& step, std::vector<VariableUpdate>& states, int64_t nranks);

  const nn::Term& parameter() const { return value_; }
  const nn::Term& gradient() const { return gradient_; }
  /// The learning rate of this update.
  const Scalar& rate() const { return rate_; }
  /// The number of this update, from 1.
  const Scalar& step() const { return step_; }
  /// The state of that name before the update; `initial` before the first one. Each is asked for
  /// once.
  nn::Term State(std::string_view name, double initial = 0);
  void SetState(std::string_view name, const nn::Term& value);
  void SetParameter(const nn::Term& value) { parameter_.after = value; }
  /// The L2 norm, a scalar, of a tensor with the elements of the parameter.
  nn::Term Norm(const nn::Term& x) const;

 private:
  VariableUpdate& Find(const std::string& name);
  Program& program_;
  Builder& reads_;
  std::string_view optimizer_;
  VariableUpdate& parameter_;
  nn::Term value_, gradient_;
  const Scalar &rate_, &step_;
  std::vector<VariableUpdate>& states_;
  const int64_t nranks_;  // that have shards
};

/// A pass that makes a program with gradients a training program: behind everything else it updates
/// the parameters whose gradients append_backward has marked. What the optimizers share is here:
/// options, groups of parameters, clipping, accumulation, schedules and the step counter. What
/// differs is the rule for one parameter.
class OptimizerPass : public Pass {
 public:
  /// Throws if options contradict each other. Asked of every group.
  virtual void CheckOptions() const {}
  /// Builds the rule for one parameter from the options of its group, which are this pass's.
  virtual void Update(ParameterUpdate& u) const = 0;

 protected:
  void ApplyImpl(Graph& graph) final;
  /// The gradient plus weight_decay times the parameter.
  nn::Term Decayed(const ParameterUpdate& u) const;
  /// The parameter after decoupled weight decay: times 1 - rate * weight_decay.
  nn::Term DecayedParameter(const ParameterUpdate& u) const;
  /// The two numbers of the option `betas`.
  std::pair<double, double> Betas() const;
  /// Throws unless the number is at least 0.
  void CheckNotNegative(std::string_view option) const;
  [[noreturn]] void FailOption(std::string message, std::string hint = "") const;
};

/// The options that all optimizers have, of which lr and weight_decay have these defaults.
void AddOptimizerOptions(PassRegistrar& pass, std::string rate, std::string weight_decay);

/// Registers an OptimizerPass with these options; a rule adds its own, and what it says of itself.
template <class Rule>
PassRegistrar RegisterOptimizer(const char* name, std::string rate, std::string weight_decay) {
  PassRegistrar pass(
      PassRegistry::Global().Register(name, [] { return std::unique_ptr<Pass>(new Rule()); }));
  AddOptimizerOptions(pass, std::move(rate), std::move(weight_decay));
  return pass;
}

}  // namespace lathe
