#include "lathe/pass/rule.h"

#include <algorithm>

#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "src/pass/rule_match.h"

namespace lathe {

using detail::AttrRule;
using detail::PatNode;

// ---- attribute literals ----

bool Holds(Attribute attribute, const AttrLiteral& literal) {
  if (const auto* b = std::get_if<bool>(&literal)) {
    const auto a = attribute.dyn_cast<BoolAttribute>();
    return a && a.value() == *b;
  }
  if (const auto* s = std::get_if<std::string>(&literal)) {
    const auto a = attribute.dyn_cast<StrAttribute>();
    return a && a.value() == *s;
  }
  if (const auto* v = std::get_if<std::vector<int64_t>>(&literal)) {
    const auto a = attribute.dyn_cast<ArrayAttribute>();
    return a && a.AsInts() == *v;
  }
  const double number = std::holds_alternative<double>(literal)
                            ? std::get<double>(literal)
                            : static_cast<double>(std::get<int64_t>(literal));
  if (const auto a = attribute.dyn_cast<FloatAttribute>()) return a.value() == number;
  const auto a = attribute.dyn_cast<IntAttribute>();
  return a && static_cast<double>(a.value()) == number;
}

Attribute MakeAttribute(IrContext& context, const AttrLiteral& literal) {
  struct Visitor {
    IrContext& context;
    Attribute operator()(bool v) const { return BoolAttribute::Get(context, v); }
    Attribute operator()(int64_t v) const { return IntAttribute::Get(context, v); }
    Attribute operator()(double v) const { return FloatAttribute::Get(context, v); }
    Attribute operator()(const std::string& v) const { return StrAttribute::Get(context, v); }
    Attribute operator()(const std::vector<int64_t>& v) const {
      return ArrayAttribute::Get(context, std::span<const int64_t>(v));
    }
  };
  return std::visit(Visitor{context}, literal);
}

// ---- patterns ----

namespace {

Pat MakePat(PatNode node) { return Pat(std::make_shared<PatNode>(std::move(node))); }

template <class Change>
Pat Changed(const Pat& pattern, const Change& change) {
  PatNode node = *pattern.node();
  change(node);
  return MakePat(std::move(node));
}

Pat WithAttribute(const Pat& pattern, AttrRule rule) {
  return Changed(pattern, [&](PatNode& n) { n.attributes.push_back(std::move(rule)); });
}

}  // namespace

Pat Pat::As(std::string name) const {
  return Changed(*this, [&](PatNode& n) { n.name = std::move(name); });
}
Pat Pat::With(std::string attribute, AttrLiteral value) const {
  return WithAttribute(*this, {AttrRule::Kind::kEquals, std::move(attribute), std::move(value)});
}
Pat Pat::With(std::string attribute, const char* value) const {
  return With(std::move(attribute), AttrLiteral(std::string(value)));
}
Pat Pat::With(std::string attribute, int value) const {
  return With(std::move(attribute), AttrLiteral(static_cast<int64_t>(value)));
}
Pat Pat::With(std::string attribute, double value) const {
  return With(std::move(attribute), AttrLiteral(value));
}
Pat Pat::With(std::string attribute, bool value) const {
  return With(std::move(attribute), AttrLiteral(value));
}
Pat Pat::WithIf(std::string attribute, std::function<bool(Attribute)> holds,
                std::string what) const {
  return WithAttribute(*this, {AttrRule::Kind::kHolds, std::move(attribute), false,
                               std::move(holds), std::move(what)});
}
Pat Pat::Carry(std::string attribute, std::string as) const {
  if (as.empty()) as = attribute;
  return WithAttribute(
      *this, {AttrRule::Kind::kCarry, std::move(attribute), false, nullptr, std::move(as)});
}
Pat Pat::Set(std::string attribute, std::function<Attribute(const RuleMatch&)> make) const {
  return WithAttribute(
      *this, {AttrRule::Kind::kSet, std::move(attribute), false, nullptr, "", std::move(make)});
}
Pat Pat::AnyAttributes() const {
  return Changed(*this, [](PatNode& n) { n.any_attributes = true; });
}
Pat Pat::Shared() const {
  return Changed(*this, [](PatNode& n) { n.shared = true; });
}
Pat Pat::Result(size_t index) const {
  return Changed(*this, [&](PatNode& n) { n.result = index; });
}
Pat Pat::Commutes() const {
  return Changed(*this, [](PatNode& n) { n.commutes = true; });
}
Pat Pat::If(std::function<bool(Value)> holds, std::string what) const {
  return Changed(*this,
                 [&](PatNode& n) { n.conditions.emplace_back(std::move(holds), std::move(what)); });
}

namespace pat {

Pat Call(std::string type, std::vector<Pat> operands) {
  return MakePat(
      {.kind = PatNode::Kind::kOp, .types = {std::move(type)}, .children = std::move(operands)});
}
Pat CallOneOf(std::vector<std::string> types, std::vector<Pat> operands) {
  return MakePat(
      {.kind = PatNode::Kind::kOp, .types = std::move(types), .children = std::move(operands)});
}
Pat Var(std::string name) {
  return MakePat({.kind = PatNode::Kind::kVar, .name = std::move(name)});
}
Pat Maybe(std::string name) {
  return MakePat({.kind = PatNode::Kind::kMaybe, .name = std::move(name)});
}
Pat Absent() { return MakePat({.kind = PatNode::Kind::kAbsent}); }
Pat Scalar(double value) { return MakePat({.kind = PatNode::Kind::kScalar, .number = value}); }
Pat Scalar(std::string name) {
  return MakePat({.kind = PatNode::Kind::kAnyScalar, .name = std::move(name)});
}
Pat Const(std::string name) {
  return MakePat({.kind = PatNode::Kind::kConst, .name = std::move(name)});
}
Pat Either(std::vector<Pat> alternatives) {
  LATHE_CHECK(!alternatives.empty(), "Either() of nothing");
  return MakePat({.kind = PatNode::Kind::kEither, .children = std::move(alternatives)});
}
Pat Optional(const std::function<Pat(Pat)>& wrap, const Pat& inner) {
  return Either({wrap(inner), inner});
}
Pat Chain(Pat link, Pat end, size_t min) {
  return MakePat(
      {.kind = PatNode::Kind::kChain, .children = {std::move(link), std::move(end)}, .min = min});
}
Pat Next() { return MakePat({.kind = PatNode::Kind::kNext}); }
Pat Rest(Pat each, size_t min) {
  return MakePat({.kind = PatNode::Kind::kRest, .children = {std::move(each)}, .min = min});
}

}  // namespace pat

// ---- matches ----

Value RuleMatch::operator[](std::string_view name) const {
  for (const Bound& b : values_) {
    if (b.name == name) return b.value;
  }
  return Value();
}

std::vector<Value> RuleMatch::values(std::string_view name) const {
  std::vector<Value> found;
  for (const Bound& b : values_) {
    if (b.name == name) found.push_back(b.value);
  }
  return found;
}

Attribute RuleMatch::attribute(std::string_view name) const {
  for (const BoundAttribute& b : attributes_) {
    if (b.name == name) return b.value;
  }
  return Attribute();
}

Tensor RuleMatch::constant(std::string_view name) const {
  const Tensor* constant = ConstantValue(*program_, (*this)[name]);
  LATHE_CHECK(constant != nullptr, "'", name, "' is not bound to a constant");
  return *constant;
}

double RuleMatch::scalar(std::string_view name) const { return ToDoubles(constant(name)).at(0); }

std::vector<int64_t> RuleMatch::ints(std::string_view name) const {
  return ToInt64s(constant(name));
}

// ---- rules ----

Rule::Rule(std::string name, int benefit) : name_(std::move(name)), benefit_(benefit) {}

Rule& Rule::Match(Pat source) & {
  sources_.push_back(std::move(source));
  return *this;
}
Rule& Rule::Where(Condition holds, std::string what) & {
  conditions_.emplace_back(std::move(holds), std::move(what));
  return *this;
}
Rule& Rule::Replace(Pat result) & {
  result_ = std::move(result);
  return *this;
}
Rule& Rule::Replace(Maker make) & {
  make_ = std::move(make);
  return *this;
}
Rule& Rule::ReplaceAll(MakerOfAll make) & {
  make_all_ = std::move(make);
  return *this;
}

Rule& Rule::Quiet() & {
  quiet_ = true;
  return *this;
}
Rule& Rule::AnyExtents() & {
  any_extents_ = true;
  return *this;
}

namespace detail {

/// The built operation's attributes.
static std::vector<NamedAttribute> BuildAttributes(const PatNode& pat, const RuleMatch& match) {
  std::vector<NamedAttribute> attributes;
  for (const AttrRule& rule : pat.attributes) {
    Attribute value;
    switch (rule.kind) {
      case AttrRule::Kind::kEquals:
        value = MakeAttribute(match.context(), rule.literal);
        break;
      case AttrRule::Kind::kCarry:
        value = match.attribute(rule.text);
        break;
      case AttrRule::Kind::kSet:
        value = rule.make(match);
        break;
      case AttrRule::Kind::kHolds:
        LATHE_CHECK(false, "WithIf() has no place in a result");
    }
    if (value) attributes.push_back({StrAttribute::Get(match.context(), rule.attribute), value});
  }
  return attributes;
}

static Value BuildOp(const PatNode& pat, const RuleMatch& match, Rewriter& rewriter) {
  std::vector<Value> operands;
  for (const Pat& child : pat.children) {
    const PatNode& c = *child.node();
    if (c.kind == PatNode::Kind::kRest) {
      const std::vector<Value> rest = match.values(c.children[0].node()->name);
      operands.insert(operands.end(), rest.begin(), rest.end());
    } else {
      operands.push_back(BuildPat(c, match, rewriter));
    }
  }
  while (!operands.empty() && !operands.back()) operands.pop_back();
  return rewriter.Create(pat.types[0], operands, BuildAttributes(pat, match))->result(pat.result);
}

static Value BuildScalar(const PatNode& pat, const RuleMatch& match, Rewriter& rewriter) {
  const auto type = match.root()->result(0).type().cast<AnyTensorType>();
  return rewriter.Constant(Cast(Tensor::Scalar<double>(pat.number), type.element()));
}

Value BuildPat(const PatNode& pat, const RuleMatch& match, Rewriter& rewriter) {
  switch (pat.kind) {
    case PatNode::Kind::kOp:
      return BuildOp(pat, match, rewriter);
    case PatNode::Kind::kScalar:
      return BuildScalar(pat, match, rewriter);
    case PatNode::Kind::kAbsent:
      return Value();
    case PatNode::Kind::kVar:
      LATHE_CHECK(match.Has(pat.name), "the pattern does not bind '", pat.name, "'");
      return match[pat.name];
    case PatNode::Kind::kMaybe:
    case PatNode::Kind::kAnyScalar:
    case PatNode::Kind::kConst:
      return match[pat.name];
    default:
      LATHE_CHECK(false, "a result pattern is made of Call, Var, Maybe, Scalar and Rest");
  }
  return Value();
}

/// Whether what both types tell of extents is equal whatever the symbols are. An extent that is
/// only not known to differ may be 1 in a run, where the other one is what it is broadcast to.
bool SameExtents(Type a, Type b) {
  const auto x = a.dyn_cast<AnyTensorType>(), y = b.dyn_cast<AnyTensorType>();
  if (!x || !y || !x.has_rank() || !y.has_rank()) return true;
  return std::ranges::equal(x.dims(), y.dims(), [](const Dim& d, const Dim& e) {
    return d.is_unknown() || e.is_unknown() || ProvablyEqual(d, e);
  });
}

/// One rule at one type of root op.
class RulePattern : public RewritePattern {
 public:
  RulePattern(std::shared_ptr<const Rule> rule, std::string root, size_t needed)
      : RewritePattern(rule->name_, std::move(root), rule->benefit_),
        rule_(std::move(rule)),
        near_(std::max<size_t>(2, (needed + 1) / 2)) {}

  bool MatchAndRewrite(Operation* op, Rewriter& rewriter) const override {
    const bool explain = rewriter.wants_remarks() && !rule_->quiet_;
    RuleMatcher matcher(*rule_, rewriter.program(), explain);
    for (const Pat& source : rule_->sources_) {
      if (matcher.Match(*source.node(), op)) return Rewrite(matcher.match(), rewriter);
    }
    if (explain && matcher.furthest() >= near_) {
      rewriter.Missed(op, StrCat(name(), ": ", matcher.why()));
    }
    return false;
  }

 private:
  bool Rewrite(const RuleMatch& match, Rewriter& rewriter) const {
    std::vector<Value> made;
    {
      const Rewriter::Replacing scope(rewriter, match.ops());
      made = Make(match, rewriter);
    }
    if (made.empty() || !Fits(match, made, rewriter)) return false;
    if (rewriter.wants_remarks()) Tell(match, made, rewriter);
    for (size_t i = 0; i < made.size(); ++i) {
      if (made[i]) rewriter.ReplaceAllUses(match.root()->result(i), made[i]);
    }
    Sweep(match, rewriter);
    return true;
  }

  /// A value for each result of the root, or none.
  std::vector<Value> Make(const RuleMatch& match, Rewriter& rewriter) const {
    if (rule_->make_all_ != nullptr) return rule_->make_all_(match, rewriter);
    std::vector<Value> made(match.root()->num_results());
    Value& value = made[RootResult(match)];
    value = rule_->result_ ? BuildPat(*rule_->result_->node(), match, rewriter)
                           : rule_->make_(match, rewriter);
    if (!value) made.clear();
    return made;
  }

  static size_t RootResult(const RuleMatch& match) {
    for (size_t i = 0; i < match.root()->num_results(); ++i) {
      if (!match.root()->result(i).use_empty()) return i;
    }
    return 0;
  }

  /// Whether the new values may stand for the old ones; if not they go again.
  bool Fits(const RuleMatch& match, const std::vector<Value>& made, Rewriter& rewriter) const {
    LATHE_CHECK(made.size() == match.root()->num_results(), "rule ", name(), " made ", made.size(),
                " values for ", match.root()->Describe());
    for (size_t i = 0; i < made.size(); ++i) {
      const Value old = match.root()->result(i);
      if (!made[i] ? old.use_empty()
                   : Compatible(made[i].type(), old.type()) &&
                         (rule_->any_extents_ || SameExtents(made[i].type(), old.type())))
        continue;
      rewriter.Missed(match.root(), StrCat(name(), ": the result would not have the type ",
                                           old.type().ToString()));
      for (const Value v : made) {
        if (v && v.defining_op() != nullptr && v.use_empty()) rewriter.EraseDead(v.defining_op());
      }
      return false;
    }
    return true;
  }

  void Tell(const RuleMatch& match, const std::vector<Value>& made, Rewriter& rewriter) const {
    const auto first = std::find_if(made.begin(), made.end(), [](Value v) { return bool(v); });
    const Operation* maker = first == made.end() ? nullptr : first->defining_op();
    rewriter.Applied(match.root(),
                     StrCat(name(), ": ", match.ops().size(), " ops -> ",
                            maker == nullptr ? std::string_view("a value") : maker->name()));
  }

  /// Erases what the rewrite has left without a use, and what only that read.
  static void Sweep(const RuleMatch& match, Rewriter& rewriter) {
    std::vector<Operation*> makers;
    const auto& ops = match.ops();
    for (size_t i = ops.size(); i-- > 0;) {
      if (!ops[i]->use_empty()) continue;
      for (size_t k = 0; k < ops[i]->num_operands(); ++k) {
        Operation* maker = ops[i]->operand(k) ? ops[i]->operand(k).defining_op() : nullptr;
        if (maker != nullptr && maker->block() == ops[i]->block() &&
            std::find(ops.begin(), ops.end(), maker) == ops.end()) {
          makers.push_back(maker);
        }
      }
      rewriter.Erase(ops[i]);
    }
    // First ones first: what EraseDead drops along the way has been looked at before.
    std::sort(makers.begin(), makers.end(),
              [](const Operation* a, const Operation* b) { return a->IsBefore(b); });
    makers.erase(std::unique(makers.begin(), makers.end()), makers.end());
    for (Operation* maker : makers) rewriter.EraseDead(maker);
  }

  std::shared_ptr<const Rule> rule_;
  size_t near_;  ///< ops matched from which on a failure is told
};

namespace {

/// The op type; an unknown one is an error that names the rule.
OpInfo FindNamed(const std::string& type, const Rule& rule, IrContext& context) {
  try {
    return context.GetOrMakeOp(type);
  } catch (Error& error) {
    error.Note(StrCat("rule '", rule.name(), "' names it"));
    throw;
  }
}

void CheckAttributeName(const std::string& attribute, OpInfo info, const Rule& rule) {
  std::vector<std::string> known;
  for (const StrAttribute n : info.impl()->attribute_names()) known.emplace_back(n.value());
  if (info.def() == nullptr || std::find(known.begin(), known.end(), attribute) != known.end())
    return;
  Error error(
      ErrorCode::kNotFound, "rule/attribute",
      StrCat("rule '", rule.name(), "': ", info.name(), " has no attribute '", attribute, "'"));
  for (const std::string& near : Nearest(attribute, known)) {
    error.Hint(StrCat("did you mean '", near, "'?"));
  }
  throw error;
}

void CheckNames(const PatNode& pat, const Rule& rule, IrContext& context) {
  for (const std::string& type : pat.types) {
    const OpInfo info = FindNamed(type, rule, context);
    for (const AttrRule& a : pat.attributes) CheckAttributeName(a.attribute, info, rule);
  }
  for (const Pat& child : pat.children) CheckNames(*child.node(), rule, context);
}

/// Types of op that may stand at the root; an empty name stands for every type.
void RootTypes(const PatNode& pat, std::vector<std::string>& types) {
  switch (pat.kind) {
    case PatNode::Kind::kOp:
      types.insert(types.end(), pat.types.begin(), pat.types.end());
      break;
    case PatNode::Kind::kEither:
      for (const Pat& child : pat.children) RootTypes(*child.node(), types);
      break;
    case PatNode::Kind::kChain:
      RootTypes(*pat.children[0].node(), types);
      if (pat.min == 0) RootTypes(*pat.children[1].node(), types);
      break;
    default:
      types.emplace_back();
  }
}

/// Ops that every match has.
size_t NeededOps(const PatNode& pat) {
  size_t count = pat.kind == PatNode::Kind::kOp ? 1 : 0;
  size_t least = SIZE_MAX;
  for (const Pat& child : pat.children) {
    const size_t needed = NeededOps(*child.node());
    least = std::min(least, needed);
    count += needed;
  }
  switch (pat.kind) {
    case PatNode::Kind::kEither:
      return least;
    case PatNode::Kind::kChain:
      return pat.min == 0 ? NeededOps(*pat.children[1].node()) : count;
    case PatNode::Kind::kRest:
      return pat.min == 0 ? 0 : count;
    default:
      return count;
  }
}

}  // namespace
}  // namespace detail

void AddRule(Rule rule, IrContext& context, PatternSet& patterns) {
  LATHE_CHECK(!rule.sources_.empty(), "rule '", rule.name(), "' has no source pattern");
  LATHE_CHECK(rule.result_ || rule.make_ || rule.make_all_, "rule '", rule.name(),
              "' has no result");
  const auto shared = std::make_shared<const Rule>(std::move(rule));
  std::vector<std::string> roots;
  size_t needed = SIZE_MAX;
  for (const Pat& source : shared->sources_) {
    detail::CheckNames(*source.node(), *shared, context);
    detail::RootTypes(*source.node(), roots);
    needed = std::min(needed, detail::NeededOps(*source.node()));
  }
  if (shared->result_) detail::CheckNames(*shared->result_->node(), *shared, context);
  std::sort(roots.begin(), roots.end());
  roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
  if (roots.front().empty()) roots.resize(1);
  for (const std::string& root : roots) {
    patterns.push_back(std::make_unique<detail::RulePattern>(shared, root, needed));
  }
}

int64_t ApplyRules(Program& program, Pass* pass, std::vector<Rule> rules) {
  PatternSet patterns;
  for (Rule& rule : rules) AddRule(std::move(rule), program.context(), patterns);
  return ApplyPatternsGreedily(program, pass, patterns);
}

}  // namespace lathe
