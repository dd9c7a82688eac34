#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "lathe/pass/rewriter.h"

/// Rewrites written down as source pattern, constraints, result pattern:
///
///   using namespace pat;
///   Rule("gelu-erf")
///       .Match(Call("nn.mul", {Call("nn.mul", {Var("x"), Scalar(0.5)}),
///                            Call("nn.add", {Call("nn.erf", {Call("nn.div", {Var("x"),
///                            Scalar(M_SQRT2)})}),
///                                          Scalar(1.0)})}))
///       .Where([](const RuleMatch& m) { return IsFloat(m["x"]); }, "x is of a floating type")
///       .Replace(Call("nn.gelu", {Var("x")}));
///
/// What holds for every rule: commutative operands are tried both ways, with real backtracking;
/// every op but the root is intermediate (no consumer outside of the match) unless `Shared()`;
/// attributes that the pattern does not mention must have their default values; ops on mutable
/// tensors and ops of another block do not match; new ops carry locations and runtime attributes
/// of what they replace.
namespace lathe {

class RuleMatch;

/// An attribute value in a pattern.
using AttrLiteral = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>>;
/// `attribute` equals `literal`; integers equal floats of the same value.
bool Holds(Attribute attribute, const AttrLiteral& literal);
Attribute MakeAttribute(IrContext& context, const AttrLiteral& literal);

namespace detail {
struct PatNode;
class RuleMatcher;
class RulePattern;
}  // namespace detail

/// A pattern of a value: what it is and what made it. In the result of a rule: how to make it.
/// A handle; patterns are immutable once given to a rule and may be shared.
class Pat {
 public:
  using Node = detail::PatNode;
  explicit Pat(std::shared_ptr<Node> node) : node_(std::move(node)) {}

  /// Binds the value; the same name elsewhere must be the same value.
  Pat As(std::string name) const;
  /// Source: the attribute has this value. Result: it gets it.
  Pat With(std::string attribute, AttrLiteral value) const;
  Pat With(std::string attribute, const char* value) const;
  Pat With(std::string attribute, int value) const;
  Pat With(std::string attribute, double value) const;
  Pat With(std::string attribute, bool value) const;
  /// Source: the attribute satisfies `holds`; `what` is for explanations.
  Pat WithIf(std::string attribute, std::function<bool(Attribute)> holds, std::string what) const;
  /// Source: any value, remembered as `as` (default: its own name). Result: that value, absent if
  /// it was absent.
  Pat Carry(std::string attribute, std::string as = "") const;
  /// Result: computed from the match; null: absent.
  Pat Set(std::string attribute, std::function<Attribute(const RuleMatch&)> make) const;
  /// Source: attributes that are not mentioned may have any value. The rule must not need them.
  Pat AnyAttributes() const;
  /// Source: the op may have consumers outside of the match; it then stays.
  Pat Shared() const;
  /// Source: this result of the op, not the first.
  Pat Result(size_t index) const;
  /// Source: operands 0 and 1 may stand either way though the op type is not Commutative.
  Pat Commutes() const;
  /// Source: a further condition on the value itself, tested as soon as it is reached.
  Pat If(std::function<bool(Value)> holds, std::string what) const;

  const std::shared_ptr<Node>& node() const { return node_; }

 private:
  std::shared_ptr<Node> node_;
};

namespace pat {
/// The result of an op of this type with these operands; further operands must be absent.
Pat Call(std::string type, std::vector<Pat> operands = {});
/// Of one of these types (source only).
Pat CallOneOf(std::vector<std::string> types, std::vector<Pat> operands);
/// Any value.
Pat Var(std::string name);
/// Any value, or an absent optional operand.
Pat Maybe(std::string name);
/// An absent optional operand.
Pat Absent();
/// A constant of one element near `value` (relative, within the precision of its type).
Pat Scalar(double value);
/// Any constant of one element; read it with `RuleMatch::scalar`.
Pat Scalar(std::string name);
/// Any constant or immutable parameter; read it with `RuleMatch::constant`.
Pat Const(std::string name);
/// One of these, in order of preference.
Pat Either(std::vector<Pat> alternatives);
/// `op` may be there or not: `wrap(inner)` or just `inner`.
Pat Optional(const std::function<Pat(Pat)>& wrap, const Pat& inner);
/// `min` or more links, then `end`. A link is a pattern that holds `Next()` once, where the chain
/// goes on. Tried longest first. Names inside a link hold a list, the link nearest the root first.
Pat Chain(Pat link, Pat end, size_t min = 0);
Pat Next();
/// As last operand: all operands from here on, `min` or more, each like `each`. Names inside hold a
/// list.
Pat Rest(Pat each, size_t min = 0);
}  // namespace pat

/// What a rule has found.
class RuleMatch {
 public:
  Program& program() const { return *program_; }
  IrContext& context() const { return program_->context(); }
  Operation* root() const { return root_; }
  /// The bound value; null for an absent operand or a name that this alternative does not bind.
  Value operator[](std::string_view name) const;
  bool Has(std::string_view name) const { return static_cast<bool>((*this)[name]); }
  /// All values bound to a name inside Rest or Chain.
  std::vector<Value> values(std::string_view name) const;
  /// The op that made the value of that name.
  Operation* op(std::string_view name) const { return (*this)[name].defining_op(); }
  /// A carried attribute, null if absent.
  Attribute attribute(std::string_view name) const;
  /// The bound constant; the name must be bound to one.
  Tensor constant(std::string_view name) const;
  double scalar(std::string_view name) const;
  /// Elements of a bound integer constant of rank 0 or 1.
  std::vector<int64_t> ints(std::string_view name) const;
  /// Ops that the rewrite replaces, in program order; the root is last.
  const std::vector<Operation*>& ops() const { return ops_; }

 private:
  friend class detail::RuleMatcher;
  friend class detail::RulePattern;
  struct Bound {
    std::string_view name;
    uint32_t scope;  ///< 0, or the number of the Rest or Chain step that it belongs to
    Value value;
  };
  struct BoundAttribute {
    std::string_view name;
    Attribute value;
  };
  Program* program_ = nullptr;
  Operation* root_ = nullptr;
  std::vector<Bound> values_;
  std::vector<BoundAttribute> attributes_;
  std::vector<Operation*> ops_;
  std::vector<Operation*> shared_;
};

/// A rewrite rule. Build it with the chained calls, then give it to ApplyRules.
class Rule {
 public:
  using Condition = std::function<bool(const RuleMatch&)>;
  using Maker = std::function<Value(const RuleMatch&, Rewriter&)>;
  using MakerOfAll = std::function<std::vector<Value>(const RuleMatch&, Rewriter&)>;

  explicit Rule(std::string name, int benefit = 1);
  /// The source pattern; a further one is an alternative.
  Rule& Match(Pat source) &;
  Rule&& Match(Pat source) && { return std::move(Match(std::move(source))); }
  /// A constraint; the matcher goes on searching when it does not hold. `what` is for explanations.
  Rule& Where(Condition holds, std::string what) &;
  Rule&& Where(Condition holds, std::string what) && {
    return std::move(Where(std::move(holds), std::move(what)));
  }
  /// The result, for the root's result that the pattern names; other results must be unused.
  Rule& Replace(Pat result) &;
  Rule&& Replace(Pat result) && { return std::move(Replace(std::move(result))); }
  /// The result by code; a null value: after all not, nothing was made.
  Rule& Replace(Maker make) &;
  Rule&& Replace(Maker make) && { return std::move(Replace(std::move(make))); }
  /// One value for each result of the root (null where the result must be unused).
  Rule& ReplaceAll(MakerOfAll make) &;
  Rule&& ReplaceAll(MakerOfAll make) && { return std::move(ReplaceAll(std::move(make))); }
  /// A step on the way of others: what almost matched is not worth a remark.
  Rule& Quiet() &;
  Rule&& Quiet() && { return std::move(Quiet()); }
  /// The result may have extents that are not known to be those of the root: the conditions say why
  /// they are, or a constraint of the new op refuses runs where they are not. Otherwise such a
  /// result is not taken, since the root may broadcast an extent of 1.
  Rule& AnyExtents() &;
  Rule&& AnyExtents() && { return std::move(AnyExtents()); }

  const std::string& name() const { return name_; }

 private:
  friend class detail::RulePattern;
  friend class detail::RuleMatcher;
  friend void AddRule(Rule rule, IrContext& context, PatternSet& patterns);
  std::string name_;
  int benefit_;
  bool quiet_ = false;
  bool any_extents_ = false;
  std::vector<Pat> sources_;
  std::vector<std::pair<Condition, std::string>> conditions_;
  std::optional<Pat> result_;
  Maker make_;
  MakerOfAll make_all_;
};

/// Compiles `rule` for the greedy driver. Errors: that of IrContext::GetOrMakeOp for an op that is
/// not registered, rule/attribute for an attribute that the op does not declare (nearest names
/// suggested).
void AddRule(Rule rule, IrContext& context, PatternSet& patterns);
/// Compiles and applies `rules` until none fires; counts hits by rule name; tells what almost
/// matched when remarks are wanted. Returns the number of rewrites.
int64_t ApplyRules(Program& program, Pass* pass, std::vector<Rule> rules);

}  // namespace lathe
