#include "src/transform/optimizer/optimizer.h"

#include <algorithm>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"
#include "src/transform/optimizer/clip.h"
#include "src/transform/optimizer/schedule.h"
#include "src/transform/optimizer/training_step.h"

namespace lathe {

std::string OptimizerStateName(std::string_view parameter, std::string_view optimizer,
                               std::string_view state) {
  return StrCat(parameter, "@", optimizer, ".", state);
}

bool IsOptimizerState(std::string_view name) {
  const size_t at = name.rfind('@');
  if (at == std::string_view::npos) return false;
  const std::string_view owner = name.substr(at + 1);
  const std::string_view optimizer = owner.substr(0, owner.find('.'));
  if (optimizer == owner) return name.substr(0, at) == "optimizer";
  if (optimizer == "gradient") return owner == "gradient.sum";
  return PassRegistry::Global().Has(optimizer) &&
         dynamic_cast<OptimizerPass*>(PassRegistry::Global().Make(optimizer).get()) != nullptr;
}

// ---- one parameter ----

ParameterUpdate::ParameterUpdate(Program& program, Builder& reads, std::string_view optimizer,
                                 VariableUpdate& parameter, nn::Term gradient, const Scalar& rate,
                                 const Scalar& step, std::vector<VariableUpdate>& states,
                                 int64_t nranks)
    : program_(program),
      reads_(reads),
      optimizer_(optimizer),
      parameter_(parameter),
      value_(gradient.builder(), parameter.before),
      gradient_(gradient),
      rate_(rate),
      step_(step),
      states_(states),
      nranks_(nranks) {}

nn::Term ParameterUpdate::Norm(const nn::Term& x) const { return NormOf(x, nranks_); }

nn::Term ParameterUpdate::State(std::string_view name, double initial) {
  const std::string full = OptimizerStateName(parameter_.name, optimizer_, name);
  const auto type = parameter_.before.type().cast<AnyTensorType>();
  const Value before =
      ReadVariable(program_, reads_, full, type.element(), *type.shape().Constants(), initial);
  states_.push_back({full, before, Value(), parameter_.shard_of});
  return {value_.builder(), before};
}

void ParameterUpdate::SetState(std::string_view name, const nn::Term& value) {
  const std::string full = OptimizerStateName(parameter_.name, optimizer_, name);
  const auto at = std::find_if(states_.begin(), states_.end(),
                               [&](const VariableUpdate& s) { return s.name == full; });
  LATHE_CHECK(at != states_.end(), "a state is read before it is set");
  at->after = value;
}

// ---- what rules are written with ----

nn::Term OptimizerPass::Decayed(const ParameterUpdate& u) const {
  const double decay = option_float("weight_decay");
  return decay == 0 ? u.gradient() : u.gradient() + u.parameter() * decay;
}

nn::Term OptimizerPass::DecayedParameter(const ParameterUpdate& u) const {
  const double decay = option_float("weight_decay");
  return decay == 0 ? u.parameter() : u.parameter() * (Scalar(1) - u.rate() * decay);
}

std::pair<double, double> OptimizerPass::Betas() const {
  const std::vector<std::string> texts = option_list("betas");
  std::vector<double> betas;
  for (const std::string& text : texts) {
    const std::optional<double> beta = ParseDouble(text);
    if (beta && *beta >= 0 && *beta < 1) betas.push_back(*beta);
  }
  if (texts.size() == 2 && betas.size() == 2) return {betas[0], betas[1]};
  FailOption(StrCat("betas=", option("betas"), " are not two numbers in [0, 1)"),
             StrCat(name(), "{betas=[0.9, 0.999]}"));
}

void OptimizerPass::CheckNotNegative(std::string_view option_name) const {
  if (option_float(option_name) >= 0) return;
  FailOption(StrCat(option_name, " is ", option(option_name), "; it must be at least 0"));
}

void OptimizerPass::FailOption(std::string message, std::string hint) const {
  Error error(ErrorCode::kInvalidArgument, "optimizer/option", std::move(message));
  error.At(StrCat("pass '", name(), "'"));
  if (!hint.empty()) error.Hint(std::move(hint));
  throw error;
}

void OptimizerPass::ApplyImpl(Graph& graph) {
  TrainingStep step(*this, graph.program());
  step.Build();
  Count("updated", step.num_updated());
  MarkChanged();
}

void AddOptimizerOptions(PassRegistrar& pass, std::string rate, std::string weight_decay) {
  using Kind = PassOption::Kind;
  pass.Option("lr", Kind::kFloat, std::move(rate), "the learning rate")
      .Option("weight_decay", Kind::kFloat, std::move(weight_decay), "L2 penalty or decay")
      .Option("maximize", Kind::kBool, "false", "goes up the gradient")
      .Option("parameters", Kind::kStrings, "",
              "what is updated: names, `*` and `?` as in file names; empty: all with gradients")
      .Option("frozen", Kind::kStrings, "", "what is left as it is, though it has a gradient")
      .Option("groups", Kind::kStrings, "",
              "parameters with options of their own: [NAME{parameters=[*.bias],lr=0.1},...]")
      .Option("accumulate", Kind::kInt, "1",
              "runs for each update, which takes the mean of their gradients")
      .AtLeast(1)
      .Option("keep_gradients", Kind::kBool, "false", "gradients stay outputs of the program");
  AddClipOptions(pass);
  AddScheduleOptions(pass);
}

}  // namespace lathe
