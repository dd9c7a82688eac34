#include <algorithm>
#include <cmath>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/rule_words.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

Attribute Number(const RuleMatch& m, double value) {
  return FloatAttribute::Get(m.context(), value);
}
auto ScalarOf(const char* name) {
  return [name](const RuleMatch& m) { return Number(m, m.scalar(name)); };
}

/// `negative` where x is negative, else `other`; at zero both are the same, NaN goes to `other`.
Pat WhereNegative(const Pat& x, const Pat& negative, const Pat& other) {
  const Pat zero = Scalar(0);
  return Either({Call(nn::kWhere, {Call(nn::kLess, {x, zero}), negative, other}),
                 Call(nn::kWhere, {Call(nn::kLessOrEqual, {x, zero}), negative, other}),
                 Call(nn::kWhere, {Call(nn::kGreater, {zero, x}), negative, other})});
}

/// The same for branches that both make NaN of NaN.
Pat BySign(const Pat& x, const Pat& negative, const Pat& other) {
  const Pat zero = Scalar(0);
  return Either({WhereNegative(x, negative, other),
                 Call(nn::kWhere, {Call(nn::kGreaterOrEqual, {x, zero}), other, negative}),
                 Call(nn::kWhere, {Call(nn::kGreater, {x, zero}), other, negative}),
                 Call(nn::kWhere, {Call(nn::kLess, {zero, x}), other, negative})});
}

Rule Recognize(const std::string& name, Pat source, Pat result, int benefit = 1) {
  return Rule(name, benefit).Match(std::move(source)).Replace(std::move(result));
}

// ---- relu, clip ----

/// The bound as a scalar of rank 0.
Value Bound(const RuleMatch& m, Rewriter& rewriter, const char* name) {
  if (!m.Has(name) || RankOf(m[name]) == 0) return m[name];
  return rewriter.Constant(m.constant(name).Reshaped({}));
}

Value MakeClip(const RuleMatch& m, Rewriter& rewriter) {
  std::vector<Value> operands{m["x"], Bound(m, rewriter, "lo"), Bound(m, rewriter, "hi")};
  while (!operands.back()) operands.pop_back();
  return rewriter.Create(nn::kClip, operands)->result(0);
}

bool BoundsInOrder(const RuleMatch& m) { return m.scalar("lo") <= m.scalar("hi"); }

Pat ScalarBound(const std::string& name) {
  return Var(name).If([](Value v) { return RankOf(v) == 0; }, "a bound is a scalar");
}

/// Bounds in either order, relu among them; with a bound that is computed, one at a time.
void AddClip(std::vector<Rule>& rules) {
  const Pat x = Var("x"), lo = Scalar("lo"), hi = Scalar("hi");
  const auto at_least = [](const Pat& v, const Pat& bound) {
    return Call(nn::kMax, {v, bound}).Commutes();
  };
  const auto at_most = [](const Pat& v, const Pat& bound) {
    return Call(nn::kMin, {v, bound}).Commutes();
  };
  const Pat low = ScalarBound("lo"), high = ScalarBound("hi");
  rules.push_back(Rule("clip-max-min")
                      .Match(at_most(at_least(x, lo), hi))
                      .Match(at_most(at_least(x, low), high))
                      .Replace(Rule::Maker(MakeClip)));
  rules.push_back(Rule("clip-min-max")
                      .Match(at_least(at_most(x, hi), lo))
                      .Where(BoundsInOrder, "the lower bound is not above the upper one")
                      .Replace(Rule::Maker(MakeClip)));
  rules.push_back(Rule("clip-below")
                      .Match(Call(nn::kWhere, {Call(nn::kLess, {x, low}), low, x}))
                      .Match(Call(nn::kWhere, {Call(nn::kGreater, {low, x}), low, x}))
                      .Replace(Rule::Maker(MakeClip)));
  rules.push_back(Rule("clip-above")
                      .Match(Call(nn::kWhere, {Call(nn::kLess, {high, x}), high, x}))
                      .Match(Call(nn::kWhere, {Call(nn::kGreater, {x, high}), high, x}))
                      .Replace(Rule::Maker(MakeClip)));
  rules.push_back(
      Rule("clip-of-clip")
          .Match(Call(nn::kClip, {Call(nn::kClip, {x, Var("lo")}), Absent(), Var("hi")}))
          .Replace(Rule::Maker(MakeClip)));
}

/// Bounds with relu: relu is a clip from 0.
void AddReluClip(std::vector<Rule>& rules) {
  const Pat x = Float("x");
  rules.push_back(Recognize("relu-max", Call(nn::kMax, {x, Scalar(0)}).Commutes(),
                            Call(nn::kRelu, {Var("x")})));
  rules.push_back(
      Recognize("relu-where", WhereNegative(x, Scalar(0), x), Call(nn::kRelu, {Var("x")})));
  const auto from_zero = [](const RuleMatch& m, Rewriter& rewriter) {
    const ElementType type = ElementOf(m["x"]);
    const double low = std::max(0.0, m.Has("lo") ? m.scalar("lo") : 0.0);
    std::vector<Value> operands{m["x"], rewriter.Constant(Cast(Tensor::Scalar<double>(low), type)),
                                Bound(m, rewriter, "hi")};
    if (!operands.back()) operands.pop_back();
    return rewriter.Create(nn::kClip, operands)->result(0);
  };
  rules.push_back(Rule("clip-relu-min")
                      .Match(Call(nn::kMin, {Call(nn::kRelu, {x}), Scalar("hi")}).Commutes())
                      .Where([](const RuleMatch& m) { return m.scalar("hi") >= 0; },
                             "the upper bound is not negative")
                      .Replace(Rule::Maker(from_zero)));
  rules.push_back(
      Rule("clip-of-relu")
          .Match(Call(nn::kClip, {Call(nn::kRelu, {x}), Either({Scalar("lo"), Absent()}),
                                  Either({ScalarBound("hi"), Absent()})}))
          .Replace(Rule::Maker(from_zero)));
}

// ---- sigmoid and what multiplies by it ----

void AddSigmoid(std::vector<Rule>& rules) {
  const Pat x = Float("x");
  const Pat one_more = Call(nn::kAdd, {Call(nn::kExp, {Call(nn::kNeg, {x})}), Scalar(1)});
  rules.push_back(Rule("sigmoid")
                      .Match(Call(nn::kReciprocal, {one_more}))
                      .Match(Call(nn::kDiv, {Scalar(1), one_more}))
                      .Replace(Call(nn::kSigmoid, {Var("x")})));
  rules.push_back(
      Recognize("silu-div", Call(nn::kDiv, {x, one_more}), Call(nn::kSwish, {Var("x")})));
  rules.push_back(Recognize("silu", Call(nn::kMul, {x, Call(nn::kSigmoid, {x})}),
                            Call(nn::kSwish, {Var("x")})));
  const Pat times = Call(nn::kSigmoid, {Call(nn::kMul, {x, Scalar("alpha")})});
  rules.push_back(Recognize("swish", Call(nn::kMul, {x, times}),
                            Call(nn::kSwish, {Var("x")}).Set("alpha", ScalarOf("alpha")), 2));
}

// ---- hard sigmoid, hard swish ----

bool ClippedToOne(const RuleMatch& m) { return m.scalar("lo") == 0 && m.scalar("hi") == 1; }

void AddHardSigmoid(std::vector<Rule>& rules) {
  const Pat x = Float("x");
  const Pat scaled =
      Either({Call(nn::kMul, {x, Scalar("alpha")}), Call(nn::kDiv, {x, Scalar("divisor")})});
  const Pat line = Call(nn::kAdd, {scaled, Scalar("beta")});
  const auto alpha = [](const RuleMatch& m) {
    return Number(m, m.Has("alpha") ? m.scalar("alpha") : 1 / m.scalar("divisor"));
  };
  rules.push_back(Rule("hard-sigmoid")
                      .Match(Call(nn::kClip, {line, Scalar("lo"), Scalar("hi")}))
                      .Where(ClippedToOne, "it is clipped to [0, 1]")
                      .Replace(Call(nn::kHardSigmoid, {Var("x")})
                                   .Set("alpha", alpha)
                                   .Set("beta", ScalarOf("beta"))));
  const Pat clipped =
      Call(nn::kClip, {Call(nn::kAdd, {x, Scalar(3)}), Scalar(0), Scalar(6)}).As("clipped");
  const Pat sixth = Scalar(1.0 / 6);
  rules.push_back(
      Rule("hard-sigmoid-relu6")
          .Match(Call(nn::kDiv, {clipped, Scalar(6)}))
          .Match(Call(nn::kMul, {clipped, sixth}))
          .Replace(Call(nn::kHardSigmoid, {Var("x")}).With("alpha", 1.0 / 6).With("beta", 0.5)));
  const Pat product = Call(nn::kMul, {x, clipped});
  rules.push_back(Rule("hard-swish-relu6")
                      .Match(Call(nn::kDiv, {product, Scalar(6)}))
                      .Match(Call(nn::kMul, {product, sixth}))
                      .Replace(Call(nn::kHardSwish, {Var("x")})));
  const auto is = [](double value) {
    return [value](Attribute a) {
      const auto number = a.dyn_cast<FloatAttribute>();
      return number && std::abs(number.value() - value) < 1e-8;
    };
  };
  rules.push_back(Recognize("hard-swish",
                            Call(nn::kMul, {x, Call(nn::kHardSigmoid, {x})
                                                   .WithIf("alpha", is(1.0 / 6), "1/6")
                                                   .WithIf("beta", is(0.5), "1/2")}),
                            Call(nn::kHardSwish, {Var("x")})));
}

// ---- softplus, softsign, mish ----

/// log(e^x + 1), which is infinite where e^x is and nn.softplus is not.
Pat LogOfOneMore(const Pat& x) {
  return Call(nn::kLog, {Call(nn::kAdd, {Call(nn::kExp, {x}), Scalar(1)})});
}
/// The same as decompositions write it, which keeps the digits of a small e^x.
Pat AccurateLogOfOneMore(const Pat& x) {
  const Pat exp = Call(nn::kExp, {x});
  const Pat sum = Call(nn::kAdd, {exp, Scalar(1)});
  const Pat quotient = Call(nn::kDiv, {exp, Call(nn::kSub, {sum, Scalar(1)})});
  return Call(nn::kWhere, {Call(nn::kEqual, {sum, Scalar(1)}), exp,
                           Call(nn::kMul, {Call(nn::kLog, {sum}), quotient})});
}
Pat Softplus(const Pat& x) {
  return Either({Call(nn::kSoftplus, {x}), LogOfOneMore(x), AccurateLogOfOneMore(x)});
}

void AddSoft(std::vector<Rule>& rules, bool exact) {
  const Pat x = Float("x");
  if (!exact) {
    rules.push_back(Recognize("softplus", LogOfOneMore(x), Call(nn::kSoftplus, {Var("x")})));
  }
  const Pat mirrored = Softplus(Call(nn::kNeg, {Call(nn::kAbs, {x})}));
  rules.push_back(Recognize("softplus-stable", Call(nn::kAdd, {Call(nn::kRelu, {x}), mirrored}),
                            Call(nn::kSoftplus, {Var("x")})));
  rules.push_back(Recognize("mish", Call(nn::kMul, {x, Call(nn::kTanh, {Softplus(x)})}),
                            Call(nn::kMish, {Var("x")})));
  rules.push_back(Recognize("softsign",
                            Call(nn::kDiv, {x, Call(nn::kAdd, {Call(nn::kAbs, {x}), Scalar(1)})}),
                            Call(nn::kSoftsign, {Var("x")})));
}

// ---- another slope below zero ----

bool SlopeBetweenZeroAndOne(const RuleMatch& m) {
  return m.scalar("alpha") >= 0 && m.scalar("alpha") <= 1;
}

/// The slope is broadcast to x, not x to the slope.
bool SlopeFits(const RuleMatch& m) {
  const auto x = m["x"].type().cast<AnyTensorType>(), s = m["slope"].type().cast<AnyTensorType>();
  if (!x.has_rank() || !s.has_rank() || s.rank() > x.rank()) return false;
  for (size_t i = 0; i < s.rank(); ++i) {
    const Dim& d = s.dims()[i];
    if (!d.IsConstant(1) && !ProvablyEqual(d, x.dims()[x.rank() - s.rank() + i])) return false;
  }
  return true;
}

void AddLeaky(std::vector<Rule>& rules) {
  const Pat x = Float("x"), leaked = Call(nn::kMul, {x, Scalar("alpha")});
  const Pat leaky = Call(nn::kLeakyRelu, {Var("x")}).Set("alpha", ScalarOf("alpha"));
  rules.push_back(Recognize("leaky-relu-where", BySign(x, leaked, x), leaky, 2));
  rules.push_back(Rule("leaky-relu-max")
                      .Match(Call(nn::kMax, {x, leaked}).Commutes())
                      .Where(SlopeBetweenZeroAndOne, "the slope lies between 0 and 1")
                      .Replace(leaky));
  const Pat mirrored = Call(nn::kRelu, {Call(nn::kNeg, {x})});
  rules.push_back(
      Recognize("leaky-relu-parts",
                Call(nn::kSub, {Call(nn::kRelu, {x}), Call(nn::kMul, {mirrored, Scalar("alpha")})}),
                leaky, 2));
  const Pat prelu = Call(nn::kPrelu, {Var("x"), Var("slope")});
  rules.push_back(Rule("prelu-where")
                      .Match(BySign(x, Call(nn::kMul, {x, Var("slope")}), x))
                      .Where(SlopeFits, "the slope is broadcast to x")
                      .Replace(prelu));
  const Pat negative = Call(nn::kNeg, {mirrored});
  rules.push_back(
      Rule("prelu-parts")
          .Match(Call(nn::kAdd, {Call(nn::kRelu, {x}), Call(nn::kMul, {negative, Var("slope")})}))
          .Match(Call(nn::kSub, {Call(nn::kRelu, {x}), Call(nn::kMul, {mirrored, Var("slope")})}))
          .Where(SlopeFits, "the slope is broadcast to x")
          .Replace(prelu));
}

// ---- exponential units and thresholds ----

/// exp(x) - 1 near 0 as decompositions write it: x (1 + x/2 (1 + x/3 (...))).
Pat SeriesOfExpm1(const Pat& x, int degree) {
  const auto term = [&](int i) { return Call(nn::kMul, {x, Scalar(1.0 / i)}); };
  Pat sum = Call(nn::kAdd, {term(degree), Scalar(1)});
  for (int i = degree - 1; i > 1; --i) {
    sum = Call(nn::kAdd, {Call(nn::kMul, {term(i), sum}), Scalar(1)});
  }
  return Call(nn::kMul, {x, sum});
}
Pat Expm1(const Pat& x) {
  const Pat plain = Call(nn::kSub, {Call(nn::kExp, {x}), Scalar(1)});
  const Pat is_small = Call(nn::kLess, {Call(nn::kAbs, {x}), Scalar(0.25)});
  return Either({plain, Call(nn::kWhere, {is_small, SeriesOfExpm1(x, 6), plain}),
                 Call(nn::kWhere, {is_small, SeriesOfExpm1(x, 13), plain})});
}

bool CeluOfElu(const RuleMatch& m) {
  return std::abs(m.scalar("alpha") - m.scalar("divisor")) <= 1e-6 * std::abs(m.scalar("alpha"));
}

void AddExponential(std::vector<Rule>& rules) {
  const Pat x = Float("x");
  const Pat less_one = Expm1(x);
  rules.push_back(Recognize("elu-one", BySign(x, less_one, x), Call(nn::kElu, {Var("x")})));
  rules.push_back(Recognize("elu", BySign(x, Call(nn::kMul, {less_one, Scalar("alpha")}), x),
                            Call(nn::kElu, {Var("x")}).Set("alpha", ScalarOf("alpha")), 2));
  const Pat scaled_exp = Call(nn::kMul, {Call(nn::kExp, {x}), Scalar("alpha")});
  const Pat below =
      Call(nn::kMul, {Call(nn::kSub, {scaled_exp, Scalar("alpha2")}), Scalar("gamma")});
  rules.push_back(Rule("selu")
                      .Match(BySign(x, below, Call(nn::kMul, {x, Scalar("gamma2")})))
                      .Where(
                          [](const RuleMatch& m) {
                            return m.scalar("alpha") == m.scalar("alpha2") &&
                                   m.scalar("gamma") == m.scalar("gamma2");
                          },
                          "alpha and gamma are the same on both sides")
                      .Replace(Call(nn::kSelu, {Var("x")})
                                   .Set("alpha", ScalarOf("alpha"))
                                   .Set("gamma", ScalarOf("gamma"))));
  rules.push_back(Recognize(
      "selu-of-elu", Call(nn::kMul, {Call(nn::kElu, {x}).Carry("alpha"), Scalar("gamma")}),
      Call(nn::kSelu, {Var("x")}).Carry("alpha").Set("gamma", ScalarOf("gamma"))));
  const auto parts = [&](const Pat& below_zero) {
    return Call(nn::kAdd,
                {Call(nn::kRelu, {x}), Call(nn::kMin, {below_zero, Scalar(0)}).Commutes()});
  };
  const Pat stretched = Expm1(Call(nn::kDiv, {x, Scalar("divisor")}));
  rules.push_back(Recognize("elu-parts", parts(less_one), Call(nn::kElu, {Var("x")})));
  rules.push_back(Rule("celu-parts")
                      .Match(parts(Call(nn::kMul, {stretched, Scalar("alpha")})))
                      .Where(CeluOfElu, "x is divided by alpha")
                      .Replace(Call(nn::kCelu, {Var("x")}).Set("alpha", ScalarOf("alpha"))));
  rules.push_back(
      Rule("celu", 2)
          .Match(Call(nn::kMul,
                      {Call(nn::kElu, {Call(nn::kDiv, {x, Scalar("divisor")})}), Scalar("alpha")}))
          .Where(CeluOfElu, "x is divided by alpha")
          .Replace(Call(nn::kCelu, {Var("x")}).Set("alpha", ScalarOf("alpha"))));
}

// ---- thresholds ----

double Bias(const RuleMatch& m, const char* name) { return m.Has(name) ? m.scalar(name) : 0; }

void AddThreshold(std::vector<Rule>& rules) {
  const Pat x = Float("x"), alpha = Scalar("alpha");
  rules.push_back(
      Rule("thresholded-relu")
          .Match(Call(nn::kWhere, {Call(nn::kLess, {alpha, x}), x, Scalar(0)}))
          .Match(Call(nn::kWhere, {Call(nn::kGreater, {x, alpha}), x, Scalar(0)}))
          .Replace(Call(nn::kThresholdedRelu, {Var("x")}).Set("alpha", ScalarOf("alpha"))));
  const Pat above =
      Call(nn::kWhere, {Call(nn::kLess, {Scalar("lambda"), x}),
                        Either({Call(nn::kSub, {x, Scalar("bias2")}), x}), Scalar(0)});
  const Pat hard = Call(nn::kThresholdedRelu, {x}).Carry("alpha");
  rules.push_back(
      Rule("shrink-hard")
          .Match(Call(nn::kWhere, {Call(nn::kLess, {x, Scalar("below")}),
                                   Either({x, Call(nn::kAdd, {x, Scalar(0)})}), hard}))
          .Where(
              [](const RuleMatch& m) {
                return m.attribute("alpha").cast<FloatAttribute>().value() == -m.scalar("below");
              },
              "the thresholds are opposite")
          .Replace(Call(nn::kShrink, {Var("x")}).Carry("lambd", "alpha").With("bias", 0.0)));
  rules.push_back(
      Rule("shrink")
          .Match(Call(nn::kWhere, {Call(nn::kLess, {x, Scalar("below")}),
                                   Either({Call(nn::kAdd, {x, Scalar("bias")}), x}), above}))
          .Where([](const RuleMatch& m) { return m.scalar("below") == -m.scalar("lambda"); },
                 "the thresholds are opposite")
          .Where([](const RuleMatch& m) { return Bias(m, "bias") == Bias(m, "bias2"); },
                 "the biases are the same")
          .Replace(
              Call(nn::kShrink, {Var("x")})
                  .Set("lambd", ScalarOf("lambda"))
                  .Set("bias", [](const RuleMatch& m) { return Number(m, Bias(m, "bias")); })));
}

}  // namespace

class FuseActivationPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Rule> rules;
    AddSigmoid(rules);
    AddSoft(rules, option_bool("exact"));
    if (!option_bool("smooth")) {
      AddClip(rules);
      AddReluClip(rules);
      AddHardSigmoid(rules);
      AddLeaky(rules);
      AddExponential(rules);
      AddThreshold(rules);
    }
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(fuse_activation, FuseActivationPass)
    .Doc(
        "recognizes activations written out: clip, sigmoid, swish, hard swish, mish, prelu, elu, "
        "...")
    .Details(
        "Relu, clip (min and max in either order, comparisons, relu under a bound), sigmoid, swish "
        "(silu and quick gelu are swish with another alpha), hard sigmoid and hard swish, "
        "softplus, "
        "mish, softsign, leaky relu and prelu, elu, selu, celu. Not at NaN: a form that makes "
        "something else of NaN than the op does is not recognized.")
    .Option("exact", PassOption::Kind::kBool, "false",
            "only rules that are true in floating point up to rounding")
    .Option(
        "smooth", PassOption::Kind::kBool, "false",
        "only sigmoid, swish, softplus, mish and softsign, which have no corner: their gradients "
        "are the same however they are written");

}  // namespace lathe
