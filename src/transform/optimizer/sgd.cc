#include "src/transform/optimizer/optimizer.h"

namespace lathe {

namespace {

class SgdPass : public OptimizerPass {
 public:
  void CheckOptions() const override {
    for (const char* name : {"lr", "momentum", "weight_decay"}) CheckNotNegative(name);
    if (!option_bool("nesterov")) return;
    if (option_float("momentum") > 0 && option_float("dampening") == 0) return;
    FailOption("nesterov needs a momentum and no dampening", "sgd{momentum=0.9,nesterov=true}");
  }

  void Update(ParameterUpdate& u) const override {
    const double momentum = option_float("momentum");
    nn::Term g = Decayed(u);
    if (momentum != 0) {
      // First with every compiler: operands of + have no order.
      const nn::Term added = Undamped(u, g);
      const nn::Term buffer = u.State("momentum_buffer") * momentum + added;
      u.SetState("momentum_buffer", buffer);
      g = option_bool("nesterov") ? g + buffer * momentum : buffer;
    }
    u.SetParameter(u.parameter() - g * u.rate());
  }

 private:
  /// What the gradient adds to the buffer: all of it the first time, then 1 - dampening.
  nn::Term Undamped(const ParameterUpdate& u, const nn::Term& g) const {
    const double dampening = option_float("dampening");
    if (dampening == 0) return g;
    return g * IfLess(1, u.step(), 1 - dampening, 1);
  }
};

[[maybe_unused]] const PassRegistrar kSgdRegistration =
    RegisterOptimizer<SgdPass>("sgd", "0.001", "0")
        .Doc("updates parameters by stochastic gradient descent, with momentum or Nesterov's")
        .Details(
            "g = gradient + weight_decay p; buffer = momentum buffer + (1 - dampening) g, the "
            "first "
            "time g; p - lr buffer, with nesterov p - lr (g + momentum buffer). Semantics and "
            "defaults are torch.optim.SGD's. State: `PARAMETER@sgd.momentum_buffer`. Source: "
            "Sutskever et al., On the Importance of Initialization and Momentum, 2013.")
        .Option("momentum", PassOption::Kind::kFloat, "0", "the share of the buffer that stays")
        .Option("dampening", PassOption::Kind::kFloat, "0", "the share of g that is left out")
        .Option("nesterov", PassOption::Kind::kBool, "false", "looks ahead by one step");

}  // namespace

}  // namespace lathe
