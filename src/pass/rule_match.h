#pragma once

#include <unordered_set>

#include "lathe/pass/rule.h"

namespace lathe::detail {

struct AttrRule {
  enum class Kind : uint8_t { kEquals, kHolds, kCarry, kSet };
  Kind kind;
  std::string attribute;
  AttrLiteral literal = false;
  std::function<bool(Attribute)> holds = {};
  std::string text = "";  ///< kHolds: what must hold; kCarry: the name it goes by
  std::function<Attribute(const RuleMatch&)> make = {};
};

struct PatNode {
  enum class Kind : uint8_t {
    kOp,
    kVar,
    kMaybe,
    kAbsent,
    kScalar,
    kAnyScalar,
    kConst,
    kEither,
    kChain,  ///< children: link, end
    kNext,
    kRest,  ///< children: each
  };
  Kind kind;
  std::string name = "";
  std::vector<std::string> types = {};
  std::vector<Pat> children = {};
  std::vector<AttrRule> attributes = {};
  std::vector<std::pair<std::function<bool(Value)>, std::string>> conditions = {};
  double number = 0;
  size_t result = 0;
  size_t min = 0;
  bool shared = false;
  bool commutes = false;
  bool any_attributes = false;
};

/// Looks for one rule at one root; the search domain of rules.
class RuleMatcher {
 public:
  struct Goal {
    const PatNode* pat;
    Value value;
    uint32_t scope = 0;
    const PatNode* chain = nullptr;  ///< of the link that the goal is part of
    size_t links = 0;                ///< kChain: links found so far
  };
  RuleMatcher(const Rule& rule, Program& program, bool explain);

  /// Matches `source` at `root`.
  bool Match(const PatNode& source, Operation* root);
  const RuleMatch& match() const { return match_; }
  /// Why the search that came furthest failed, and how many ops it had matched by then.
  const std::string& why() const { return why_; }
  size_t furthest() const { return furthest_; }

  bool Try(const Goal& goal, uint32_t alternative, std::vector<Goal>& further, bool& more);
  size_t Mark() const { return trail_.size(); }
  void Undo(size_t mark);
  bool Accept();
  void GaveUp(int64_t steps);

 private:
  enum class Trail : uint8_t { kValue, kAttribute, kOp, kShared };
  template <class MakeText>
  bool Fail(const MakeText& text);
  bool Bind(const Goal& goal);
  const Value* FindBound(const Goal& goal) const;
  bool TryOp(const Goal& goal, uint32_t alternative, std::vector<Goal>& further, bool& more);
  bool TryChain(const Goal& goal, uint32_t alternative, std::vector<Goal>& further, bool& more);
  bool TryConstant(const Goal& goal);
  bool IsAdmissible(const PatNode& pat, Value value);
  bool CheckAttributes(const PatNode& pat, const Operation* op);
  bool CheckAttribute(const AttrRule& rule, const Operation* op);
  bool PushOperands(const Goal& goal, const Operation* op, bool swapped,
                    std::vector<Goal>& further);
  void Take(const PatNode& pat, Operation* op);
  bool ConsumersAreInside(const Operation* op);
  bool IsAcceptable();

  const Rule& rule_;
  bool explain_;
  RuleMatch match_;
  std::vector<Trail> trail_;
  std::unordered_set<const Operation*> taken_;  // membership only
  uint32_t scopes_ = 0;
  size_t root_result_ = 0;
  bool accepting_ = false;
  std::string why_;
  size_t furthest_ = 0;
};

/// Builds the result pattern; null for an absent operand.
Value BuildPat(const PatNode& pat, const RuleMatch& match, Rewriter& rewriter);

}  // namespace lathe::detail
