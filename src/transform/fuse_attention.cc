#include <algorithm>
#include <cmath>
#include <utility>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/merged_heads.h"
#include "src/transform/rule_words.h"
#include "src/transform/rules_in_order.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

// ---- the pattern: softmax(mask(cap(scale(q k^T)))) v, each in the usual spellings ----

/// `inner` times or divided by a number, or as it is.
Pat MaybeScaled(const Pat& inner, const std::string& name) {
  return Either({Call(nn::kMul, {inner, Scalar(name + "_factor")}),
                 Call(nn::kDiv, {inner, Scalar(name + "_divisor")}), inner});
}

Pat Scores() {
  return Call(nn::kMatmul, {MaybeScaled(Var("q"), "q"), MaybeScaled(Var("kt"), "kt")})
      .Carry("transpose_y", "transposed")
      .As("scores");
}

/// c tanh(scores / c), or just the scores.
Pat Capped(const Pat& scores) {
  const Pat small = Either({Call(nn::kDiv, {scores, Scalar("cap_divisor")}),
                            Call(nn::kMul, {scores, Scalar("cap_factor")})});
  return Either({Call(nn::kMul, {Call(nn::kTanh, {small}), Scalar("cap")}), scores});
}

Pat Masked(const Pat& scores) {
  const Pat masked = Either({Call(nn::kAdd, {scores, Var("mask")}).As("masked"),
                             Call(nn::kWhere, {Var("keep"), scores, Scalar("fill")}).As("masked"),
                             Call(nn::kWhere, {Var("drop"), Scalar("fill"), scores}).As("masked")});
  const Pat chosen = Either({Call(nn::kAdd, {scores, Var("mask")}),
                             Call(nn::kWhere, {Var("keep"), scores, Scalar("fill")}),
                             Call(nn::kWhere, {Var("drop"), Scalar("fill"), scores})});
  return Either({Call(nn::kAdd, {chosen, Var("mask2")}).As("masked"), masked});
}

/// In the type of the scores or in a wider one.
Pat Weights(const Pat& scores) {
  const Pat wide =
      Call(nn::kCast,
           {Call(nn::kSoftmax, {Call(nn::kCast, {scores}).Carry("to").Shared()}).Carry("axis")})
          .AnyAttributes()
          .As("weights");
  return Either({wide, Call(nn::kSoftmax, {scores}).Carry("axis").As("weights")});
}

/// Zeros in rows without a key, where the softmax is NaN or the greatest score -inf.
Pat ZerosWithoutKeys(const Pat& scores) {
  const Pat weights = Weights(scores);
  const Pat wide = Call(nn::kCast, {scores}).AnyAttributes().Shared();
  const Pat greatest =
      Call(nn::kReduceMax, {Either({Var("mask"), scores, wide}), Const("max_axes")}).As("greatest");
  return Either(
      {Call(nn::kWhere, {Call(nn::kIsNan, {weights}), Scalar(0), weights}).As("zeros"),
       Call(nn::kWhere, {Call(nn::kEqual, {greatest, Scalar("lowest")}), Scalar(0), weights})
           .As("zeros"),
       weights});
}

Pat AttentionPattern() {
  const Pat scores = Capped(MaybeScaled(Scores(), "scores"));
  return Call(nn::kMatmul, {Either({ZerosWithoutKeys(Masked(scores)), Weights(scores)}), Var("v")});
}

// ---- what must hold ----

/// [batch, heads, rows, features], or with batch and heads in one.
bool AllOfRank4Or3(const RuleMatch& m) {
  const std::optional<int64_t> rank = RankOf(m["q"]);
  return (rank == 4 || rank == 3) && RankOf(m["kt"]) == rank && RankOf(m["v"]) == rank;
}

/// The heads are those of the operands, or keys and values have one for all queries.
bool SameBatchAndHeads(const RuleMatch& m) {
  const auto q = DimsOf(m["q"]), kt = DimsOf(m["kt"]), v = DimsOf(m["v"]);
  for (size_t i = 0; i + 2 < q.size(); ++i) {
    const bool shared = i == 1 && kt[i].IsConstant(1) && v[i].IsConstant(1);
    if (!shared && (!ProvablyEqual(q[i], kt[i]) || !ProvablyEqual(q[i], v[i]))) return false;
  }
  return true;
}

bool OverKeys(const RuleMatch& m) {
  return TrailingAxes({m.attribute("axis").cast<IntAttribute>().value()}, m["scores"]) == 1;
}

/// -inf as the greatest score of a row, over the keys.
bool GreatestOverKeys(const RuleMatch& m) {
  if (!m.Has("lowest")) return true;
  return std::isinf(m.scalar("lowest")) && m.scalar("lowest") < 0 &&
         TrailingAxes(m.ints("max_axes"), m["greatest"]) == 1;
}

bool CapsAgree(const RuleMatch& m) {
  if (!m.Has("cap")) return true;
  const double cap = m.scalar("cap");
  const double inner = m.Has("cap_divisor") ? m.scalar("cap_divisor") : 1 / m.scalar("cap_factor");
  return cap > 0 && std::abs(cap - inner) <= 1e-6 * cap;
}

/// The softmax is rounded to the type of the scores.
bool RoundsBack(const RuleMatch& m) { return ElementOf(m["weights"]) == ElementOf(m["scores"]); }

/// d = min(c, of) with c > 1: then d is 1 just when `of` is.
bool IsCappedAt(const Dim& d, const Dim& of) {
  const std::optional<int64_t> bound = d.UpperBound();
  return bound && *bound > 1 && d == Min(Dim(*bound), of);
}

/// The symbol that is 1 just when `d` is, else unknown.
Dim OneWith(const Dim& d) {
  std::vector<std::string> names;
  d.CollectSymbols(names);
  if (d.is_unknown() || names.size() != 1) return Dim();
  const Dim symbol = Dim::Symbol(names[0]);
  return d == symbol || IsCappedAt(d, symbol) ? symbol : Dim();
}

/// In the op a short mask hides the keys behind its end; in the sum a mask of one key is broadcast.
/// So the mask must have one key only if there is one.
bool MaskCoversKeys(const RuleMatch& m, Value mask) {
  const std::optional<int64_t> rank = RankOf(mask);
  if (!rank || *rank < 1 || *rank > *RankOf(m["scores"])) return false;
  const Dim& last = DimsOf(mask).back();
  const Dim& keys = DimsOf(m["scores"]).back();
  if (last.is_constant()) return last.value() != 1 || keys.IsConstant(1);
  if (ProvablyEqual(last, keys) || IsCappedAt(last, keys)) return true;
  const Dim symbol = OneWith(last);
  if (symbol.is_unknown() || keys.is_unknown()) return false;
  return keys
      .Substitute([&](std::string_view name) {
        return name == symbol.symbol_name() ? Dim(1) : Dim::Symbol(name);
      })
      .IsConstant(1);
}

/// Made of all that `of` is made of, such as the rows of a table at the positions of a step: not an
/// extent that anybody can give beside an `of` of 1. Where it is another one nevertheless, the op
/// refuses the run.
bool Follows(const Dim& d, const Dim& of) {
  std::vector<std::string> parts, all;
  d.CollectSymbols(all);
  of.CollectSymbols(parts);
  return !d.is_symbol() && !parts.empty() && std::ranges::all_of(parts, [&](const auto& name) {
    return std::ranges::find(all, name) != all.end();
  });
}

/// In the sum a mask may have more rows, heads or batches than scores that have one; in the op it
/// must not.
bool MaskStaysWithinScores(const RuleMatch& m, Value mask) {
  const auto dims = DimsOf(mask), scores = DimsOf(m["scores"]);
  for (size_t back = 2; back <= dims.size(); ++back) {
    const Dim &d = dims[dims.size() - back], &of = scores[scores.size() - back];
    if (d.is_unknown() || of.is_unknown() || d.IsConstant(1)) continue;
    if (!ProvablyEqual(d, of) && !Follows(d, of)) return false;
  }
  return true;
}

bool MasksFit(const RuleMatch& m) {
  for (const char* name : {"mask", "mask2", "keep", "drop"}) {
    if (m.Has(name) && !(MaskCoversKeys(m, m[name]) && MaskStaysWithinScores(m, m[name])))
      return false;
  }
  return true;
}

/// score + fill is fill, as where() has it: then a row without any key stays what it was.
bool FillSwallowsScores(const RuleMatch& m) {
  if (!m.Has("fill")) return true;
  const double fill = m.scalar("fill");
  const bool wide = m.constant("fill").element_type() == ElementType::kF32 ||
                    m.constant("fill").element_type() == ElementType::kF64;
  return std::isinf(fill) ? fill < 0 : wide && fill <= -1e30;
}

// ---- extents of scores, read to cut the mask: the scores must not be needed for them ----

bool SameDims(Value a, Value b) {
  const auto x = a.type().dyn_cast<AnyTensorType>(), y = b.type().dyn_cast<AnyTensorType>();
  if (!x || !y || !x.has_rank() || !y.has_rank() || x.rank() != y.rank()) return false;
  for (size_t i = 0; i < x.rank(); ++i) {
    if (!ProvablyEqual(x.dims()[i], y.dims()[i])) return false;
  }
  return true;
}

bool SameDimAt(Value a, Value b, int64_t axis) {
  const std::optional<int64_t> i = AxisFromFront(axis, a);
  return i && RankOf(a) == RankOf(b) &&
         ProvablyEqual(DimsOf(a)[static_cast<size_t>(*i)], DimsOf(b)[static_cast<size_t>(*i)]);
}

/// The shape of a scaled value is that of the value.
Rule ShapeOfScaled() {
  return Rule("shape-of-scaled")
      .Quiet()
      .Match(Call(nn::kShape,
                  {CallOneOf({nn::kDiv, nn::kMul}, {Var("x"), Scalar("c")}).As("y").Shared()})
                 .Carry("start")
                 .Carry("end"))
      .Where([](const RuleMatch& m) { return SameDims(m["x"], m["y"]); }, "the scale is a scalar")
      .Replace(Call(nn::kShape, {Var("x")}).Carry("start").Carry("end"));
}

/// An extent of a product of matrices is that of one of its operands.
Rule ExtentOfProduct() {
  const Pat product = Call(nn::kMatmul, {Var("a"), Var("b")}).AnyAttributes().As("ab").Shared();
  const auto source = [](const RuleMatch& m) {
    const int64_t axis = m.ints("axis").at(0);
    return SameDimAt(m["ab"], m["a"], axis)   ? m["a"]
           : SameDimAt(m["ab"], m["b"], axis) ? m["b"]
                                              : Value();
  };
  return Rule("extent-of-product")
      .Quiet()
      .Match(Call(nn::kGather, {Call(nn::kShape, {product}).Shared(), Const("axis")}))
      .Where([](const RuleMatch& m) { return m.constant("axis").num_elements() == 1; },
             "one extent is read")
      .Replace([source](const RuleMatch& m, Rewriter& rewriter) {
        const Value from = source(m);
        if (!from) return Value();
        const Value operands[] = {rewriter.Create(nn::kShape, {&from, 1})->result(0), m["axis"]};
        return rewriter.Create(nn::kGather, operands)->result(0);
      });
}

// ---- the op ----

Value Transposed(Rewriter& rewriter, Value value, const std::vector<int64_t>& perm) {
  if (std::is_sorted(perm.begin(), perm.end())) return value;
  const NamedAttribute attribute = rewriter.Named("perm", rewriter.Attr(perm));
  return rewriter.Create(nn::kTranspose, {&value, 1}, {&attribute, 1})->result(0);
}

/// k from k^T: through the transpose that made it, if one did.
Value Keys(const RuleMatch& m, Rewriter& rewriter) {
  const Value kt = m["kt"];
  if (m.attribute("transposed").cast<BoolAttribute>().value()) return kt;
  const auto rank = static_cast<size_t>(*RankOf(kt));
  const Operation* maker = kt.defining_op();
  if (maker != nullptr && maker->name() == nn::kTranspose) {
    const auto perm = maker->attribute("perm").dyn_cast<ArrayAttribute>();
    std::optional<std::vector<int64_t>> order = perm ? perm.AsInts() : std::nullopt;
    if (order && order->size() == rank) {
      std::swap((*order)[rank - 2], (*order)[rank - 1]);
      return Transposed(rewriter, maker->operand(0), *order);
    }
  }
  return Transposed(rewriter, kt,
                    rank == 4 ? std::vector<int64_t>{0, 1, 3, 2} : std::vector<int64_t>{0, 2, 1});
}

/// What is added to the scores for a key that is kept or not: 0 or the fill.
Value Chosen(const RuleMatch& m, Rewriter& rewriter) {
  const bool keeps = m.Has("keep");
  if (keeps && std::isinf(m.scalar("fill")) && !m.Has("mask2")) return m["keep"];
  const Value zero = rewriter.Constant(Tensor(m.constant("fill").element_type(), {}));
  const Value operands[] = {keeps ? m["keep"] : m["drop"], keeps ? zero : m["fill"],
                            keeps ? m["fill"] : zero};
  return rewriter.Create(nn::kWhere, operands)->result(0);
}

/// What is added to the scores, or null.
Value Mask(const RuleMatch& m, Rewriter& rewriter) {
  Value mask = m["mask"];
  if (m.Has("keep") || m.Has("drop")) mask = Chosen(m, rewriter);
  if (m.Has("mask2")) {
    const Value operands[] = {mask, m["mask2"]};
    mask = rewriter.Create(nn::kAdd, operands)->result(0);
  }
  if (!mask || RankOf(m["q"]) == 4 || RankOf(mask) != 3) return mask;
  const std::vector<int64_t> axis{1};  // of the one head
  const Value operands[] = {mask, rewriter.Constant(Tensor::Of<int64_t>({1}, axis))};
  return rewriter.Create(nn::kUnsqueeze, operands)->result(0);
}

double ScaleOf(const RuleMatch& m) {
  double scale = 1;
  for (const std::string part : {"scores", "q", "kt"}) {
    if (m.Has(part + "_divisor")) scale /= m.scalar(part + "_divisor");
    if (m.Has(part + "_factor")) scale *= m.scalar(part + "_factor");
  }
  return scale;
}

bool ScaleIsPositive(const RuleMatch& m) {
  const double scale = ScaleOf(m);
  return scale > 0 && std::isfinite(scale);
}

Value MakeAttention(const RuleMatch& m, Rewriter& rewriter) {
  const Value k = Keys(m, rewriter), mask = Mask(m, rewriter);
  std::vector<Value> operands{m["q"], k, m["v"]};
  if (mask) operands.push_back(mask);
  std::vector<NamedAttribute> attributes{
      rewriter.Named("scale", rewriter.Attr(ScaleOf(m))),
      rewriter.Named("nan_rows", rewriter.Attr(!m.Has("zeros")))};
  if (m.Has("cap")) attributes.push_back(rewriter.Named("softcap", rewriter.Attr(m.scalar("cap"))));
  if (m.attribute("to"))
    attributes.push_back(rewriter.Named("softmax_precision", m.attribute("to")));
  if (RankOf(m["q"]) == 3) {
    attributes.push_back(rewriter.Named("q_num_heads", rewriter.Attr(int64_t{1})));
    attributes.push_back(rewriter.Named("kv_num_heads", rewriter.Attr(int64_t{1})));
  }
  return rewriter.Create(nn::kAttention, operands, attributes)->result(0);
}

// ---- batch and heads merged into one dim for the products ----

/// The scores are taken apart for the mask and merged again.
Pat MergedPattern() {
  const Pat kt =
      Call(nn::kTranspose, {MergedHeads("k")}).With("perm", std::vector<int64_t>{0, 2, 1});
  const Pat merged = MaybeScaled(Call(nn::kMatmul, {MergedHeads("q"), kt}), "scores");
  const Pat apart = Call(nn::kReshape, {merged, Var("apart_shape")}).AnyAttributes().As("scores");
  const Pat again = Call(nn::kReshape, {Masked(apart), Var("again_shape")}).AnyAttributes();
  const Pat weights = Call(nn::kSoftmax, {again}).Carry("axis").As("weights");
  const Pat product = Call(nn::kMatmul, {weights, MergedHeads("v")});
  return Call(nn::kReshape, {product, Var("result_shape")}).AnyAttributes();
}

bool MergesHeads(const RuleMatch& m) {
  if (!OperandsMergeHeads(m)) return false;
  const auto q = DimsOf(m["q"]), k = DimsOf(m["k"]), v = DimsOf(m["v"]);
  if (!HasDims(m["scores"], {q[0], q[1], q[2], k[2]})) return false;
  return HasDims(m["weights"], {q[0] * q[1], q[2], k[2]}) &&
         HasDims(m.root()->result(0), {q[0], q[1], q[2], v[3]}) &&
         AxisFromFront(m.attribute("axis").cast<IntAttribute>().value(), m["weights"]) == 2;
}

Value MakeMerged(const RuleMatch& m, Rewriter& rewriter) {
  std::vector<Value> operands{m["q"], m["k"], m["v"]};
  if (const Value mask = Mask(m, rewriter)) operands.push_back(mask);
  const NamedAttribute attributes[] = {rewriter.Named("scale", rewriter.Attr(ScaleOf(m))),
                                       rewriter.Named("nan_rows", rewriter.Attr(true))};
  return rewriter.Create(nn::kAttention, operands, attributes)->result(0);
}

}  // namespace

class FuseAttentionPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Rule> rules;
    rules.push_back(ShapeOfScaled());
    rules.push_back(ExtentOfProduct());
    rules.push_back(
        Rule("attention")
            .AnyExtents()  // MasksFit
            .Match(AttentionPattern())
            .Where(AllOfRank4Or3, "queries, keys and values are of rank 4, or 3")
            .Where(SameBatchAndHeads, "queries, keys and values have the same batch and heads")
            .Where(OverKeys, "the softmax is over the keys")
            .Where(ScaleIsPositive, "the scale is positive")
            .Where(GreatestOverKeys, "rows without a key are those whose greatest score is -inf")
            .Where(CapsAgree, "scores are divided and multiplied by the same cap")
            .Where(RoundsBack, "the softmax comes in the type of the scores")
            .Where(MasksFit, "the mask has an entry for each key, and no more rows than the scores")
            .Where(FillSwallowsScores, "masked scores are -inf or so low that no score shows")
            .Replace(Rule::Maker(MakeAttention)));
    rules.push_back(
        Rule("attention-merged", 2)
            .Match(MergedPattern())
            .Where(MergesHeads, "batch and heads are merged and parted again")
            .Where(ScaleIsPositive, "the scale is positive")
            .Where(MasksFit, "the mask has an entry for each key, and no more rows than the scores")
            .Where(FillSwallowsScores, "masked scores are -inf or so low that no score shows")
            .Replace(Rule::Maker(MakeMerged)));
    // In order: the op knows the extents of its result where a broadcast mask hid them.
    ApplyRulesInOrder(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(fuse_attention, FuseAttentionPass)
    .Doc("recognizes scaled dot product attention, with scale and mask, and makes it one op");

}  // namespace lathe
