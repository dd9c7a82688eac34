#include <cmath>
#include <numbers>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

/// x * 1/2 * factor, associated in any way.
Pat HalfOf(const Pat& factor) {
  const Pat x = Var("x"), half = Scalar(0.5);
  return Either({Call(nn::kMul, {Call(nn::kMul, {x, factor}), half}),
                 Call(nn::kMul, {Call(nn::kMul, {x, half}), factor}),
                 Call(nn::kMul, {Call(nn::kMul, {factor, half}), x})});
}

/// erf(x / sqrt(2))
Pat Erf() {
  const Pat scaled = Either({Call(nn::kDiv, {Var("x"), Scalar(std::numbers::sqrt2)}),
                             Call(nn::kMul, {Var("x"), Scalar(1 / std::numbers::sqrt2)})});
  return Call(nn::kErf, {scaled});
}

/// factor * sqrt(2 / pi) * (x + 0.044715 * x^3), also with one x taken out of the sum.
Pat TanhAngle(double factor) {
  const double k = factor * std::sqrt(2 / std::numbers::pi), c = 0.044715;
  const Pat x = Var("x");
  const Pat square = Either({Call(nn::kMul, {x, x}), Call(nn::kPow, {x, Scalar(2)})});
  const Pat cube = Either({Call(nn::kPow, {x, Scalar(3)}), Call(nn::kMul, {square, x})});
  const Pat scaled_cube = Either({Call(nn::kMul, {cube, Scalar(c)}),
                                  Call(nn::kMul, {Call(nn::kMul, {square, Scalar(c)}), x}),
                                  Call(nn::kMul, {Call(nn::kMul, {x, Scalar(c)}), square})});
  const Pat sum = Call(nn::kAdd, {x, scaled_cube});
  const Pat scaled_square = Either(
      {Call(nn::kMul, {square, Scalar(c)}), Call(nn::kMul, {Call(nn::kMul, {x, Scalar(c)}), x})});
  const Pat slope = Call(nn::kAdd, {scaled_square, Scalar(1)});
  return Either({Call(nn::kMul, {sum, Scalar(k)}),
                 Call(nn::kMul, {Call(nn::kMul, {x, Scalar(k)}), slope}),
                 Call(nn::kMul, {Call(nn::kMul, {slope, Scalar(k)}), x})});
}

/// x * f with f = 1/2 + g/2, multiplied out.
Pat HalfOfEach(const Pat& g) {
  return Call(nn::kMul,
              {Var("x"), Call(nn::kAdd, {Call(nn::kMul, {g, Scalar(0.5)}), Scalar(0.5)})});
}

}  // namespace

class FuseGeluPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Rule> rules;
    const Pat erf = Erf(), tanh = Call(nn::kTanh, {TanhAngle(1)});
    rules.push_back(Rule("gelu-erf")
                        .Match(HalfOf(Call(nn::kAdd, {erf, Scalar(1)})))
                        .Match(HalfOfEach(erf))
                        .Replace(Call(nn::kGelu, {Var("x")})));
    rules.push_back(Rule("gelu-tanh")
                        .Match(HalfOf(Call(nn::kAdd, {tanh, Scalar(1)})))
                        .Match(HalfOfEach(tanh))
                        .Match(Call(nn::kMul, {Var("x"), Call(nn::kSigmoid, {TanhAngle(2)})}))
                        .Replace(Call(nn::kGelu, {Var("x")}).With("approximate", "tanh")));
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(fuse_gelu, FuseGeluPass)
    .Doc("recognizes gelu in its erf and tanh forms and makes it one nn.gelu")
    .Details(
        "Halves and factors associated in any way, x taken out of the sum or not, and the tanh "
        "form by way of a sigmoid. Quick gelu is a swish: see fuse_activation.");

}  // namespace lathe
