#include "src/transform/optimizer/optimizer.h"

namespace lathe {

namespace {

class AdagradPass : public OptimizerPass {
 public:
  void CheckOptions() const override {
    for (const char* name :
         {"lr", "eps", "weight_decay", "lr_decay", "initial_accumulator_value"}) {
      CheckNotNegative(name);
    }
  }

  void Update(ParameterUpdate& u) const override {
    const nn::Term g = Decayed(u);
    const nn::Term sum = u.State("sum", option_float("initial_accumulator_value")) + g * g;
    u.SetState("sum", sum);
    const Scalar rate = Decay(u);
    u.SetParameter(u.parameter() - g / (nn::Sqrt(sum) + option_float("eps")) * rate);
  }

 private:
  Scalar Decay(const ParameterUpdate& u) const {
    const double decay = option_float("lr_decay");
    return decay == 0 ? u.rate() : u.rate() / (Scalar(1) + (u.step() - 1) * decay);
  }
};

[[maybe_unused]] const PassRegistrar kAdagradRegistration =
    RegisterOptimizer<AdagradPass>("adagrad", "0.01", "0")
        .Doc("updates parameters by Adagrad")
        .Details(
            "g = gradient + weight_decay p; sum = sum + g g; p - lr / (1 + (t - 1) lr_decay) g / "
            "(sqrt(sum) + eps). Semantics and defaults are torch.optim.Adagrad's. State: "
            "`PARAMETER@adagrad.sum`. Source: Duchi et al., Adaptive Subgradient Methods, 2011.")
        .Option("lr_decay", PassOption::Kind::kFloat, "0", "how fast the rate falls")
        .Option("initial_accumulator_value", PassOption::Kind::kFloat, "0", "the first sum")
        .Option("eps", PassOption::Kind::kFloat, "1e-10", "is added to the divisor");

}  // namespace

}  // namespace lathe
