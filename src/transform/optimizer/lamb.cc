#include "lathe/dialect/nn/op_names.h"
#include "src/transform/optimizer/optimizer.h"

namespace lathe {

namespace {

class LambPass : public OptimizerPass {
 public:
  void CheckOptions() const override {
    for (const char* name : {"lr", "eps", "weight_decay"}) CheckNotNegative(name);
    (void)Betas();
  }

  void Update(ParameterUpdate& u) const override {
    const auto [beta1, beta2] = Betas();
    const nn::Term& g = u.gradient();
    const nn::Term& p = u.parameter();
    const nn::Term m = u.State("exp_avg") * beta1 + g * (1 - beta1);
    const nn::Term v = u.State("exp_avg_sq") * beta2 + g * g * (1 - beta2);
    u.SetState("exp_avg", m);
    u.SetState("exp_avg_sq", v);
    const nn::Term mean = m / (Scalar(1) - Pow(beta1, u.step()));
    const nn::Term square = v / (Scalar(1) - Pow(beta2, u.step()));
    nn::Term r = mean / (nn::Sqrt(square) + option_float("eps"));
    if (const double decay = option_float("weight_decay"); decay != 0) r = r + p * decay;
    u.SetParameter(p - r * TrustRatio(u.Norm(p), u.Norm(r)) * u.rate());
  }

 private:
  /// 1 where either norm is 0.
  static nn::Term TrustRatio(const nn::Term& parameter, const nn::Term& step) {
    const nn::Term zero = step.Number(0), one = step.Number(1);
    const nn::Term ratio = Where(zero.Call(nn::kLess, {step}), parameter / step, one);
    return Where(zero.Call(nn::kLess, {parameter}), ratio, one);
  }
};

[[maybe_unused]] const PassRegistrar kLambRegistration =
    RegisterOptimizer<LambPass>("lamb", "0.001", "0.01")
        .Doc("updates parameters by LAMB, layerwise adaptive moments for large batches")
        .Details(
            "exp_avg and exp_avg_sq as Adam's, m and v these without bias; r = m / (sqrt(v) + eps) "
            "+ weight_decay p; p - lr |p| / |r| r, with 1 for the quotient where a norm is 0. "
            "State: "
            "`PARAMETER@lamb.exp_avg`, `exp_avg_sq`. Source: You et al., Large Batch Optimization "
            "for Deep Learning, 2020.")
        .Option("betas", PassOption::Kind::kStrings, "[0.9, 0.999]", "what stays of the moments")
        .Option("eps", PassOption::Kind::kFloat, "1e-6", "is added to the divisor");

}  // namespace

}  // namespace lathe
