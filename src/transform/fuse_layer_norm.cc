#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

/// v / sqrt(mean(v^2) + eps)
Pat DividedByRootMeanSquare(const Pat& v) {
  const Pat square = Either({Call("nn.pow", {v, Scalar(2)}), Call("nn.mul", {v, v})});
  const Pat mean = Call("nn.reduce_mean", {square, Const("axes")});
  const Pat root = Call("nn.sqrt", {Call("nn.add", {mean, Scalar("eps")})});
  const Pat inverse = Either({Call("nn.reciprocal", {root}), Call("nn.div", {Scalar(1), root})});
  return Either({Call("nn.div", {v, root}), Call("nn.mul", {v, inverse})});
}

bool OverTheLastDims(const RuleMatch& m) {
  return TrailingAxes(m.ints("axes"), m["x"]).has_value();
}

bool MeanOverTheSameDims(const RuleMatch& m) {
  return TrailingAxes(m.ints("mean_axes"), m["x"]) == TrailingAxes(m.ints("axes"), m["x"]);
}

Attribute Axis(const RuleMatch& m) {
  return IntAttribute::Get(m.context(), -*TrailingAxes(m.ints("axes"), m["x"]));
}

Attribute Epsilon(const RuleMatch& m) { return FloatAttribute::Get(m.context(), m.scalar("eps")); }

/// `name` varies along the normalized dims only.
Rule::Condition WithinNormalizedDims(const std::string& name) {
  return [name](const RuleMatch& m) {
    const auto axis = m.attribute("axis").dyn_cast<IntAttribute>();
    const std::optional<int64_t> rank = RankOf(m[name]), from = AxisFromFront(axis.value(), m["x"]);
    return rank && from && *rank <= *RankOf(m["x"]) - *from;
  };
}

Pat Normalization(const std::string& op, std::vector<Pat> operands) {
  return Call(op, std::move(operands)).Carry("axis").Carry("epsilon").Carry("stash_type");
}

/// A scale behind a normalization without one goes into it.
Rule ScaleRule(const std::string& name, const std::string& op) {
  return Rule(name)
      .Match(Call("nn.mul", {Normalization(op, {Var("x"), Scalar(1)}), Var("scale")}))
      .Where(WithinNormalizedDims("scale"), "the scale varies along the normalized dims only")
      .Replace(Normalization(op, {Var("x"), Var("scale")}));
}

}  // namespace

class FuseLayerNormPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override;
};

void FuseLayerNormPass::ApplyImpl(Graph& graph) {
  const std::string layer = "nn.layer_normalization", rms = "nn.rms_normalization";
  const Pat mean = Call("nn.reduce_mean", {Var("x"), Const("mean_axes")});
  const Pat centred = Call("nn.sub", {Var("x"), mean}).As("centred");
  std::vector<Rule> rules;
  rules.push_back(
      Rule("layer-norm", 3)
          .Match(DividedByRootMeanSquare(centred))
          .Where(OverTheLastDims, "the mean is over the last dims")
          .Where(MeanOverTheSameDims, "mean and variance are over the same dims")
          .Replace(Call(layer, {Var("x"), Scalar(1)}).Set("axis", Axis).Set("epsilon", Epsilon)));
  rules.push_back(
      Rule("rms-norm", 2)
          .Match(DividedByRootMeanSquare(Var("x")))
          .Where(OverTheLastDims, "the mean is over the last dims")
          .Replace(Call(rms, {Var("x"), Scalar(1)}).Set("axis", Axis).Set("epsilon", Epsilon)));
  rules.push_back(ScaleRule("layer-norm-scale", layer));
  rules.push_back(ScaleRule("rms-norm-scale", rms));
  rules.push_back(
      Rule("layer-norm-bias")
          .Match(Call("nn.add", {Normalization(layer, {Var("x"), Var("scale")}), Var("b")}))
          .Where(WithinNormalizedDims("b"), "the bias varies along the normalized dims only")
          .Replace(Normalization(layer, {Var("x"), Var("scale"), Var("b")})));
  ApplyRules(graph.program(), this, std::move(rules));
}

REGISTER_PASS(fuse_layer_norm, FuseLayerNormPass)
    .Doc(
        "recognises layer and RMS normalization in their decomposed forms, scale and bias "
        "included");

}  // namespace lathe
