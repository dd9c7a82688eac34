#include "src/pass/rule_match.h"

#include <algorithm>
#include <cmath>

#include "lathe/ir/context.h"
#include "src/pass/search.h"

namespace lathe::detail {

namespace {

constexpr int64_t kBudget = 20000;  // steps at one root; chains of thousands of ops still fit

std::string_view MakerName(Value value) {
  if (!value) return "nothing";
  const Operation* op = value.defining_op();
  return op == nullptr ? "a block argument" : op->name();
}

std::string Listed(const std::vector<std::string>& types) {
  std::string text;
  for (const std::string& t : types) text += (text.empty() ? "" : " or ") + t;
  return text;
}

/// Relative precision with which exporters write a number of that type.
double Precision(ElementType type) {
  switch (type) {
    case ElementType::kF16:
      return 2e-3;
    case ElementType::kBF16:
      return 1.6e-2;
    default:
      return 1e-6;
  }
}

}  // namespace

RuleMatcher::RuleMatcher(const Rule& rule, Program& program, bool explain)
    : rule_(rule), explain_(explain) {
  match_.program_ = &program;
}

bool RuleMatcher::Match(const PatNode& source, Operation* root) {
  Undo(0);
  match_.root_ = root;
  root_result_ = source.kind == PatNode::Kind::kOp ? source.result : 0;
  if (root_result_ >= root->num_results()) return false;
  if (!Search<RuleMatcher>(*this).Run({{&source, root->result(root_result_)}}, kBudget)) {
    return false;
  }
  std::sort(match_.ops_.begin(), match_.ops_.end(),
            [](const Operation* a, const Operation* b) { return a->IsBefore(b); });
  return true;
}

template <class MakeText>
bool RuleMatcher::Fail(const MakeText& text) {
  const size_t reached = match_.ops_.size() + match_.shared_.size() + (accepting_ ? 1 : 0);
  if (explain_ && reached > furthest_) {
    furthest_ = reached;
    why_ = text();
  }
  return false;
}

void RuleMatcher::GaveUp(int64_t steps) {
  furthest_ = SIZE_MAX;
  why_ = StrCat("gave up after ", steps, " steps");
}

void RuleMatcher::Undo(size_t mark) {
  for (; trail_.size() > mark; trail_.pop_back()) {
    switch (trail_.back()) {
      case Trail::kValue:
        match_.values_.pop_back();
        break;
      case Trail::kAttribute:
        match_.attributes_.pop_back();
        break;
      case Trail::kOp:
        taken_.erase(match_.ops_.back());
        match_.ops_.pop_back();
        break;
      case Trail::kShared:
        taken_.erase(match_.shared_.back());
        match_.shared_.pop_back();
        break;
    }
  }
}

const Value* RuleMatcher::FindBound(const Goal& goal) const {
  // Newest first: what a link binds is found at once however long the chain is. Names outside of
  // links (scope 0) may be bound between two names of a link.
  for (auto b = match_.values_.rbegin(); b != match_.values_.rend(); ++b) {
    if (b->scope == goal.scope && b->name == goal.pat->name) return &b->value;
    if (b->scope != 0 && b->scope < goal.scope) return nullptr;
  }
  return nullptr;
}

bool RuleMatcher::Bind(const Goal& goal) {
  if (goal.pat->name.empty()) return true;
  if (const Value* bound = FindBound(goal)) {
    return *bound == goal.value || Fail([&] {
      return StrCat("'", goal.pat->name, "' is two values, made by ", MakerName(*bound), " and by ",
                    MakerName(goal.value));
    });
  }
  match_.values_.push_back({goal.pat->name, goal.scope, goal.value});
  trail_.push_back(Trail::kValue);
  return true;
}

bool RuleMatcher::Try(const Goal& goal, uint32_t alternative, std::vector<Goal>& further,
                      bool& more) {
  const PatNode& pat = *goal.pat;
  switch (pat.kind) {
    case PatNode::Kind::kOp:
      return TryOp(goal, alternative, further, more);
    case PatNode::Kind::kChain:
      return TryChain(goal, alternative, further, more);
    case PatNode::Kind::kAbsent:
      return !goal.value || Fail([&] {
        return StrCat("an operand made by ", MakerName(goal.value), " is there");
      });
    case PatNode::Kind::kMaybe:
      return !goal.value || (IsAdmissible(pat, goal.value) && Bind(goal));
    case PatNode::Kind::kVar:
      return IsAdmissible(pat, goal.value) && Bind(goal);
    case PatNode::Kind::kScalar:
    case PatNode::Kind::kAnyScalar:
    case PatNode::Kind::kConst:
      return TryConstant(goal);
    case PatNode::Kind::kEither: {
      more = alternative + 1 < pat.children.size();
      Goal chosen = goal;
      chosen.pat = pat.children[alternative].node().get();
      further.push_back(chosen);
      return true;
    }
    case PatNode::Kind::kNext: {
      LATHE_CHECK(goal.chain != nullptr, "Next() stands outside of a Chain");
      further.push_back({goal.chain, goal.value, 0, nullptr, goal.links});
      return true;
    }
    case PatNode::Kind::kRest:
      break;
  }
  LATHE_CHECK(false, "Rest() stands elsewhere than last among operands");
  return false;
}

bool RuleMatcher::IsAdmissible(const PatNode& pat, Value value) {
  if (!value) {
    return Fail([&] { return StrCat("the operand '", pat.name, "' is absent"); });
  }
  for (const auto& [holds, what] : pat.conditions) {
    if (!holds(value)) {
      return Fail([&] {
        return StrCat("it does not hold that ", what, " (a value made by ", MakerName(value), ")");
      });
    }
  }
  return true;
}

bool RuleMatcher::TryConstant(const Goal& goal) {
  const PatNode& pat = *goal.pat;
  if (!IsAdmissible(pat, goal.value)) return false;
  const Tensor* constant = ConstantValue(*match_.program_, goal.value);
  if (constant == nullptr) {
    return Fail([&] {
      return StrCat("a value made by ", MakerName(goal.value), " stands where ",
                    pat.kind == PatNode::Kind::kScalar ? StrCat("the constant ", pat.number)
                                                       : StrCat("the constant '", pat.name, "'"),
                    " is expected");
    });
  }
  if (pat.kind != PatNode::Kind::kConst) {
    const ElementType type = constant->element_type();
    if (constant->num_elements() != 1 || !(IsFloat(type) || IsInteger(type))) {
      return Fail([&] { return StrCat("a constant has the type ", constant->TypeString()); });
    }
    const double number = ToDoubles(*constant)[0];
    const double bound = std::abs(pat.number) * Precision(type);
    if (pat.kind == PatNode::Kind::kScalar && !(std::abs(number - pat.number) <= bound)) {
      return Fail([&] { return StrCat("a constant is ", number, ", not ", pat.number); });
    }
  }
  return Bind(goal);
}

bool RuleMatcher::TryChain(const Goal& goal, uint32_t alternative, std::vector<Goal>& further,
                           bool& more) {
  const PatNode& pat = *goal.pat;
  if (alternative == 0) {
    more = goal.links >= pat.min;
    further.push_back({pat.children[0].node().get(), goal.value, ++scopes_, &pat, goal.links + 1});
  } else {
    further.push_back({pat.children[1].node().get(), goal.value});
  }
  return true;
}

bool RuleMatcher::TryOp(const Goal& goal, uint32_t alternative, std::vector<Goal>& further,
                        bool& more) {
  const PatNode& pat = *goal.pat;
  if (!IsAdmissible(pat, goal.value)) return false;
  if (!pat.name.empty()) {
    const Value* bound = FindBound(goal);
    if (bound != nullptr && *bound == goal.value) return true;
  }
  Operation* op = goal.value.defining_op();
  if (op == nullptr || std::find(pat.types.begin(), pat.types.end(), op->name()) == pat.types.end())
    return Fail([&] {
      return StrCat("a value is made by ", MakerName(goal.value), ", not by ", Listed(pat.types));
    });
  if (goal.value.index() != pat.result) {
    return Fail(
        [&] { return StrCat("result ", goal.value.index(), " of ", op->name(), " is read"); });
  }
  if (op->block() != match_.root_->block() || TouchesMutableTensor(op)) {
    return Fail([&] {
      return StrCat(op->Describe(), op->block() != match_.root_->block()
                                        ? " is in another block"
                                        : " works on a mutable tensor");
    });
  }
  const bool swappable = pat.commutes || op->HasTrait<Commutative>();
  more =
      alternative == 0 && swappable && op->num_operands() >= 2 && op->operand(0) != op->operand(1);
  if (!Bind(goal) || !CheckAttributes(pat, op)) return false;
  Take(pat, op);
  return PushOperands(goal, op, alternative == 1, further);
}

bool RuleMatcher::PushOperands(const Goal& goal, const Operation* op, bool swapped,
                               std::vector<Goal>& further) {
  const auto& patterns = goal.pat->children;
  const auto operand = [&](size_t i) {
    const size_t at = swapped && i < 2 ? 1 - i : i;
    return at < op->num_operands() ? op->operand(at) : Value();
  };
  const bool rest = !patterns.empty() && patterns.back().node()->kind == PatNode::Kind::kRest;
  const size_t fixed = patterns.size() - (rest ? 1 : 0);
  for (size_t i = 0; i < fixed; ++i) {
    further.push_back({patterns[i].node().get(), operand(i), goal.scope, goal.chain, goal.links});
  }
  if (!rest) {
    for (size_t i = fixed; i < op->num_operands(); ++i) {
      if (operand(i)) {
        return Fail([&] { return StrCat(op->Describe(), " has a further operand ", i); });
      }
    }
    return true;
  }
  const PatNode& each = *patterns.back().node();
  if (op->num_operands() < fixed + each.min) {
    return Fail([&] { return StrCat(op->Describe(), " has few operands"); });
  }
  for (size_t i = fixed; i < op->num_operands(); ++i) {
    further.push_back({each.children[0].node().get(), operand(i), ++scopes_});
  }
  return true;
}

void RuleMatcher::Take(const PatNode& pat, Operation* op) {
  if (!taken_.insert(op).second) return;
  const bool stays = pat.shared && op != match_.root_;
  (stays ? match_.shared_ : match_.ops_).push_back(op);
  trail_.push_back(stays ? Trail::kShared : Trail::kOp);
}

// ---- attributes ----

bool RuleMatcher::CheckAttributes(const PatNode& pat, const Operation* op) {
  for (const AttrRule& rule : pat.attributes) {
    if (!CheckAttribute(rule, op)) return false;
  }
  if (pat.any_attributes) return true;
  const OpInfoImpl& info = *op->info().impl();
  const auto names = info.attribute_names();
  for (size_t i = 0; i < names.size(); ++i) {
    const Attribute value = op->attributes().Find(names[i]);
    if (value == info.default_value(i)) continue;
    const auto mentions = [&](const AttrRule& r) { return r.attribute == names[i].value(); };
    if (std::any_of(pat.attributes.begin(), pat.attributes.end(), mentions)) continue;
    return Fail([&] {
      return StrCat("attribute '", names[i].value(), "' of ", op->Describe(),
                    " has not its default value");
    });
  }
  return true;
}

bool RuleMatcher::CheckAttribute(const AttrRule& rule, const Operation* op) {
  const Attribute value = op->attribute(rule.attribute);
  if (rule.kind == AttrRule::Kind::kCarry) {
    match_.attributes_.push_back({rule.text, value});
    trail_.push_back(Trail::kAttribute);
    return true;
  }
  const bool holds = rule.kind == AttrRule::Kind::kEquals ? value && Holds(value, rule.literal)
                                                          : rule.holds(value);
  return holds || Fail([&] {
           return StrCat("attribute '", rule.attribute, "' of ", op->Describe(), " is ",
                         value ? value.ToString() : "absent",
                         rule.text.empty() ? "" : StrCat("; it should be ", rule.text));
         });
}

// ---- the whole match ----

bool RuleMatcher::ConsumersAreInside(const Operation* op) {
  for (size_t i = 0; i < op->num_results(); ++i) {
    for (const OpOperand use : op->result(i).uses()) {
      if (taken_.count(use.owner()) != 0) continue;
      return Fail(
          [&] { return StrCat(op->Describe(), " is also read by ", use.owner()->Describe()); });
    }
  }
  return true;
}

bool RuleMatcher::Accept() {
  accepting_ = true;
  const bool accepted = IsAcceptable();
  accepting_ = false;
  return accepted;
}

bool RuleMatcher::IsAcceptable() {
  // Where an empty chain leads from the root to a variable there is no op to replace.
  if (taken_.count(match_.root_) == 0) return false;
  for (const Operation* op : match_.ops_) {
    if (op != match_.root_ && !ConsumersAreInside(op)) return false;
  }
  for (size_t i = 0; i < match_.root_->num_results() && rule_.make_all_ == nullptr; ++i) {
    if (i != root_result_ && !match_.root_->result(i).use_empty()) {
      return Fail(
          [&] { return StrCat("result ", i, " of ", match_.root_->Describe(), " is read"); });
    }
  }
  for (const auto& [holds, what] : rule_.conditions_) {
    if (!holds(match_)) return Fail([&] { return StrCat("it does not hold that ", what); });
  }
  return true;
}

}  // namespace lathe::detail
