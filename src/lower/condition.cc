#include "lathe/lower/condition.h"

#include "lathe/support/text.h"

namespace lathe {

struct Condition::Node {
  enum class Kind : uint8_t { kConstant, kCompare, kAnd, kOr };
  Kind kind;
  bool value = false;  // of a constant
  Relation relation = Relation::kLess;
  Dim a, b;                                 // compared
  std::shared_ptr<const Node> left, right;  // and, or
};

namespace {

std::string_view Symbol(Condition::Relation relation) {
  switch (relation) {
    case Condition::Relation::kLess:
      return "<";
    case Condition::Relation::kLessEqual:
      return "<=";
    case Condition::Relation::kEqual:
      return "==";
    case Condition::Relation::kNotEqual:
      break;
  }
  return "!=";
}

Truth Not(Truth t) {
  if (t == Truth::kUnknown) return t;
  return t == Truth::kTrue ? Truth::kFalse : Truth::kTrue;
}

/// Whether a <= b.
Truth ProveAtMost(const Dim& a, const Dim& b) {
  const Dim difference = b - a;
  if (difference.is_unknown()) return Truth::kUnknown;
  if (const auto low = difference.LowerBound(); low && *low >= 0) return Truth::kTrue;
  if (const auto high = difference.UpperBound(); high && *high < 0) return Truth::kFalse;
  return Truth::kUnknown;
}

Truth ProveRelation(const Dim& a, Condition::Relation relation, const Dim& b) {
  switch (relation) {
    case Condition::Relation::kLess:
      return Not(ProveAtMost(b, a));
    case Condition::Relation::kLessEqual:
      return ProveAtMost(a, b);
    case Condition::Relation::kEqual:
    case Condition::Relation::kNotEqual:
      break;
  }
  Truth equal = ProvablyEqual(a, b) ? Truth::kTrue : Truth::kUnknown;
  if (ProvablyDifferent(a, b)) equal = Truth::kFalse;
  return relation == Condition::Relation::kEqual ? equal : Not(equal);
}

bool Holds(int64_t a, Condition::Relation relation, int64_t b) {
  switch (relation) {
    case Condition::Relation::kLess:
      return a < b;
    case Condition::Relation::kLessEqual:
      return a <= b;
    case Condition::Relation::kEqual:
      return a == b;
    case Condition::Relation::kNotEqual:
      break;
  }
  return a != b;
}

}  // namespace

Condition::Condition() : Condition(Always(true)) {}

Condition Condition::Always(bool value) {
  auto node = std::make_shared<Node>();
  node->kind = Node::Kind::kConstant;
  node->value = value;
  return Condition(std::move(node));
}

Condition Condition::Compare(const Dim& a, Relation relation, const Dim& b) {
  auto node = std::make_shared<Node>();
  node->kind = Node::Kind::kCompare;
  node->relation = relation;
  node->a = a;
  node->b = b;
  return Condition(std::move(node));
}

Condition operator&&(const Condition& a, const Condition& b) {
  using Kind = Condition::Node::Kind;
  if (a.node_->kind == Kind::kConstant) return a.node_->value ? b : a;
  if (b.node_->kind == Kind::kConstant) return b.node_->value ? a : b;
  auto node = std::make_shared<Condition::Node>();
  node->kind = Kind::kAnd;
  node->left = a.node_;
  node->right = b.node_;
  return Condition(std::move(node));
}

Condition operator||(const Condition& a, const Condition& b) { return !(!a && !b); }

Condition operator!(const Condition& a) {
  using Kind = Condition::Node::Kind;
  const auto& n = *a.node_;
  switch (n.kind) {
    case Kind::kConstant:
      return Condition::Always(!n.value);
    case Kind::kCompare:
      switch (n.relation) {
        case Condition::Relation::kLess:
          return Condition::AtMost(n.b, n.a);
        case Condition::Relation::kLessEqual:
          return Condition::Less(n.b, n.a);
        case Condition::Relation::kEqual:
          return Condition::Different(n.a, n.b);
        case Condition::Relation::kNotEqual:
          return Condition::Equal(n.a, n.b);
      }
      break;
    default:
      break;
  }
  auto node = std::make_shared<Condition::Node>();
  node->kind = n.kind == Kind::kAnd ? Kind::kOr : Kind::kAnd;
  node->left = (!Condition(n.left)).node_;
  node->right = (!Condition(n.right)).node_;
  return Condition(std::move(node));
}

Truth Condition::Prove() const {
  const Node& n = *node_;
  if (n.kind == Node::Kind::kConstant) return n.value ? Truth::kTrue : Truth::kFalse;
  if (n.kind == Node::Kind::kCompare) return ProveRelation(n.a, n.relation, n.b);
  const Condition left(n.left), right(n.right);
  const Truth a = left.Prove(), b = right.Prove();
  if (n.kind == Node::Kind::kAnd) {
    return std::min(a, b) == Truth::kUnknown && left == !right ? Truth::kFalse : std::min(a, b);
  }
  return std::max(a, b) == Truth::kUnknown && left == !right ? Truth::kTrue : std::max(a, b);
}

std::optional<bool> Condition::Evaluate(const Dim::Lookup& lookup) const {
  const Node& n = *node_;
  if (n.kind == Node::Kind::kConstant) return n.value;
  if (n.kind == Node::Kind::kCompare) {
    const auto a = n.a.Evaluate(lookup), b = n.b.Evaluate(lookup);
    if (!a || !b) return std::nullopt;
    return Holds(*a, n.relation, *b);
  }
  const auto a = Condition(n.left).Evaluate(lookup), b = Condition(n.right).Evaluate(lookup);
  const bool decides = n.kind == Node::Kind::kOr;  // one such side is enough
  if ((a && *a == decides) || (b && *b == decides)) return decides;
  if (!a || !b) return std::nullopt;
  return !decides;
}

Dim Condition::Indicator() const {
  const Node& n = *node_;
  const auto clamp = [](const Dim& d) { return Max(Min(d, 1), 0); };
  switch (n.kind) {
    case Node::Kind::kConstant:
      return n.value ? 1 : 0;
    case Node::Kind::kAnd:
      return Condition(n.left).Indicator() * Condition(n.right).Indicator();
    case Node::Kind::kOr:
      return Max(Condition(n.left).Indicator(), Condition(n.right).Indicator());
    case Node::Kind::kCompare:
      break;
  }
  if (n.relation == Relation::kLess) return clamp(n.b - n.a);
  if (n.relation == Relation::kLessEqual) return clamp(n.b - n.a + 1);
  const Dim differs = clamp(Max(n.a - n.b, n.b - n.a));
  return n.relation == Relation::kEqual ? Dim(1) - differs : differs;
}

std::string Condition::ToString() const {
  const Node& n = *node_;
  switch (n.kind) {
    case Node::Kind::kConstant:
      return n.value ? "true" : "false";
    case Node::Kind::kCompare:
      if (n.a.is_constant() && n.relation <= Relation::kLessEqual) {
        return StrCat(n.b.ToString(),
                      n.relation == Relation::kLess ? " > " : " >= ", n.a.ToString());
      }
      return StrCat(n.a.ToString(), " ", Symbol(n.relation), " ", n.b.ToString());
    default:
      break;
  }
  const auto side = [&](const std::shared_ptr<const Node>& part) {
    const std::string text = Condition(part).ToString();
    const bool other = part->kind != n.kind && part->kind >= Node::Kind::kAnd;
    return other ? StrCat("(", text, ")") : text;
  };
  return StrCat(side(n.left), n.kind == Node::Kind::kAnd ? " and " : " or ", side(n.right));
}

}  // namespace lathe
