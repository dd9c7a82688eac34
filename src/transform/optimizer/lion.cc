#include "lathe/dialect/nn/op_names.h"
#include "src/transform/optimizer/optimizer.h"

namespace lathe {

namespace {

class LionPass : public OptimizerPass {
 public:
  void CheckOptions() const override {
    for (const char* name : {"lr", "weight_decay"}) CheckNotNegative(name);
    (void)Betas();
  }

  void Update(ParameterUpdate& u) const override {
    const auto [beta1, beta2] = Betas();
    const nn::Term& g = u.gradient();
    const nn::Term m = u.State("exp_avg");
    const nn::Term direction = (m * beta1 + g * (1 - beta1)).Call(nn::kSign);
    u.SetParameter(DecayedParameter(u) - direction * u.rate());
    u.SetState("exp_avg", m * beta2 + g * (1 - beta2));
  }
};

[[maybe_unused]] const PassRegistrar kLionRegistration =
    RegisterOptimizer<LionPass>("lion", "0.0001", "0")
        .Doc("updates parameters by Lion, by the sign of a momentum")
        .Details(
            "(1 - lr weight_decay) p - lr sign(beta1 exp_avg + (1 - beta1) g); then exp_avg = "
            "beta2 "
            "exp_avg + (1 - beta2) g. Defaults are the paper's. State: `PARAMETER@lion.exp_avg`. "
            "Source: Chen et al., Symbolic Discovery of Optimization Algorithms, 2023.")
        .Option("betas", PassOption::Kind::kStrings, "[0.9, 0.99]",
                "what stays of the momentum for the direction, and for the next step");

}  // namespace

}  // namespace lathe
