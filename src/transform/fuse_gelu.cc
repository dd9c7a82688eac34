#include <cmath>
#include <numbers>

#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

/// x * 1/2 * factor, associated in any way.
Pat HalfOf(const Pat& factor) {
  const Pat x = Var("x"), half = Scalar(0.5);
  return Either({Call("nn.mul", {Call("nn.mul", {x, factor}), half}),
                 Call("nn.mul", {Call("nn.mul", {x, half}), factor}),
                 Call("nn.mul", {Call("nn.mul", {factor, half}), x})});
}

/// erf(x / sqrt(2))
Pat Erf() {
  const Pat scaled = Either({Call("nn.div", {Var("x"), Scalar(std::numbers::sqrt2)}),
                             Call("nn.mul", {Var("x"), Scalar(1 / std::numbers::sqrt2)})});
  return Call("nn.erf", {scaled});
}

/// factor * sqrt(2 / pi) * (x + 0.044715 * x^3), also with one x taken out of the sum.
Pat TanhAngle(double factor) {
  const double k = factor * std::sqrt(2 / std::numbers::pi), c = 0.044715;
  const Pat x = Var("x");
  const Pat square = Either({Call("nn.mul", {x, x}), Call("nn.pow", {x, Scalar(2)})});
  const Pat cube = Either({Call("nn.pow", {x, Scalar(3)}), Call("nn.mul", {square, x})});
  const Pat scaled_cube = Either({Call("nn.mul", {cube, Scalar(c)}),
                                  Call("nn.mul", {Call("nn.mul", {square, Scalar(c)}), x}),
                                  Call("nn.mul", {Call("nn.mul", {x, Scalar(c)}), square})});
  const Pat sum = Call("nn.add", {x, scaled_cube});
  const Pat scaled_square = Either(
      {Call("nn.mul", {square, Scalar(c)}), Call("nn.mul", {Call("nn.mul", {x, Scalar(c)}), x})});
  const Pat slope = Call("nn.add", {scaled_square, Scalar(1)});
  return Either({Call("nn.mul", {sum, Scalar(k)}),
                 Call("nn.mul", {Call("nn.mul", {x, Scalar(k)}), slope}),
                 Call("nn.mul", {Call("nn.mul", {slope, Scalar(k)}), x})});
}

/// x * f with f = 1/2 + g/2, multiplied out.
Pat HalfOfEach(const Pat& g) {
  return Call("nn.mul",
              {Var("x"), Call("nn.add", {Call("nn.mul", {g, Scalar(0.5)}), Scalar(0.5)})});
}

}  // namespace

class FuseGeluPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Rule> rules;
    const Pat erf = Erf(), tanh = Call("nn.tanh", {TanhAngle(1)});
    rules.push_back(Rule("gelu-erf")
                        .Match(HalfOf(Call("nn.add", {erf, Scalar(1)})))
                        .Match(HalfOfEach(erf))
                        .Replace(Call("nn.gelu", {Var("x")})));
    rules.push_back(Rule("gelu-tanh")
                        .Match(HalfOf(Call("nn.add", {tanh, Scalar(1)})))
                        .Match(HalfOfEach(tanh))
                        .Match(Call("nn.mul", {Var("x"), Call("nn.sigmoid", {TanhAngle(2)})}))
                        .Replace(Call("nn.gelu", {Var("x")}).With("approximate", "tanh")));
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(fuse_gelu, FuseGeluPass)
    .Doc("recognizes gelu in its erf and tanh forms and makes it one nn.gelu")
    .Details(
        "Halves and factors associated in any way, x taken out of the sum or not, and the tanh "
        "form by way of a sigmoid. Quick gelu is a swish: see fuse_activation.");

}  // namespace lathe
