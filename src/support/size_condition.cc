#include "lathe/support/size_condition.h"

#include "lathe/support/error.h"

namespace lathe {
namespace {

thread_local std::vector<SizeAssumption>* assumptions = nullptr;

using Kind = SizeCondition::Kind;

std::optional<bool> DecideEqual(const Dim& a, const Dim& b) {
  if (ProvablyEqual(a, b)) return true;
  if (ProvablyDifferent(a, b)) return false;
  return std::nullopt;
}

std::optional<bool> DecideAtLeast(const Dim& a, const Dim& b) {
  const Dim difference = a - b;
  if (const auto low = difference.LowerBound(); low && *low >= 0) return true;
  if (const auto high = difference.UpperBound(); high && *high < 0) return false;
  return std::nullopt;
}

// One of several suffices.
std::optional<bool> Any(std::initializer_list<std::optional<bool>> truths) {
  bool all_refuted = true;
  for (const auto& truth : truths) {
    if (truth == true) return true;
    all_refuted = all_refuted && truth.has_value();
  }
  return all_refuted ? std::optional(false) : std::nullopt;
}

}  // namespace

std::optional<bool> SizeCondition::Decide() const {
  if (kind == Kind::kAtLeast) {
    return a.is_unknown() || b.is_unknown() ? std::nullopt : DecideAtLeast(a, b);
  }
  const std::optional<bool> equal = DecideEqual(a, b);
  if (kind == Kind::kEqual) return equal;
  if (kind == Kind::kBroadcastTo) return Any({equal, DecideEqual(a, 1)});
  return Any({equal, DecideEqual(a, 1), DecideEqual(b, 1)});
}

bool SizeCondition::Holds(const Dim::Lookup& lookup) const {
  const auto x = a.Evaluate(lookup), y = b.Evaluate(lookup);
  if (!x || !y) return false;
  switch (kind) {
    case Kind::kEqual:
      return *x == *y;
    case Kind::kAtLeast:
      return *x >= *y;
    case Kind::kBroadcast:
      return *x == *y || *x == 1 || *y == 1;
    case Kind::kBroadcastTo:
      return *x == *y || *x == 1;
  }
  return false;
}

std::string SizeCondition::ToString() const {
  const std::string x = a.ToString(), y = b.ToString();
  switch (kind) {
    case Kind::kEqual:
      return StrCat(x, " = ", y);
    case Kind::kAtLeast:
      return StrCat(x, " >= ", y);
    case Kind::kBroadcast:
      if (!a.is_constant() && !b.is_constant()) return StrCat(x, " = ", y, ", or one of them is 1");
      return StrCat(x, " = ", y, ", or ", a.is_constant() ? y : x, " = 1");
    case Kind::kBroadcastTo:
      return StrCat(x, " = ", y, ", or ", x, " = 1");
  }
  return {};
}

AssumptionScope::AssumptionScope(std::vector<SizeAssumption>& list)
    : outer_(std::exchange(assumptions, &list)) {}
AssumptionScope::~AssumptionScope() { assumptions = outer_; }
bool AssumptionScope::IsOpen() { return assumptions != nullptr; }

void AssumptionScope::Add(SizeAssumption assumption) {
  const SizeCondition& c = assumption.condition;
  if (assumptions == nullptr || c.a.is_unknown() || c.b.is_unknown()) return;
  assumptions->push_back(std::move(assumption));
}

void FailAssumption(const SizeAssumption& assumption) {
  Error error(ErrorCode::kShape, assumption.id, assumption.message);
  if (!assumption.hint.empty()) error.Hint(assumption.hint);
  throw error;
}

}  // namespace lathe
