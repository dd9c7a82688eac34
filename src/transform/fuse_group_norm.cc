#include <algorithm>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

// ---- instance normalization: a layer norm over space with a scale per channel ----

/// A layer norm without scale over all dims behind the channels, which are known.
bool OverSpace(const RuleMatch& m) {
  const auto axis = m.attribute("axis").cast<IntAttribute>().value();
  const std::optional<int64_t> rank = RankOf(m["x"]);
  return rank && *rank >= 3 && AxisFromFront(axis, m["x"]) == 2 && DimsOf(m["x"])[1].is_constant();
}

/// [C, 1, ...] or [1, C, 1, ...] for the channels of `x`.
bool IsPerChannel(const RuleMatch& m, const std::string& name, Value x) {
  if (!m.Has(name)) return true;
  const std::optional<int64_t> rank = RankOf(m[name]), of = RankOf(x);
  if (!rank || !of || *of - *rank > 1 || *rank > *of) return false;
  const auto dims = DimsOf(m[name]);
  const auto channel = static_cast<size_t>(*rank - (*of - 1));
  for (size_t i = 0; i < dims.size(); ++i) {
    const Dim expected = i == channel ? DimsOf(x)[1] : Dim(1);
    if (!expected.is_constant() || !dims[i].IsConstant(expected.value())) return false;
  }
  return true;
}

bool ScaleIsPerChannel(const RuleMatch& m) { return IsPerChannel(m, "scale", m["x"]); }
bool BiasIsPerChannel(const RuleMatch& m) { return IsPerChannel(m, "b", m["x"]); }

/// The constant bias of a norm, `old`, adds nothing.
bool HasNoBias(const RuleMatch& m) {
  const std::vector<double> old = ToDoubles(m.constant("old"));
  return std::all_of(old.begin(), old.end(), [](double v) { return v == 0; });
}

/// As a vector of the channels; of `number` if it is not there.
Value PerChannel(const RuleMatch& m, Rewriter& rewriter, const std::string& name, Value x,
                 double number) {
  const int64_t channels = DimsOf(x)[1].value();
  if (m.Has(name)) {
    const Value operands[] = {
        m[name], rewriter.Constant(Tensor::Of<int64_t>({1}, std::vector<int64_t>{channels}))};
    return rewriter.Create(nn::kReshape, operands)->result(0);
  }
  const std::vector<double> all(static_cast<size_t>(channels), number);
  return rewriter.Constant(
      Cast(Tensor::Of<double>({channels}, all), x.type().cast<AnyTensorType>().element()));
}

Rule InstanceNorm() {
  const Pat norm = Call(nn::kLayerNormalization, {Var("x"), Scalar(1)})
                       .Carry("axis")
                       .Carry("epsilon")
                       .AnyAttributes();
  const Pat scaled = Call(nn::kMul, {norm, Var("scale")});
  return Rule("instance-norm")
      .Match(Call(nn::kAdd, {scaled, Var("b")}))
      .Match(Call(nn::kAdd, {norm, Var("b")}))
      .Match(scaled)
      .Where(OverSpace, "it is over all dims behind the channels")
      .Where(ScaleIsPerChannel, "the scale is one per channel")
      .Where(BiasIsPerChannel, "the bias is one per channel")
      .Replace([](const RuleMatch& m, Rewriter& rewriter) {
        const Value operands[] = {m["x"], PerChannel(m, rewriter, "scale", m["x"], 1),
                                  PerChannel(m, rewriter, "b", m["x"], 0)};
        const NamedAttribute epsilon = rewriter.Named("epsilon", m.attribute("epsilon"));
        return rewriter.Create(nn::kInstanceNormalization, operands, {&epsilon, 1})->result(0);
      });
}

/// The bias behind an instance norm that has none yet.
Rule InstanceNormBias() {
  return Rule("instance-norm-bias")
      .Match(
          Call(nn::kAdd, {Call(nn::kInstanceNormalization, {Var("x"), Var("scale"), Const("old")})
                              .Carry("epsilon"),
                          Var("b")}))
      .Where(HasNoBias, "it has no bias yet")
      .Where(BiasIsPerChannel, "the bias is one per channel")
      .Replace([](const RuleMatch& m, Rewriter& rewriter) {
        const Value operands[] = {m["x"], m["scale"], PerChannel(m, rewriter, "b", m["x"], 0)};
        const NamedAttribute epsilon = rewriter.Named("epsilon", m.attribute("epsilon"));
        return rewriter.Create(nn::kInstanceNormalization, operands, {&epsilon, 1})->result(0);
      });
}

// ---- group normalization: channels in groups, each normalized as one channel ----

/// x [N, C, ...] as [N, G, rest], normalized over the rest, and as it was again.
bool InGroups(const RuleMatch& m) {
  const Value x = m["x"], grouped = m["grouped"], y = m["restored"];
  if (RankOf(grouped) != 3 || RankOf(x).value_or(0) < 3 || RankOf(y) != RankOf(x)) return false;
  const Dim &channels = DimsOf(x)[1], &groups = DimsOf(grouped)[1];
  if (!channels.is_constant() || !groups.is_constant() || groups.value() < 1 ||
      channels.value() % groups.value() != 0 || !ProvablyEqual(DimsOf(x)[0], DimsOf(grouped)[0])) {
    return false;
  }
  if (m.attribute("axis") &&
      AxisFromFront(m.attribute("axis").cast<IntAttribute>().value(), grouped) != 2) {
    return false;
  }
  for (const char* name : {"one", "zero"}) {
    const double expected = *name == 'o' ? 1 : 0;
    if (!m.Has(name)) continue;
    for (const double v : ToDoubles(m.constant(name))) {
      if (v != expected) return false;
    }
  }
  return std::equal(DimsOf(x).begin(), DimsOf(x).end(), DimsOf(y).begin(), ProvablyEqual);
}

Rule GroupNorm() {
  const Pat grouped = Call(nn::kReshape, {Var("x"), Var("s1")}).AnyAttributes().As("grouped");
  const Pat norm = Either(
      {Call(nn::kInstanceNormalization, {grouped, Const("one"), Const("zero")}).Carry("epsilon"),
       Call(nn::kLayerNormalization, {grouped, Scalar(1)})
           .Carry("epsilon")
           .Carry("axis")
           .AnyAttributes()});
  const Pat restored = Call(nn::kReshape, {norm, Var("s2")}).AnyAttributes().As("restored");
  const Pat scaled = Call(nn::kMul, {restored, Var("scale")});
  return Rule("group-norm", 2)
      .Match(Call(nn::kAdd, {scaled, Var("b")}))
      .Match(scaled)
      .Where(InGroups, "groups of channels are normalized each as one")
      .Where(ScaleIsPerChannel, "the scale is one per channel")
      .Where(BiasIsPerChannel, "the bias is one per channel")
      .Replace([](const RuleMatch& m, Rewriter& rewriter) {
        const Value operands[] = {m["x"], PerChannel(m, rewriter, "scale", m["x"], 1),
                                  PerChannel(m, rewriter, "b", m["x"], 0)};
        const NamedAttribute attributes[] = {
            rewriter.Named("epsilon", m.attribute("epsilon")),
            rewriter.Named("num_groups", rewriter.Attr(DimsOf(m["grouped"])[1].value()))};
        return rewriter.Create(nn::kGroupNormalization, operands, attributes)->result(0);
      });
}

Rule GroupNormBias() {
  return Rule("group-norm-bias")
      .Match(Call(nn::kAdd, {Call(nn::kGroupNormalization, {Var("x"), Var("scale"), Const("old")})
                                 .Carry("epsilon")
                                 .Carry("num_groups")
                                 .Carry("stash_type"),
                             Var("b")}))
      .Where(HasNoBias, "it has no bias yet")
      .Where(BiasIsPerChannel, "the bias is one per channel")
      .Replace([](const RuleMatch& m, Rewriter& rewriter) {
        const Value operands[] = {m["x"], m["scale"], PerChannel(m, rewriter, "b", m["x"], 0)};
        const NamedAttribute attributes[] = {
            rewriter.Named("epsilon", m.attribute("epsilon")),
            rewriter.Named("num_groups", m.attribute("num_groups"))};
        return rewriter.Create(nn::kGroupNormalization, operands, attributes)->result(0);
      });
}

// ---- vectors of length one ----

/// x by its norm, which is kept from being zero by less than floats of that size are apart.
Rule UnitNorm() {
  const auto one_axis = [](const RuleMatch& m) {
    return m.constant("axes").num_elements() == 1 && m.scalar("least") > 0 &&
           m.scalar("least") <= 1e-12;
  };
  const Pat norm = Call(nn::kReduceL2, {Var("x"), Const("axes")});
  const Pat kept = Either({Call(nn::kClip, {norm, Scalar("least")}),
                           Call(nn::kMax, {norm, Scalar("least")}).Commutes()});
  return Rule("unit-norm")
      .Match(Call(nn::kDiv, {Var("x"), kept}))
      .Match(Call(nn::kDiv, {Var("x"), Call(nn::kExpand, {kept, Var("shape")})}))
      .Where(one_axis, "the norm is along one axis and kept from being zero only")
      .Replace(Call(nn::kLpNormalization, {Var("x")})
                   .With("p", 2)
                   .Set("axis", [](const RuleMatch& m) -> Attribute {
                     return IntAttribute::Get(m.context(), m.ints("axes")[0]);
                   }));
}

}  // namespace

class FuseGroupNormPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Rule> rules;
    rules.push_back(GroupNorm());
    rules.push_back(GroupNormBias());
    rules.push_back(InstanceNorm());
    rules.push_back(InstanceNormBias());
    rules.push_back(UnitNorm());
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(fuse_group_norm, FuseGroupNormPass)
    .Doc("recognizes instance and group normalization, and division by the norm of a vector")
    .Details(
        "A layer norm over space with a scale per channel is an instance norm; an instance norm of "
        "groups of channels with a scale per channel a group norm. After fuse_layer_norm.");

}  // namespace lathe
