#include <cmath>
#include <utility>

#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

/// softmax(mask(scale(q k^T))) v; scale and mask may be missing, either in the usual spellings.
Pat AttentionPattern() {
  const Pat scores =
      Call("nn.matmul", {Var("q"), Var("kt")}).Carry("transpose_y", "transposed").As("scores");
  const Pat scaled = Either({Call("nn.div", {scores, Scalar("divisor")}),
                             Call("nn.mul", {scores, Scalar("factor")}), scores});
  const Pat masked = Either({Call("nn.add", {scaled, Var("mask")}),
                             Call("nn.where", {Var("keep"), scaled, Scalar("fill")}), scaled});
  const Pat weights = Call("nn.softmax", {masked}).Carry("axis").As("weights");
  return Call("nn.matmul", {weights, Var("v")});
}

std::span<const Dim> DimsOf(Value value) { return value.type().cast<AnyTensorType>().dims(); }

bool AllOfRank4(const RuleMatch& m) {
  return RankOf(m["q"]) == 4 && RankOf(m["kt"]) == 4 && RankOf(m["v"]) == 4;
}

/// The heads are those of the operands, not made by broadcasting.
bool SameBatchAndHeads(const RuleMatch& m) {
  for (size_t i = 0; i < 2; ++i) {
    const Dim& d = DimsOf(m["q"])[i];
    if (!ProvablyEqual(d, DimsOf(m["kt"])[i]) || !ProvablyEqual(d, DimsOf(m["v"])[i])) return false;
  }
  return true;
}

bool OverKeys(const RuleMatch& m) {
  return AxisFromFront(m.attribute("axis").cast<IntAttribute>().value(), m["scores"]) == 3;
}

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
  if (!rank || *rank < 1 || *rank > 4) return false;
  const Dim& last = DimsOf(mask).back();
  const Dim& keys = DimsOf(m["scores"])[3];
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

bool MaskFits(const RuleMatch& m) {
  if (m.Has("mask")) return MaskCoversKeys(m, m["mask"]);
  return !m.Has("keep") || MaskCoversKeys(m, m["keep"]);
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
      .Match(Call("nn.shape",
                  {CallOneOf({"nn.div", "nn.mul"}, {Var("x"), Scalar("c")}).As("y").Shared()})
                 .Carry("start")
                 .Carry("end"))
      .Where([](const RuleMatch& m) { return SameDims(m["x"], m["y"]); }, "the scale is a scalar")
      .Replace(Call("nn.shape", {Var("x")}).Carry("start").Carry("end"));
}

/// An extent of a product of matrices is that of one of its operands.
Rule ExtentOfProduct() {
  const Pat product = Call("nn.matmul", {Var("a"), Var("b")}).AnyAttributes().As("ab").Shared();
  const auto source = [](const RuleMatch& m) {
    const int64_t axis = m.ints("axis").at(0);
    return SameDimAt(m["ab"], m["a"], axis)   ? m["a"]
           : SameDimAt(m["ab"], m["b"], axis) ? m["b"]
                                              : Value();
  };
  return Rule("extent-of-product")
      .Quiet()
      .Match(Call("nn.gather", {Call("nn.shape", {product}).Shared(), Const("axis")}))
      .Where([](const RuleMatch& m) { return m.constant("axis").num_elements() == 1; },
             "one extent is read")
      .Replace([source](const RuleMatch& m, Rewriter& rewriter) {
        const Value from = source(m);
        if (!from) return Value();
        const Value operands[] = {rewriter.Create("nn.shape", {&from, 1})->result(0), m["axis"]};
        return rewriter.Create("nn.gather", operands)->result(0);
      });
}

Value Transposed(Rewriter& rewriter, Value value, std::vector<int64_t> perm) {
  bool identity = true;
  for (size_t i = 0; i < perm.size(); ++i) identity &= perm[i] == static_cast<int64_t>(i);
  if (identity) return value;
  const NamedAttribute attribute = rewriter.Named("perm", rewriter.Attr(perm));
  return rewriter.Create("nn.transpose", {&value, 1}, {&attribute, 1})->result(0);
}

/// k from k^T: through the transpose that made it, if one did.
Value Keys(const RuleMatch& m, Rewriter& rewriter) {
  const Value kt = m["kt"];
  if (m.attribute("transposed").cast<BoolAttribute>().value()) return kt;
  const Operation* maker = kt.defining_op();
  if (maker != nullptr && maker->name() == "nn.transpose") {
    const auto perm = maker->attribute("perm").dyn_cast<ArrayAttribute>();
    std::optional<std::vector<int64_t>> order = perm ? perm.AsInts() : std::nullopt;
    if (order && order->size() == 4) {
      std::swap((*order)[2], (*order)[3]);
      return Transposed(rewriter, maker->operand(0), *order);
    }
  }
  return Transposed(rewriter, kt, {0, 1, 3, 2});
}

/// What is added to the scores, or null.
Value Mask(const RuleMatch& m, Rewriter& rewriter) {
  if (m.Has("mask") || !m.Has("keep")) return m["mask"];
  if (std::isinf(m.scalar("fill"))) return m["keep"];
  const ElementType type = m.constant("fill").element_type();
  const Value zero = rewriter.Constant(Tensor(type, {}));
  const Value operands[] = {m["keep"], zero, m["fill"]};
  return rewriter.Create("nn.where", operands)->result(0);
}

Value MakeAttention(const RuleMatch& m, Rewriter& rewriter) {
  double scale = 1;
  if (m.Has("divisor")) scale /= m.scalar("divisor");
  if (m.Has("factor")) scale *= m.scalar("factor");
  const Value k = Keys(m, rewriter), mask = Mask(m, rewriter);
  std::vector<Value> operands{m["q"], k, m["v"]};
  if (mask) operands.push_back(mask);
  const NamedAttribute attribute = rewriter.Named("scale", rewriter.Attr(scale));
  return rewriter.Create("nn.attention", operands, {&attribute, 1})->result(0);
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
            .Match(AttentionPattern())
            .Where(AllOfRank4, "queries, keys and values are of rank 4")
            .Where(SameBatchAndHeads, "queries, keys and values have the same batch and heads")
            .Where(OverKeys, "the softmax is over the keys")
            .Where(MaskFits, "the mask has an entry for each key")
            .Where(FillSwallowsScores, "masked scores are -inf or so low that no score shows")
            .Replace(Rule::Maker(MakeAttention)));
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(fuse_attention, FuseAttentionPass)
    .Doc("recognises scaled dot product attention, with scale and mask, and makes it one op");

}  // namespace lathe
