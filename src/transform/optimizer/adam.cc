#include "lathe/dialect/nn/op_names.h"
#include "src/dialect/nn/grad_util.h"
#include "src/transform/optimizer/optimizer.h"

namespace lathe {

namespace {

class AdamPass : public OptimizerPass {
 public:
  void CheckOptions() const override {
    for (const char* name : {"lr", "eps", "weight_decay"}) CheckNotNegative(name);
    (void)Betas();
  }

  void Update(ParameterUpdate& u) const override { Step(u, u.parameter(), Decayed(u)); }

 protected:
  /// From parameter and gradient as decay has left them. The operations stand in the order of
  /// torch.optim.Adam's single-tensor form.
  void Step(ParameterUpdate& u, const nn::Term& p, const nn::Term& g) const {
    const auto [beta1, beta2] = Betas();
    const nn::Term m = u.State("exp_avg") * beta1 + g * (1 - beta1);
    const nn::Term v = u.State("exp_avg_sq") * beta2 + g * g * (1 - beta2);
    u.SetState("exp_avg", m);
    u.SetState("exp_avg_sq", v);
    const Scalar step_size = u.rate() / (Scalar(1) - Pow(beta1, u.step()));
    const Scalar correction = Sqrt(Scalar(1) - Pow(beta2, u.step()));
    const nn::Term denominator = nn::Sqrt(Largest(u, v)) / correction + option_float("eps");
    u.SetParameter(p - m / denominator * step_size);
  }

 private:
  /// With amsgrad, the largest second moment so far.
  nn::Term Largest(ParameterUpdate& u, const nn::Term& v) const {
    if (!option_bool("amsgrad")) return v;
    const nn::Term largest = u.State("max_exp_avg_sq").Call(nn::kMax, {v});
    u.SetState("max_exp_avg_sq", largest);
    return largest;
  }
};

class AdamWPass : public AdamPass {
 public:
  void Update(ParameterUpdate& u) const override { Step(u, DecayedParameter(u), u.gradient()); }
};

template <class Rule>
PassRegistrar RegisterAdam(const char* name, const char* weight_decay) {
  using Kind = PassOption::Kind;
  return RegisterOptimizer<Rule>(name, "0.001", weight_decay)
      .Option("betas", Kind::kStrings, "[0.9, 0.999]", "what stays of the two moments")
      .Option("eps", Kind::kFloat, "1e-8", "is added to the divisor")
      .Option("amsgrad", Kind::kBool, "false", "divides by the largest second moment so far");
}

[[maybe_unused]] const PassRegistrar kAdam =
    RegisterAdam<AdamPass>("adam", "0")
        .Doc("updates parameters by Adam")
        .Details(
            "g = gradient + weight_decay p; exp_avg = beta1 exp_avg + (1 - beta1) g; exp_avg_sq = "
            "beta2 exp_avg_sq + (1 - beta2) g g; p - lr / (1 - beta1^t) exp_avg / "
            "(sqrt(exp_avg_sq) "
            "/ sqrt(1 - beta2^t) + eps). Semantics and defaults are torch.optim.Adam's. State: "
            "`PARAMETER@adam.exp_avg`, `exp_avg_sq` and with amsgrad `max_exp_avg_sq`. Source: "
            "Kingma and Ba, Adam, 2015.");

[[maybe_unused]] const PassRegistrar kAdamW =
    RegisterAdam<AdamWPass>("adamw", "0.01")
        .Doc("updates parameters by Adam with decoupled weight decay")
        .Details(
            "Adam's rule for g = gradient and (1 - lr weight_decay) p. Semantics and defaults are "
            "torch.optim.AdamW's. State: `PARAMETER@adamw.exp_avg`, `exp_avg_sq` and with amsgrad "
            "`max_exp_avg_sq`. Source: Loshchilov and Hutter, Decoupled Weight Decay "
            "Regularization, 2019.");

}  // namespace

}  // namespace lathe
