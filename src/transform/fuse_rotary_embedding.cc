#include <algorithm>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/rule_words.h"
#include "src/transform/slices.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

// ---- the pairs: (a, b) becomes (a cos - b sin, b cos + a sin) ----

/// Which features of x make pairs.
struct Pairs {
  Value x;
  bool interleaved;
};

std::optional<Pairs> PairsOf(const RuleMatch& m) {
  const auto a = AsSlice(m.program(), m["a"]), b = AsSlice(m.program(), m["b"]);
  if (!a || !b || a->whole != b->whole || RankOf(a->whole) != 4 || a->axis != 3 || b->axis != 3 ||
      a->begin != 0 || a->count != b->count || a->step != b->step ||
      !DimsOf(a->whole)[3].IsConstant(2 * a->count)) {
    return std::nullopt;
  }
  if (a->step == 1 && b->begin == a->count) return Pairs{a->whole, false};
  if (a->step == 2 && b->begin == 1) return Pairs{a->whole, true};
  return std::nullopt;
}

bool MakePairs(const RuleMatch& m, bool interleaved) {
  const std::optional<Pairs> pairs = PairsOf(m);
  if (!pairs || pairs->interleaved != interleaved) return false;
  if (m.Has("x") && m["x"] != pairs->x) return false;
  const ElementType type = ElementOf(pairs->x);
  const auto is = [&](const char* name) { return ElementOf(m[name]) == type; };
  return (type == ElementType::kF32 || type == ElementType::kF16 || type == ElementType::kBF16) &&
         is("cos") && is("sin");
}

// ---- cosines and sines that hold each angle twice ----

/// Whether elements i and i + n of each row of 2 n are equal, or elements 2 i and 2 i + 1.
bool HoldsTwice(const Tensor& t, bool interleaved) {
  if (t.rank() == 0 || !IsFloat(t.element_type())) return false;
  const std::vector<double> values = ToDoubles(t);
  const auto width = static_cast<size_t>(t.dim(-1));
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t at = i % width;
    const size_t twin = interleaved ? (at ^ 1) : (at + width / 2) % width;
    if (values[i] != values[i - at + twin]) return false;
  }
  return width % 2 == 0;
}

/// The operand through which the last dim of the result is that of the operand, element by element.
Value Through(const Program& program, const Operation* op) {
  const std::string_view name = op->name();
  if (name == nn::kCos || name == nn::kSin || name == nn::kCast || name == nn::kNeg ||
      name == nn::kUnsqueeze || name == nn::kSqueeze || name == nn::kExpand || name == nn::kSlice) {
    return op->operand(0);
  }
  if (name == nn::kMul || name == nn::kAdd) {
    for (const size_t i : {0, 1}) {
      const Tensor* constant = ConstantValue(program, op->operand(i));
      if (constant != nullptr && constant->num_elements() == 1) return op->operand(1 - i);
    }
  }
  if (name != nn::kGather) return Value();
  const auto axis = op->attribute("axis").dyn_cast<IntAttribute>();
  return (!axis || axis.value() == 0) && RankOf(op->operand(0)) >= 2 ? op->operand(0) : Value();
}

bool IsConcatOfTwins(const Operation* op) {
  if (op->name() != nn::kConcat || op->num_operands() != 2) return false;
  const auto axis = op->attribute("axis").dyn_cast<IntAttribute>();
  const std::optional<int64_t> rank = RankOf(op->result(0));
  return op->operand(0) == op->operand(1) && axis && rank &&
         AxisFromFront(axis.value(), op->result(0)) == *rank - 1;
}

/// reshape(expand(unsqueeze(t, -1))): each element, and again.
bool IsRepeatOfEach(const Operation* op) {
  if (op->name() != nn::kReshape) return false;
  const Operation* wide = op->operand(0).defining_op();
  if (wide == nullptr || (wide->name() != nn::kExpand && wide->name() != nn::kTile)) return false;
  const Value narrow = wide->operand(0);
  const std::optional<int64_t> rank = RankOf(wide->result(0));
  return rank && rank == RankOf(narrow) && RankOf(op->result(0)) == *rank - 1 &&
         DimsOf(narrow).back().IsConstant(1) && DimsOf(wide->result(0)).back().IsConstant(2) &&
         DimsOf(op->result(0)).back() == DimsOf(narrow)[static_cast<size_t>(*rank - 2)] * Dim(2);
}

bool HoldsTwice(const Program& program, Value value, bool interleaved) {
  const auto width = [](Value v) { return RankOf(v) >= 1 ? DimsOf(v).back() : Dim(); };
  constexpr int kSteps = 32;  // unary ops between the angles and their use; there are a few
  for (int i = 0; i < kSteps; ++i) {
    if (const Tensor* constant = ConstantValue(program, value)) {
      return HoldsTwice(*constant, interleaved);
    }
    const Operation* op = value.defining_op();
    if (op == nullptr) return false;
    if (!interleaved && IsConcatOfTwins(op)) return true;
    if (interleaved && IsRepeatOfEach(op)) return true;
    const Value from = Through(program, op);
    if (!from || !width(from).is_constant() || width(from) != width(value)) return false;
    value = from;
  }
  return false;
}

bool AnglesTwice(const RuleMatch& m, bool interleaved) {
  return HoldsTwice(m.program(), m["cos"], interleaved) &&
         HoldsTwice(m.program(), m["sin"], interleaved);
}

// ---- where the heads are ----

/// The axis of x [B, H, L, E] or [B, L, H, E] along which the angles do not vary.
std::optional<size_t> HeadAxis(Value x, Value angles) {
  const std::optional<int64_t> rank = RankOf(angles);
  if (!rank || *rank < 2 || *rank > 4) return std::nullopt;
  const auto dims = DimsOf(angles);
  const auto from_back = [&](size_t back) {
    return dims.size() < back ? Dim(1) : dims[dims.size() - back];
  };
  const auto fits = [&](size_t axis, size_t back) {
    return ProvablyEqual(from_back(back), DimsOf(x)[axis]);
  };
  const bool batch = from_back(4).IsConstant(1) || fits(0, 4);
  if (batch && from_back(3).IsConstant(1) && fits(2, 2)) return 1;
  if (batch && from_back(2).IsConstant(1) && fits(1, 3)) return 2;
  return std::nullopt;
}

bool HeadsAreKnown(const RuleMatch& m) {
  const Value x = PairsOf(m)->x;
  const std::optional<size_t> axis = HeadAxis(x, m["cos"]);
  if (!axis || HeadAxis(x, m["sin"]) != axis) return false;
  return *axis == 1 || (DimsOf(x)[2].is_constant() && DimsOf(x)[3].is_constant());
}

// ---- the op ----

Value Apply(Rewriter& rewriter, const char* op, Value x, const std::vector<int64_t>& numbers) {
  const auto count = static_cast<int64_t>(numbers.size());
  const Value operands[] = {x, rewriter.Constant(Tensor::Of<int64_t>({count}, numbers))};
  return rewriter.Create(op, operands)->result(0);
}

/// The first of each two angles.
Value Halved(Rewriter& rewriter, Value angles, bool interleaved) {
  const int64_t width = DimsOf(angles).back().value();
  const auto one = [&](int64_t number) {
    return rewriter.Constant(Tensor::Of<int64_t>({1}, std::vector<int64_t>{number}));
  };
  const Value operands[] = {angles, one(0), one(interleaved ? width : width / 2), one(-1),
                            one(interleaved ? 2 : 1)};
  return rewriter.Create(nn::kSlice, operands)->result(0);
}

/// Without the axis of the heads, through the op that made it.
Value WithoutHeads(Rewriter& rewriter, Value angles, size_t axis) {
  const Operation* maker = angles.defining_op();
  if (maker != nullptr && maker->name() == nn::kUnsqueeze && RankOf(maker->operand(0)) == 3) {
    const Tensor* axes = ConstantValue(rewriter.program(), maker->operand(1));
    if (axes != nullptr &&
        AxisFromFront(ToInt64s(*axes).at(0), angles) == static_cast<int64_t>(axis)) {
      return maker->operand(0);
    }
  }
  return Apply(rewriter, nn::kSqueeze, angles, {static_cast<int64_t>(axis)});
}

/// [B, L, R / 2] from what broadcasts to x with the heads at `axis`.
Value Cache(Rewriter& rewriter, Value angles, Value x, size_t axis) {
  if (RankOf(angles) == 4) angles = WithoutHeads(rewriter, angles, axis);
  if (RankOf(angles) == 3 && axis == 2 && DimsOf(angles)[1].IsConstant(1) &&
      !ProvablyEqual(DimsOf(angles)[0], DimsOf(x)[0])) {
    angles = Apply(rewriter, nn::kSqueeze, angles, {1});  // [L, 1, R / 2]
  }
  if (RankOf(angles) == 2) angles = Apply(rewriter, nn::kUnsqueeze, angles, {0});
  const Dim batch = DimsOf(x)[0];
  if (ProvablyEqual(DimsOf(angles)[0], batch)) return angles;
  if (batch.is_constant()) return Apply(rewriter, nn::kExpand, angles, {batch.value(), 1, 1});
  const NamedAttribute end = rewriter.Named("end", rewriter.Attr(int64_t{1}));
  const Value parts[] = {rewriter.Create(nn::kShape, {&x, 1}, {&end, 1})->result(0),
                         rewriter.Constant(Tensor::Of<int64_t>({2}, std::vector<int64_t>{1, 1}))};
  const NamedAttribute first = rewriter.Named("axis", rewriter.Attr(int64_t{0}));
  const Value operands[] = {angles, rewriter.Create(nn::kConcat, parts, {&first, 1})->result(0)};
  return rewriter.Create(nn::kExpand, operands)->result(0);
}

/// The op on x [B, H, L, E] or, with the heads at axis 2, [B, L, H, E]: before the transpose that
/// made that, or with the heads in the last dim.
Value Rotated(Rewriter& rewriter, Value x, size_t axis, std::vector<Value> angles,
              std::vector<NamedAttribute> attributes) {
  const auto make = [&](Value v) {
    angles.insert(angles.begin(), v);
    return rewriter.Create(nn::kRotaryEmbedding, angles, attributes)->result(0);
  };
  const auto all = AsSlice(rewriter.program(), x);  // split off from nothing
  if (all && SameKnownType(all->whole, x) && all->step == 1) x = all->whole;
  if (axis == 1) return make(x);
  const Operation* maker = x.defining_op();
  const NamedAttribute perm =
      rewriter.Named("perm", rewriter.Attr(std::vector<int64_t>{0, 2, 1, 3}));
  if (maker != nullptr && maker->name() == nn::kTranspose &&
      maker->attribute("perm") == perm.value) {
    const Value y = make(maker->operand(0));
    return rewriter.Create(nn::kTranspose, {&y, 1}, {&perm, 1})->result(0);
  }
  const int64_t heads = DimsOf(x)[2].value(), features = DimsOf(x)[3].value();
  attributes.push_back(rewriter.Named("num_heads", rewriter.Attr(heads)));
  const Value y = make(Apply(rewriter, nn::kReshape, x, {0, 0, heads * features}));
  return Apply(rewriter, nn::kReshape, y, {0, 0, heads, features});
}

Value MakeRotary(const RuleMatch& m, Rewriter& rewriter, bool twice) {
  const auto [x, interleaved] = *PairsOf(m);
  const size_t axis = *HeadAxis(x, m["cos"]);
  std::vector<Value> caches;
  for (const char* name : {"cos", "sin"}) {
    const Value cache = Cache(rewriter, m[name], x, axis);
    caches.push_back(twice ? Halved(rewriter, cache, interleaved) : cache);
  }
  return Rotated(rewriter, x, axis, caches,
                 {rewriter.Named("interleaved", rewriter.Attr(interleaved))});
}

// ---- the rules ----

Pat OverLast(std::vector<Pat> parts) {
  return Call(nn::kConcat, std::move(parts)).Carry("axis").As("joined");
}

bool JoinedOverLast(const RuleMatch& m) {
  const auto axis = m.op("joined")->attribute("axis").dyn_cast<IntAttribute>();
  return axis && AxisFromFront(axis.value(), m["joined"]) == RankOf(m["joined"]).value_or(0) - 1;
}

/// first and second of each pair side by side again.
Pat Interleaved(const Pat& first, const Pat& second) {
  const auto deeper = [](const Pat& v, const char* axes) {
    return Call(nn::kUnsqueeze, {v, Const(axes)});
  };
  return Call(nn::kReshape,
              {OverLast({deeper(first, "axes1"), deeper(second, "axes2")}), Var("shape")});
}

bool DeeperAtTheEnd(const RuleMatch& m) {
  for (const char* name : {"axes1", "axes2"}) {
    const std::vector<int64_t> axes = m.ints(name);
    if (axes.size() != 1 || AxisFromFront(axes[0], m["joined"]) != 4) return false;
  }
  return true;
}

bool ResultIsLikeX(const RuleMatch& m) {
  const auto x = DimsOf(PairsOf(m)->x);
  const auto last = m.Has("turned") ? m["turned"] : m.root()->result(0);
  return RankOf(last) == 4 && std::equal(x.begin(), x.end(), DimsOf(last).begin(), ProvablyEqual);
}

Rule Finished(Rule rule, bool interleaved, bool twice) {
  rule.Where([interleaved](const RuleMatch& m) { return MakePairs(m, interleaved); },
             "the pairs are of the two halves, or of neighbors, of one value");
  rule.Where(JoinedOverLast, "the parts are joined over the features");
  if (interleaved) {
    rule.Where(DeeperAtTheEnd, "the parts are joined pair by pair");
    rule.Where(ResultIsLikeX, "the result has the shape of x");
  }
  if (twice) {
    rule.Where([interleaved](const RuleMatch& m) { return AnglesTwice(m, interleaved); },
               "both of a pair are turned by the same angle");
  }
  rule.Where(HeadsAreKnown, "the angles vary over positions and not over heads");
  return std::move(rule).Replace([twice](const RuleMatch& m, Rewriter& rewriter) {
    const Value rotated = MakeRotary(m, rewriter, twice);
    if (!m.Has("kept")) return rotated;
    const Value parts[] = {rotated, m["kept"]};
    const NamedAttribute axis = rewriter.Named("axis", m.attribute("axis"));
    return rewriter.Create(nn::kConcat, parts, {&axis, 1})->result(0);
  });
}

void AddRotations(std::vector<Rule>& rules) {
  const Pat a = Var("a"), b = Var("b"), c = Var("cos"), s = Var("sin");
  const Pat first = Call(nn::kSub, {Call(nn::kMul, {a, c}), Call(nn::kMul, {b, s})});
  const Pat second = Call(nn::kAdd, {Call(nn::kMul, {b, c}), Call(nn::kMul, {a, s})});
  rules.push_back(Finished(
      Rule("halves").Match(OverLast({first, second})).Match(OverLast({first, second, Var("kept")})),
      false, false));
  rules.push_back(Finished(Rule("neighbors").Match(Interleaved(first, second)), true, false));
  const auto turned = [&](const Pat& around) {
    return Call(nn::kAdd, {Call(nn::kMul, {Var("x"), c}), Call(nn::kMul, {around, s})});
  };
  const Pat minus = Call(nn::kNeg, {b});
  rules.push_back(Finished(Rule("rotate-half").Match(turned(OverLast({minus, a}))), false, true));
  rules.push_back(Finished(
      Rule("rotate-every-two").Match(turned(Interleaved(minus, a).As("turned"))), true, true));
}

// ---- what stands around the op ----

Pat RotaryOf(const Pat& x, const Pat& cos, const Pat& sin) {
  return Call(nn::kRotaryEmbedding, {x, cos, sin, Maybe("ids")})
      .Carry("interleaved")
      .Carry("num_heads")
      .Carry("rotary_embedding_dim");
}

/// Features behind the rotated ones are kept: x = [rotated, kept].
bool KeepsTheRest(const RuleMatch& m) {
  const auto head = AsSlice(m.program(), m["part"]), rest = AsSlice(m.program(), m["rest"]);
  return head && rest && head->whole == rest->whole && RankOf(head->whole) == 4 &&
         head->axis == 3 && rest->axis == 3 && head->step == 1 && rest->step == 1 &&
         head->begin == 0 && rest->begin == head->count &&
         DimsOf(head->whole)[3].IsConstant(head->count + rest->count);
}

bool HeadsArePlain(const RuleMatch& m) {
  const Value part = m["part"];
  return m.Has("rows") ? DimsOf(part)[2].is_constant() && DimsOf(part)[3].is_constant() &&
                             m.attribute("num_heads") ==
                                 IntAttribute::Get(m.context(), DimsOf(part)[2].value())
                       : !m.attribute("num_heads");
}

Rule Partial() {
  const auto rotary = [](const Pat& x) {
    return Call(nn::kRotaryEmbedding, {x, Var("cos"), Var("sin"), Maybe("ids")})
        .Carry("interleaved")
        .Carry("num_heads");
  };
  const Pat flat = Call(nn::kReshape, {Var("part"), Const("flat_shape")}).As("rows");
  const Pat rotated =
      Either({rotary(Var("part")), Call(nn::kReshape, {rotary(flat), Const("four")})});
  return Rule("part-of-the-features")
      .Match(OverLast({rotated, Var("rest")}))
      .Where(JoinedOverLast, "the parts are joined over the features")
      .Where(KeepsTheRest, "what follows the rotated features is kept as it is")
      .Where(HeadsArePlain, "the heads are an axis of their own")
      .Replace([](const RuleMatch& m, Rewriter& rewriter) {
        const auto head = AsSlice(m.program(), m["part"]);
        std::vector<Value> angles{m["cos"], m["sin"]};
        if (m.Has("ids")) angles.push_back(m["ids"]);
        return Rotated(rewriter, head->whole, m.Has("rows") ? 2 : 1, angles,
                       {rewriter.Named("interleaved", m.attribute("interleaved")),
                        rewriter.Named("rotary_embedding_dim", rewriter.Attr(head->count))});
      });
}

Rule Positions() {
  const auto row = [](const char* table) {
    return Call(nn::kGather, {Var(table), Var("positions")})
        .WithIf("axis", [](Attribute a) { return !a || a.cast<IntAttribute>().value() == 0; }, "0");
  };
  const auto fits = [](const RuleMatch& m) {
    return RankOf(m["cos"]) == 2 && RankOf(m["sin"]) == 2 && RankOf(m["positions"]) == 2 &&
           !m.Has("ids") && ElementOf(m["positions"]) == ElementType::kI64;
  };
  return Rule("positions")
      .Match(RotaryOf(Var("x"), row("cos"), row("sin")))
      .Where(fits, "rows of tables are taken by position")
      .Replace(Call(nn::kRotaryEmbedding, {Var("x"), Var("cos"), Var("sin"), Var("positions")})
                   .Carry("interleaved")
                   .Carry("num_heads")
                   .Carry("rotary_embedding_dim"));
}

}  // namespace

class FuseRotaryEmbeddingPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Rule> rules;
    AddRotations(rules);
    rules.push_back(Partial());
    rules.push_back(Positions());
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(fuse_rotary_embedding, FuseRotaryEmbeddingPass)
    .Doc("recognizes rotary position embeddings, of halves and of neighbors")
    .Details(
        "Written as rotations of pairs, or as x cos + turned(x) sin with each angle twice; for "
        "some "
        "of the features or all; heads before or behind the positions.");

}  // namespace lathe
