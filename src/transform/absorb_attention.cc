#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/merged_heads.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

Pat AttentionOf(const Pat& q, const Pat& k, const Pat& v) {
  return Call(nn::kAttention,
              {q, k, v, Maybe("mask"), Maybe("past_key"), Maybe("past_value"), Maybe("lengths")})
      .AnyAttributes()
      .As("attention");
}

double NumberOf(const Operation* op, const char* name) {
  return op->attribute(name).cast<FloatAttribute>().value();
}

/// The op again with other queries, keys and values, and some attributes changed (null: absent).
Value Remade(const RuleMatch& m, Rewriter& rewriter, Value q, Value k, Value v,
             const std::vector<NamedAttribute>& changed) {
  std::vector<Value> operands{q, k, v};
  for (const char* name : {"mask", "past_key", "past_value", "lengths"}) {
    operands.push_back(m[name]);
  }
  while (!operands.back()) operands.pop_back();
  std::vector<NamedAttribute> attributes;
  std::copy_if(changed.begin(), changed.end(), std::back_inserter(attributes),
               [](const NamedAttribute& a) { return static_cast<bool>(a.value); });
  for (const NamedAttribute& a : m.op("attention")->attributes().entries()) {
    const auto same = [&](const NamedAttribute& other) { return other.name == a.name; };
    if (std::none_of(changed.begin(), changed.end(), same)) attributes.push_back(a);
  }
  return rewriter.Create(nn::kAttention, operands, attributes)->result(0);
}

// ---- scales of queries and of keys ----

bool HasScale(const RuleMatch& m) {
  return m.op("attention")->attribute("scale").isa<FloatAttribute>();
}

double Factor(const RuleMatch& m) {
  return m.Has("divisor") ? 1 / m.scalar("divisor") : m.scalar("factor");
}

bool FactorIsPositive(const RuleMatch& m) {
  return Factor(m) > 0 && std::isfinite(Factor(m)) && SameKnownType(m["scaled"], m["x"]);
}

Rule ScaleRule(const std::string& name, const Pat& q, const Pat& k, const char* replaced) {
  const bool of_queries = replaced == std::string("q");
  return Rule(name)
      .Match(AttentionOf(q, k, Var("v")))
      .Where(HasScale, "the scale is written")
      .Where(FactorIsPositive, "the factor is a positive number")
      .Replace([of_queries](const RuleMatch& m, Rewriter& rewriter) {
        const double scale = NumberOf(m.op("attention"), "scale") * Factor(m);
        const NamedAttribute changed = rewriter.Named("scale", rewriter.Attr(scale));
        if (of_queries) return Remade(m, rewriter, m["x"], m["k"], m["v"], {changed});
        Value keys = m["x"];
        if (m.Has("kt")) {
          const NamedAttribute perm = rewriter.Named("perm", m.attribute("perm"));
          keys = rewriter.Create(nn::kTranspose, {&keys, 1}, {&perm, 1})->result(0);
        }
        return Remade(m, rewriter, m["q"], keys, m["v"], {changed});
      });
}

void AddScales(std::vector<Rule>& rules) {
  const Pat product = Call(nn::kMul, {Var("x"), Scalar("factor")}).As("scaled");
  const Pat quotient = Call(nn::kDiv, {Var("x"), Scalar("divisor")}).As("scaled");
  const Pat scaled = Either({product, quotient});
  rules.push_back(ScaleRule("scale-of-queries", scaled, Var("k"), "q"));
  rules.push_back(ScaleRule("scale-of-keys", Var("q"),
                            Either({scaled, Call(nn::kTranspose, {scaled}).Carry("perm").As("kt")}),
                            "k"));
}

// ---- keys and values repeated for groups of queries ----

/// [B, H, S, E] repeated to [B, H * G, S, E], a head after itself.
Pat Repeated(const std::string& name) {
  const Pat x = Var(name);
  const Pat one_more = Either({Call(nn::kUnsqueeze, {x, Const(name + "_axis")}).Shared(),
                               Call(nn::kReshape, {x, Var(name + "_five")}).Shared()});
  const Pat expanded = CallOneOf({nn::kExpand, nn::kTile}, {one_more, Var(name + "_shape")})
                           .As(name + "_expanded")
                           .Shared();
  return Either({Call(nn::kReshape, {expanded, Var(name + "_four")}).Shared(),
                 CallOneOf({nn::kExpand, nn::kTile}, {x, Var(name + "_shape")}).Shared()});
}

/// The dims of the steps say that nothing but the heads is repeated.
bool RepeatsHeads(const RuleMatch& m, const std::string& name, Value repeated) {
  const Value x = m[name];
  if (RankOf(x) != 4 || RankOf(repeated) != 4) return false;
  const auto from = DimsOf(x), to = DimsOf(repeated);
  for (const size_t i : {0, 2, 3}) {
    if (!ProvablyEqual(from[i], to[i])) return false;
  }
  if (!from[1].is_constant() || !to[1].is_constant() || from[1].value() == 0) return false;
  if (!m.Has(name + "_expanded")) return from[1].value() == 1;
  const Value five = m[name + "_expanded"];
  if (RankOf(five) != 5 || RankOf(five.defining_op()->operand(0)) != 5) return false;
  const auto before = DimsOf(five.defining_op()->operand(0)), after = DimsOf(five);
  return before[1].IsConstant(from[1].value()) && before[2].IsConstant(1) &&
         after[1].IsConstant(from[1].value()) &&
         after[2].IsConstant(to[1].value() / from[1].value()) && ProvablyEqual(after[3], to[2]) &&
         ProvablyEqual(after[4], to[3]) && ProvablyEqual(before[3], to[2]) &&
         ProvablyEqual(before[4], to[3]);
}

bool RepeatsKeysAndValues(const RuleMatch& m) {
  const Operation* op = m.op("attention");
  return RepeatsHeads(m, "k", op->operand(1)) && RepeatsHeads(m, "v", op->operand(2)) &&
         DimsOf(m["k"])[1] == DimsOf(m["v"])[1];
}

Rule GroupedHeads() {
  return Rule("grouped-heads")
      .Match(AttentionOf(Var("q"), Repeated("k"), Repeated("v")))
      .Where([](const RuleMatch& m) { return !m.Has("past_key"); }, "nothing is cached")
      .Where(RepeatsKeysAndValues, "keys and values are repeated along the heads, each in a row")
      .Replace([](const RuleMatch& m, Rewriter& rewriter) {
        return Remade(m, rewriter, m["q"], m["k"], m["v"], {});
      });
}

// ---- heads in the last dim ----

/// [B, L, H * E] split to [B, H, L, E]; `name` may be of another rank.
Pat Split(const std::string& name) {
  return Call(
             nn::kTranspose,
             {Call(nn::kReshape, {Var(name), Const(name + "_shape")}).As(name + "_split").Shared()})
      .With("perm", std::vector<int64_t>{0, 2, 1, 3})
      .Shared();
}

bool SplitsHeads(const RuleMatch& m) {
  for (const std::string name : {"q", "k", "v"}) {
    const Value split = m[name + "_split"];
    if (RankOf(split) != 4 || !DimsOf(split)[2].is_constant() || !DimsOf(split)[3].is_constant() ||
        m.ints(name + "_shape").size() != 4 || DimsOf(split)[2].value() < 1) {
      return false;
    }
  }
  return true;
}

/// The input as [B, L, H * E].
Value Merged(const RuleMatch& m, Rewriter& rewriter, const std::string& name) {
  const Value x = m[name];
  const auto split = DimsOf(m[name + "_split"]);
  const Dim last = split[2] * split[3];
  if (RankOf(x) == 3 && ProvablyEqual(DimsOf(x)[0], split[0]) &&
      ProvablyEqual(DimsOf(x)[1], split[1]) && ProvablyEqual(DimsOf(x)[2], last)) {
    return x;
  }
  std::vector<int64_t> shape = m.ints(name + "_shape");
  shape = {shape[0], shape[1], last.value()};
  const Value operands[] = {x, rewriter.Constant(Tensor::Of<int64_t>({3}, shape))};
  return rewriter.Create(nn::kReshape, operands)->result(0);
}

/// The result's shape has nothing that would be copied from a dim that is no longer there.
bool ResultShapeIsPlain(const RuleMatch& m) {
  const std::vector<int64_t> shape = m.ints("shape");
  return std::none_of(shape.begin() + std::min<std::ptrdiff_t>(2, std::ssize(shape)), shape.end(),
                      [](int64_t extent) { return extent == 0; });
}

Value MakeMerged(const RuleMatch& m, Rewriter& rewriter) {
  const auto heads = [&](const char* name) {
    return rewriter.Attr(DimsOf(m[std::string(name) + "_split"])[2].value());
  };
  const std::vector<NamedAttribute> changed{rewriter.Named("q_num_heads", heads("q")),
                                            rewriter.Named("kv_num_heads", heads("k"))};
  const Value q = Merged(m, rewriter, "q"), k = Merged(m, rewriter, "k"),
              v = Merged(m, rewriter, "v");
  const Value y = Remade(m, rewriter, q, k, v, changed);
  const Value result = m.root()->result(0);
  if (RankOf(result) == 3 &&
      std::equal(DimsOf(result).begin(), DimsOf(result).end(), DimsOf(y).begin(), ProvablyEqual)) {
    return y;
  }
  const Value operands[] = {y, m["shape"]};
  return rewriter.Create(nn::kReshape, operands)->result(0);
}

Rule HeadsInLastDim() {
  const Pat attention = AttentionOf(Split("q"), Split("k"), Split("v"));
  const Pat together =
      Call(nn::kTranspose, {attention}).With("perm", std::vector<int64_t>{0, 2, 1, 3});
  return Rule("heads-in-last-dim")
      .Match(Call(nn::kReshape, {together, Const("shape")}))
      .Where([](const RuleMatch& m) { return !m.Has("past_key"); }, "nothing is cached")
      .Where(SplitsHeads, "the heads are split from a last dim")
      .Where(ResultShapeIsPlain, "the result's shape copies no extent of a head")
      .Replace(Rule::Maker(MakeMerged));
}

// ---- batch and heads merged into one dim ----

bool MergesHeads(const RuleMatch& m) {
  if (!OperandsMergeHeads(m)) return false;
  const auto q = DimsOf(m["q"]);
  return HasDims(m.root()->result(0), {q[0], q[1], q[2], DimsOf(m["v"])[3]});
}

Rule MergedBatch() {
  const auto alone = [](const RuleMatch& m) {
    const auto heads = IntAttribute::Get(m.context(), 1);
    const Operation* op = m.op("attention");
    return op->attribute("q_num_heads") == heads && op->attribute("kv_num_heads") == heads &&
           op->num_operands() == 3;
  };
  return Rule("merged-heads")
      .Match(Call(nn::kReshape,
                  {AttentionOf(MergedHeads("q"), MergedHeads("k"), MergedHeads("v")), Var("shape")})
                 .AnyAttributes())
      .Where(alone, "there is one head and no mask")
      .Where(MergesHeads, "batch and heads are merged and parted again")
      .Replace([](const RuleMatch& m, Rewriter& rewriter) {
        return Remade(m, rewriter, m["q"], m["k"], m["v"],
                      {rewriter.Named("q_num_heads", Attribute()),
                       rewriter.Named("kv_num_heads", Attribute())});
      });
}

// ---- cached keys and values before the new ones ----

/// [cached, new] along the keys.
Pat Extended(const std::string& name) {
  return Call(nn::kConcat, {Var("past_" + name), Var("new_" + name)})
      .Carry("axis", name + "_axis")
      .As(name + "_all")
      .Shared();
}

bool JoinedAlongKeys(const RuleMatch& m) {
  for (const std::string name : {"k", "v"}) {
    const auto axis = m.attribute(name + "_axis").dyn_cast<IntAttribute>();
    if (RankOf(m[name + "_all"]) != 4 || !axis ||
        AxisFromFront(axis.value(), m[name + "_all"]) != 2) {
      return false;
    }
  }
  return true;
}

/// With a cache a query stands behind it, which would move a bound by position.
bool NoPositions(const RuleMatch& m) {
  const Operation* op = m.op("attention");
  const auto is = [&](const char* name, int64_t value) {
    const auto number = op->attribute(name).dyn_cast<IntAttribute>();
    return number && number.value() == value;
  };
  const auto causal = op->attribute("is_causal").dyn_cast<BoolAttribute>();
  return causal && !causal.value() && is("left_window_size", -1) && is("right_window_size", -1) &&
         !m.Has("past_key") && !m.Has("lengths");
}

/// Whoever else reads the joined keys and values stands behind the op that will give them.
bool ReadLater(const RuleMatch& m) {
  for (const char* name : {"k_all", "v_all"}) {
    for (const OpOperand use : m[name].uses()) {
      const Operation* owner = use.owner();
      if (owner == m.root()) continue;
      if (owner->block() != m.root()->block() || !m.root()->IsBefore(owner)) return false;
    }
  }
  return true;
}

/// Who does not keep them for a later run has joined the keys of two inputs, text and image say.
bool AreKept(const RuleMatch& m) {
  const auto is_read = [&](const char* name) {
    return std::ranges::any_of(m[name].uses(),
                               [&](const OpOperand use) { return use.owner() != m.root(); });
  };
  return is_read("k_all") && is_read("v_all");
}

Value MakeCached(const RuleMatch& m, Rewriter& rewriter) {
  const Value operands[] = {m.root()->operand(0), m["new_k"], m["new_v"], m["mask"],
                            m["past_k"],          m["past_v"]};
  const Operation* op =
      rewriter.Create(nn::kAttention, operands, m.op("attention")->attributes().entries(), 3);
  for (const size_t i : {1, 2}) {
    const Value all = m[i == 1 ? "k_all" : "v_all"];
    std::vector<OpOperand> uses(all.uses().begin(), all.uses().end());
    for (const OpOperand use : uses) {
      if (use.owner() != m.root()) rewriter.SetOperand(use.owner(), use.index(), op->result(i));
    }
  }
  return op->result(0);
}

Rule Cached() {
  return Rule("cached-keys-and-values")
      .Match(AttentionOf(Var("q"), Extended("k"), Extended("v")))
      .Where(JoinedAlongKeys, "keys and values are joined along the keys")
      .Where(NoPositions, "nothing is bound by position, nothing cached yet")
      .Where(AreKept, "the joined keys and values are kept")
      .Where(ReadLater, "the joined keys and values are read after the attention")
      .Replace(Rule::Maker(MakeCached));
}

bool FeedsAttention(Value keys) {
  const auto reads = [](const OpOperand& use) {
    return use.owner()->name() == nn::kAttention && (use.index() == 1 || use.index() == 2);
  };
  return std::any_of(keys.uses().begin(), keys.uses().end(), reads);
}

/// An extent of joined keys from those of the parts, so that the joined ones need not be there yet.
Rule ExtentOfJoined() {
  const Pat joined = Call(nn::kConcat, {Var("a"), Var("b")})
                         .Carry("axis", "joined_axis")
                         .As("joined")
                         .If(FeedsAttention, "keys or values of an attention op")
                         .Shared();
  return Rule("extent-of-joined")
      .Quiet()
      .Match(Call(nn::kGather, {Call(nn::kShape, {joined}).Shared(), Const("index")})
                 .WithIf(
                     "axis", [](Attribute a) { return !a || a.cast<IntAttribute>().value() == 0; },
                     "0"))
      .Where([](const RuleMatch& m) { return m.constant("index").num_elements() == 1; },
             "one extent is read")
      .Replace([](const RuleMatch& m, Rewriter& rewriter) {
        const auto extent = [&](const Value& part) {
          const Value operands[] = {rewriter.Create(nn::kShape, {&part, 1})->result(0), m["index"]};
          return rewriter.Create(nn::kGather, operands)->result(0);
        };
        const int64_t axis = m.attribute("joined_axis").cast<IntAttribute>().value();
        const Value first = extent(m["a"]);
        if (AxisFromFront(m.ints("index")[0], m["joined"]) != AxisFromFront(axis, m["joined"])) {
          return first;
        }
        const Value operands[] = {first, extent(m["b"])};
        return rewriter.Create(nn::kAdd, operands)->result(0);
      });
}

}  // namespace

class AbsorbAttentionPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Rule> rules;
    AddScales(rules);
    rules.push_back(GroupedHeads());
    rules.push_back(HeadsInLastDim());
    rules.push_back(MergedBatch());
    rules.push_back(ExtentOfJoined());
    rules.push_back(Cached());
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(absorb_attention, AbsorbAttentionPass)
    .Doc(
        "takes into an attention op what stands around it: scales, repeated and split heads, "
        "caches")
    .Details(
        "Factors of queries and keys go into the scale; keys and values that are repeated for "
        "groups of queries are read as they are; heads that are split from a last dim and brought "
        "together again stay there, without the transposes. Keys and values that are joined behind "
        "cached ones become the op's own cache.");

}  // namespace lathe
