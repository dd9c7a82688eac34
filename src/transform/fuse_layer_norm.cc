#include <algorithm>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/rule_words.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

Pat Squared(const Pat& v) {
  return Either({Call(nn::kPow, {v, Scalar(2)}), Call(nn::kMul, {v, v})});
}

Pat MeanOf(const Pat& v) { return Call(nn::kReduceMean, {v, Const("axes")}); }

/// sqrt(variance + eps), which others may read too, and 1 by it.
Pat Root(const Pat& variance) {
  const Pat sum = Call(nn::kAdd, {variance, Scalar("eps")});
  return Either({Call(nn::kSqrt, {sum}).Shared(), Call(nn::kPow, {sum, Scalar(0.5)}).Shared()});
}
Pat InverseRoot(const Pat& variance) {
  const Pat root = Root(variance);
  return Either(
      {Call(nn::kReciprocal, {root}).Shared(), Call(nn::kDiv, {Scalar(1), root}).Shared(),
       Call(nn::kPow, {Call(nn::kAdd, {variance, Scalar("eps")}), Scalar(-0.5)}).Shared()});
}

/// v / sqrt(variance + eps)
Pat DividedByRoot(const Pat& v, const Pat& variance) {
  return Either({Call(nn::kDiv, {v, Root(variance)}), Call(nn::kMul, {v, InverseRoot(variance)})});
}

/// E[x], E[(x - E[x])^2] or, unless `exact`, E[x^2] - E[x]^2, which may lose all digits; kept from
/// being negative perhaps.
Pat Mean() { return Call(nn::kReduceMean, {Var("x"), Const("mean_axes")}).As("mean").Shared(); }
Pat Centered() { return Call(nn::kSub, {Var("x"), Mean()}).As("centered"); }
Pat Variance(bool exact) {
  const Pat squares = MeanOf(Squared(Centered()));
  if (exact) return Either({squares, Call(nn::kRelu, {squares})});
  const Pat difference = Call(nn::kSub, {MeanOf(Squared(Var("x"))), Squared(Mean())});
  return Either({squares, difference, Call(nn::kRelu, {difference})});
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

/// An extent of 1 of x stays one.
bool KeepsExtents(const RuleMatch& m, const std::string& name) {
  const auto x = m["x"].type().cast<AnyTensorType>().dims();
  const auto other = m[name].type().cast<AnyTensorType>().dims();
  for (size_t i = 1; i <= std::min(x.size(), other.size()); ++i) {
    if (x[x.size() - i].IsConstant(1) && !other[other.size() - i].IsConstant(1)) return false;
  }
  return true;
}

/// `name` varies along the normalized dims only.
Rule::Condition WithinNormalizedDims(const std::string& name) {
  return [name](const RuleMatch& m) {
    const auto axis = m.attribute("axis").dyn_cast<IntAttribute>();
    const std::optional<int64_t> rank = RankOf(m[name]), from = AxisFromFront(axis.value(), m["x"]);
    if (!rank || !from || *rank > *RankOf(m["x"]) || !KeepsExtents(m, name)) return false;
    const auto dims = m[name].type().cast<AnyTensorType>().dims();
    const auto others = static_cast<size_t>(std::max<int64_t>(0, *rank - *RankOf(m["x"]) + *from));
    return std::all_of(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(others),
                       [](const Dim& d) { return d.IsConstant(1); });
  };
}

/// The same before there is an op whose axis could be asked.
Rule::Condition LastDimsOnly(const std::string& name) {
  return [name](const RuleMatch& m) {
    if (!m.Has(name)) return true;
    const std::optional<int64_t> rank = RankOf(m[name]);
    return rank && *rank <= *TrailingAxes(m.ints("axes"), m["x"]) && KeepsExtents(m, name);
  };
}

Pat Normalization(const std::string& op, std::vector<Pat> operands) {
  return Call(op, std::move(operands)).Carry("axis").Carry("epsilon").Carry("stash_type");
}

/// A scale behind a normalization without one goes into it.
Rule ScaleRule(const std::string& name, const std::string& op) {
  return Rule(name)
      .Match(Call(nn::kMul, {Normalization(op, {Var("x"), Scalar(1)}), Var("scale")}))
      .Where(WithinNormalizedDims("scale"), "the scale varies along the normalized dims only")
      .Replace(Normalization(op, {Var("x"), Var("scale")}));
}

/// The scale where frameworks fold it into what x is multiplied by: (x - E[x]) k + b, and
/// x k + (b - E[x] k), with k = scale / sqrt(variance + eps).
void AddFolded(std::vector<Rule>& rules, const std::string& op, bool exact) {
  const Pat folded = Call(nn::kMul, {InverseRoot(Variance(exact)), Var("scale")}).As("k");
  const Pat shift = Call(nn::kSub, {Var("b"), Call(nn::kMul, {Mean(), folded})});
  const auto finish = [](Rule rule) {
    return std::move(rule)
        .Where(OverTheLastDims, "the mean is over the last dims")
        .Where(MeanOverTheSameDims, "mean and variance are over the same dims")
        .Where(LastDimsOnly("scale"), "the scale varies along the normalized dims only")
        .Where(LastDimsOnly("b"), "the bias varies along the normalized dims only");
  };
  rules.push_back(finish(Rule("layer-norm-shifted", 4)
                             .Match(Call(nn::kAdd, {Call(nn::kMul, {Var("x"), folded}), shift})))
                      .Replace(Call(op, {Var("x"), Var("scale"), Var("b")})
                                   .Set("axis", Axis)
                                   .Set("epsilon", Epsilon)));
  rules.push_back(
      finish(Rule("layer-norm-folded", 4).Match(Call(nn::kMul, {Centered(), folded})))
          .Replace(Call(op, {Var("x"), Var("scale")}).Set("axis", Axis).Set("epsilon", Epsilon)));
}

/// Computed in floats and rounded back: that is what the op does.
Rule InFloats(const std::string& op) {
  const auto same_type = [](const RuleMatch& m) {
    return ElementOf(m["x"]) == ElementOf(m.root()->result(0)) &&
           BitWidth(ElementOf(m["x"])) < BitWidth(ElementOf(m["wide"]));
  };
  return Rule(op.substr(3) + "-in-floats")
      .Match(Call(nn::kCast,
                  {Normalization(
                      op, {Call(nn::kCast, {Var("x")}).AnyAttributes().As("wide"), Scalar(1)})})
                 .AnyAttributes())
      .Where(same_type, "the result is rounded to the type of x")
      .Replace(Normalization(op, {Var("x"), Scalar(1)}));
}

}  // namespace

class FuseLayerNormPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override;
};

void FuseLayerNormPass::ApplyImpl(Graph& graph) {
  const std::string layer = nn::kLayerNormalization, rms = nn::kRmsNormalization;
  std::vector<Rule> rules;
  const bool exact = option_bool("exact");
  AddFolded(rules, layer, exact);
  rules.push_back(
      Rule("layer-norm", 3)
          .Match(DividedByRoot(Centered(), Variance(exact)))
          .Where(OverTheLastDims, "the mean is over the last dims")
          .Where(MeanOverTheSameDims, "mean and variance are over the same dims")
          .Replace(Call(layer, {Var("x"), Scalar(1)}).Set("axis", Axis).Set("epsilon", Epsilon)));
  rules.push_back(
      Rule("rms-norm", 2)
          .Match(DividedByRoot(Var("x"), MeanOf(Squared(Var("x")))))
          .Where(OverTheLastDims, "the mean is over the last dims")
          .Replace(Call(rms, {Var("x"), Scalar(1)}).Set("axis", Axis).Set("epsilon", Epsilon)));
  for (const std::string& op : {layer, rms}) {
    rules.push_back(InFloats(op));
    rules.push_back(ScaleRule(op == layer ? "layer-norm-scale" : "rms-norm-scale", op));
  }
  rules.push_back(
      Rule("layer-norm-bias")
          .Match(Call(nn::kAdd, {Normalization(layer, {Var("x"), Var("scale")}), Var("b")}))
          .Where(WithinNormalizedDims("b"), "the bias varies along the normalized dims only")
          .Replace(Normalization(layer, {Var("x"), Var("scale"), Var("b")})));
  ApplyRules(graph.program(), this, std::move(rules));
}

REGISTER_PASS(fuse_layer_norm, FuseLayerNormPass)
    .Doc(
        "recognizes layer and RMS normalization in their decomposed forms, scale and bias "
        "included")
    .Details(
        "The variance as E[(x - E[x])^2] or E[x^2] - E[x]^2; the scale as a product behind the "
        "norm or folded into what x is multiplied by; in halves computed in floats. Mean and root "
        "may have other readers and then stay.")
    .Option("exact", PassOption::Kind::kBool, "false",
            "only rules that are true in floating point up to rounding");

}  // namespace lathe
