#include <algorithm>
#include <functional>

#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

namespace {

/// What a rule sees of the op at hand.
struct Site {
  Operation* op;
  Rewriter& rewriter;

  Operation* Maker(size_t i) const {
    return op->operand(i) ? op->operand(i).defining_op() : nullptr;
  }
  Type type() const { return op->result(0).type(); }
  const Tensor* Constant(size_t i) const {
    return i < op->num_operands() ? ConstantValue(rewriter.program(), op->operand(i)) : nullptr;
  }
  std::optional<std::vector<int64_t>> Ints(const char* name) const {
    const auto list = op->attribute(name).dyn_cast<ArrayAttribute>();
    return list ? list.AsInts() : std::nullopt;
  }

  /// The op is `value` itself. Not when it would lose what the result's type says.
  bool ReplaceBy(Value value) const {
    if (value.type() != type()) return false;
    rewriter.ReplaceAllUses(op->result(0), value);
    rewriter.EraseDead(op);
    return true;
  }

  /// A new op in place of this one and of `inner`, which goes if nobody else reads it.
  bool ReplaceByNew(Operation* inner, const char* name, std::vector<Value> operands,
                    std::vector<NamedAttribute> attributes) const {
    const std::vector<Operation*> replaced{inner, op};
    const Rewriter::Replacing scope(rewriter, replaced);
    Operation* made = rewriter.Create(name, operands, attributes, 1);
    if (!Compatible(made->result(0).type(), type())) {
      rewriter.Erase(made);
      return false;
    }
    made->result(0).set_type(type());
    rewriter.ReplaceAllUses(op->result(0), made->result(0));
    rewriter.EraseDead(op);
    return true;
  }
};

bool IsA(const Operation* op, const char* name) { return op != nullptr && op->name() == name; }

/// Static and equal, or the same symbols: a reshape between them does nothing.
bool SameKnownType(Value a, Type b) {
  const auto t = b.dyn_cast<AnyTensorType>();
  if (a.type() != b || !t || !t.has_rank()) return false;
  return std::none_of(t.dims().begin(), t.dims().end(),
                      [](const Dim& d) { return d.is_unknown(); });
}

bool AllEqual(const Tensor* t, double value) {
  if (t == nullptr || !(IsFloat(t->element_type()) || IsInteger(t->element_type()))) return false;
  const std::vector<double> all = ToDoubles(*t);
  return !all.empty() && std::all_of(all.begin(), all.end(), [&](double v) { return v == value; });
}

// ---- rules; each returns whether it fired ----

bool SameShapeIsNothing(const Site& s) {
  return SameKnownType(s.op->operand(0), s.type()) && s.ReplaceBy(s.op->operand(0));
}

bool SameTypeIsNothing(const Site& s) { return s.ReplaceBy(s.op->operand(0)); }

std::vector<int64_t> PermOf(const Site& s, const Operation* op) {
  if (const auto list = op->attribute("perm").dyn_cast<ArrayAttribute>()) return *list.AsInts();
  std::vector<int64_t> reversed(s.type().cast<AnyTensorType>().rank());
  for (size_t i = 0; i < reversed.size(); ++i)
    reversed[i] = static_cast<int64_t>(reversed.size() - 1 - i);
  return reversed;
}

bool TransposeOfTranspose(const Site& s) {
  const auto type = s.type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank()) return false;
  std::vector<int64_t> perm = PermOf(s, s.op);
  if (std::is_sorted(perm.begin(), perm.end())) return s.ReplaceBy(s.op->operand(0));
  Operation* inner = s.Maker(0);
  if (!IsA(inner, "nn.transpose")) return false;
  const std::vector<int64_t> first = PermOf(s, inner);
  for (int64_t& p : perm) p = first[static_cast<size_t>(p)];
  return s.ReplaceByNew(
      inner, "nn.transpose", {inner->operand(0)},
      {s.rewriter.Named("perm", s.rewriter.Attr(std::span<const int64_t>(perm)))});
}

/// The outer one alone decides the shape unless it copies extents (0) of its input.
bool ReshapeOfReshape(const Site& s) {
  Operation* inner = s.Maker(0);
  const bool reshapes = IsA(inner, "nn.reshape") || IsA(inner, "nn.flatten") ||
                        IsA(inner, "nn.squeeze") || IsA(inner, "nn.unsqueeze");
  const Tensor* shape = s.Constant(1);
  if (!reshapes || shape == nullptr) return false;
  const std::vector<int64_t> extents = ToInt64s(*shape);
  if (std::find(extents.begin(), extents.end(), 0) != extents.end()) return false;
  return s.ReplaceByNew(inner, "nn.reshape", {inner->operand(0), s.op->operand(1)},
                        {s.rewriter.Named("allowzero", s.op->attribute("allowzero"))});
}

bool InversePair(const Site& s, const char* inverse) {
  Operation* inner = s.Maker(0);
  return IsA(inner, inverse) && SameKnownType(inner->operand(0), s.type()) &&
         s.ReplaceBy(inner->operand(0));
}

/// Every value of `a` is exactly one of `b`.
bool Widens(ElementType a, ElementType b) {
  if (a == ElementType::kBool)
    return IsInteger(b) || b == ElementType::kF32 || b == ElementType::kF64;
  if (IsInteger(a) && IsInteger(b)) {
    return (IsSigned(a) == IsSigned(b) && BitWidth(a) <= BitWidth(b)) ||
           (!IsSigned(a) && IsSigned(b) && BitWidth(a) < BitWidth(b));
  }
  if (b == ElementType::kF64)
    return a == ElementType::kF32 || a == ElementType::kF16 || a == ElementType::kBF16;
  return b == ElementType::kF32 && (a == ElementType::kF16 || a == ElementType::kBF16);
}

bool CastOfCast(const Site& s) {
  Operation* inner = s.Maker(0);
  if (!IsA(inner, "nn.cast")) return false;
  const auto from = inner->operand(0).type().dyn_cast<AnyTensorType>();
  const auto middle = inner->result(0).type().dyn_cast<AnyTensorType>();
  if (!from || !middle || !Widens(from.element(), middle.element())) return false;
  return s.ReplaceByNew(inner, "nn.cast", {inner->operand(0)},
                        std::vector<NamedAttribute>(s.op->attributes().entries().begin(),
                                                    s.op->attributes().entries().end()));
}

bool ConcatOfOne(const Site& s) {
  return s.op->num_operands() == 1 && s.ReplaceBy(s.op->operand(0));
}

/// Steps of one and the shape of the input: the whole of it.
bool WholeSlice(const Site& s) {
  if (!SameKnownType(s.op->operand(0), s.type())) return false;
  const bool has_steps = s.op->num_operands() > 4 && s.op->operand(4);
  return (!has_steps || AllEqual(s.Constant(4), 1)) && s.ReplaceBy(s.op->operand(0));
}

bool PadByNothing(const Site& s) {
  return AllEqual(s.Constant(1), 0) && s.ReplaceBy(s.op->operand(0));
}

/// x + 0, x - 0, x * 1, x / 1, x ** 1. (-0.0 + 0 gives 0.0 when computed; it stays -0.0 here.)
bool NeutralRight(const Site& s, double neutral) {
  return AllEqual(s.Constant(1), neutral) && s.ReplaceBy(s.op->operand(0));
}
bool NeutralEither(const Site& s, double neutral) {
  if (NeutralRight(s, neutral)) return true;
  return AllEqual(s.Constant(0), neutral) && s.ReplaceBy(s.op->operand(1));
}

/// f(f(x)) = f(x).
bool Idempotent(const Site& s) {
  const Operation* inner = s.Maker(0);
  return inner != nullptr && inner->info() == s.op->info() &&
         inner->attributes() == s.op->attributes() && s.ReplaceBy(s.op->operand(0));
}

/// f(f(x)) = x.
bool Involution(const Site& s) {
  const Operation* inner = s.Maker(0);
  return inner != nullptr && inner->info() == s.op->info() && s.ReplaceBy(inner->operand(0));
}

bool KnownCondition(const Site& s) {
  const Tensor* condition = s.Constant(0);
  if (condition == nullptr || condition->num_elements() == 0) return false;
  const auto values = condition->data<bool>();
  const bool first = values[0];
  if (std::any_of(values.begin(), values.end(), [&](bool b) { return b != first; })) return false;
  return s.ReplaceBy(s.op->operand(first ? 1 : 2));
}

// ---- the table ----

using RuleFn = bool (*)(const Site&);

class TablePattern : public RewritePattern {
 public:
  TablePattern(const char* name, const char* root, RuleFn fn)
      : RewritePattern(name, root), fn_(fn) {}
  bool MatchAndRewrite(Operation* op, Rewriter& rewriter) const override {
    const bool on_values = op->num_results() != 0 && !op->result(0).type().isa<TensorType>();
    return on_values && fn_({op, rewriter});
  }

 private:
  RuleFn fn_;
};

struct RuleRow {
  const char* name;
  const char* root;
  RuleFn fn;
};

constexpr RuleRow kRules[] = {
    {"transpose-of-transpose", "nn.transpose", TransposeOfTranspose},
    {"reshape-to-same", "nn.reshape", SameShapeIsNothing},
    {"reshape-of-reshape", "nn.reshape", ReshapeOfReshape},
    {"flatten-to-same", "nn.flatten", SameShapeIsNothing},
    {"squeeze-of-unsqueeze", "nn.squeeze",
     [](const Site& s) { return InversePair(s, "nn.unsqueeze"); }},
    {"unsqueeze-of-squeeze", "nn.unsqueeze",
     [](const Site& s) { return InversePair(s, "nn.squeeze"); }},
    {"squeeze-nothing", "nn.squeeze", SameShapeIsNothing},
    {"expand-to-same", "nn.expand", SameShapeIsNothing},
    {"tile-to-same", "nn.tile", SameShapeIsNothing},
    {"cast-to-same", "nn.cast", SameTypeIsNothing},
    {"cast-of-cast", "nn.cast", CastOfCast},
    {"concat-of-one", "nn.concat", ConcatOfOne},
    {"whole-slice", "nn.slice", WholeSlice},
    {"pad-by-nothing", "nn.pad", PadByNothing},
    {"add-zero", "nn.add", [](const Site& s) { return NeutralEither(s, 0); }},
    {"sub-zero", "nn.sub", [](const Site& s) { return NeutralRight(s, 0); }},
    {"mul-one", "nn.mul", [](const Site& s) { return NeutralEither(s, 1); }},
    {"div-one", "nn.div", [](const Site& s) { return NeutralRight(s, 1); }},
    {"pow-one", "nn.pow", [](const Site& s) { return NeutralRight(s, 1); }},
    {"relu-of-relu", "nn.relu", Idempotent},
    {"abs-of-abs", "nn.abs", Idempotent},
    {"floor-of-floor", "nn.floor", Idempotent},
    {"ceil-of-ceil", "nn.ceil", Idempotent},
    {"round-of-round", "nn.round", Idempotent},
    {"neg-of-neg", "nn.neg", Involution},
    {"not-of-not", "nn.not", Involution},
    {"where-known", "nn.where", KnownCondition},
};

}  // namespace

/// Local algebra on what exporters write. Never needed for correctness.
class CanonicalizePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    PatternSet patterns;
    for (const RuleRow& row : kRules) {
      patterns.push_back(std::make_unique<TablePattern>(row.name, row.root, row.fn));
    }
    ApplyPatternsGreedily(graph.program(), this, patterns);
  }
};

REGISTER_PASS(canonicalize, CanonicalizePass)
    .Doc(
        "removes reshapes, transposes, casts, slices, pads and arithmetic that do nothing or undo "
        "one another");

}  // namespace lathe
