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

/// 1 + erf(x / sqrt(2))
Pat ErfFactor() {
  const Pat scaled = Either({Call("nn.div", {Var("x"), Scalar(std::numbers::sqrt2)}),
                             Call("nn.mul", {Var("x"), Scalar(1 / std::numbers::sqrt2)})});
  return Call("nn.add", {Call("nn.erf", {scaled}), Scalar(1)});
}

/// 1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)), also with one x taken out of the sum.
Pat TanhFactor() {
  const double k = std::sqrt(2 / std::numbers::pi), c = 0.044715;
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
  const Pat angle = Either({Call("nn.mul", {sum, Scalar(k)}),
                            Call("nn.mul", {Call("nn.mul", {x, Scalar(k)}), slope}),
                            Call("nn.mul", {Call("nn.mul", {slope, Scalar(k)}), x})});
  return Call("nn.add", {Call("nn.tanh", {angle}), Scalar(1)});
}

}  // namespace

class FuseGeluPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Rule> rules;
    rules.push_back(
        Rule("gelu-erf").Match(HalfOf(ErfFactor())).Replace(Call("nn.gelu", {Var("x")})));
    rules.push_back(Rule("gelu-tanh")
                        .Match(HalfOf(TanhFactor()))
                        .Replace(Call("nn.gelu", {Var("x")}).With("approximate", "tanh")));
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(fuse_gelu, FuseGeluPass)
    .Doc("recognises gelu in its erf and tanh forms and makes it one nn.gelu");

}  // namespace lathe
