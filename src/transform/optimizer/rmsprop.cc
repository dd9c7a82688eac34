#include "src/transform/optimizer/optimizer.h"

namespace lathe {

namespace {

class RmsPropPass : public OptimizerPass {
 public:
  void CheckOptions() const override {
    for (const char* name : {"lr", "eps", "weight_decay", "momentum", "alpha"}) {
      CheckNotNegative(name);
    }
  }

  void Update(ParameterUpdate& u) const override {
    const double momentum = option_float("momentum");
    const nn::Term g = Decayed(u);
    const nn::Term quotient = g / (nn::Sqrt(Variance(u, g)) + option_float("eps"));
    if (momentum == 0) return u.SetParameter(u.parameter() - quotient * u.rate());
    const nn::Term buffer = u.State("momentum_buffer") * momentum + quotient;
    u.SetState("momentum_buffer", buffer);
    u.SetParameter(u.parameter() - buffer * u.rate());
  }

 private:
  nn::Term Variance(ParameterUpdate& u, const nn::Term& g) const {
    const double alpha = option_float("alpha");
    const nn::Term square = u.State("square_avg") * alpha + g * g * (1 - alpha);
    u.SetState("square_avg", square);
    if (!option_bool("centered")) return square;
    const nn::Term mean = u.State("grad_avg") * alpha + g * (1 - alpha);
    u.SetState("grad_avg", mean);
    return square - mean * mean;
  }
};

[[maybe_unused]] const PassRegistrar kRmsPropRegistration =
    RegisterOptimizer<RmsPropPass>("rmsprop", "0.01", "0")
        .Doc("updates parameters by RMSProp")
        .Details(
            "g = gradient + weight_decay p; square_avg = alpha square_avg + (1 - alpha) g g; d = "
            "sqrt(square_avg), with centered sqrt(square_avg - grad_avg^2); q = g / (d + eps); "
            "buffer = momentum buffer + q; p - lr buffer. Semantics and defaults are "
            "torch.optim.RMSprop's. State: `PARAMETER@rmsprop.square_avg`, with centered "
            "`grad_avg`, with a momentum `momentum_buffer`. Source: Graves, Generating Sequences "
            "With Recurrent Neural Networks, 2013.")
        .Option("alpha", PassOption::Kind::kFloat, "0.99", "what stays of the averages")
        .Option("eps", PassOption::Kind::kFloat, "1e-8", "is added to the divisor")
        .Option("momentum", PassOption::Kind::kFloat, "0", "the share of the buffer that stays")
        .Option("centered", PassOption::Kind::kBool, "false", "divides by the standard deviation");

}  // namespace

}  // namespace lathe
