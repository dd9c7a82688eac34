// Values, bounds, substitution and provable facts of symbolic dimensions.

#include <algorithm>
#include <limits>
#include <numeric>

#include "lathe/support/dim_size.h"
#include "lathe/support/error.h"
#include "src/support/dim_node.h"

namespace lathe {

size_t NumNodes(const Dim& dim) {
  const internal::DimNode* node = internal::DimNode::Of(dim);
  return node == nullptr ? 1 : node->size;
}

using internal::DimKind;
using internal::DimNode;
using internal::DimPoly;
using internal::DimTerm;
using internal::Interval;
using internal::kInfinite;
using internal::Wide;

namespace {

using Lookup = Dim::Lookup;

std::optional<int64_t> EvaluateDim(const Dim& dim, const Lookup& lookup);

std::optional<int64_t> EvaluateSum(const DimPoly& sum, const Lookup& lookup) {
  int64_t total = sum.constant;
  for (const DimTerm& term : sum.terms) {
    int64_t product = term.coefficient;
    for (const Dim& factor : term.factors) {
      const auto value = EvaluateDim(factor, lookup);
      if (!value || __builtin_mul_overflow(product, *value, &product)) return std::nullopt;
    }
    if (__builtin_add_overflow(total, product, &total)) return std::nullopt;
  }
  return total;
}

std::optional<int64_t> EvaluatePair(DimKind kind, int64_t a, int64_t b) {
  switch (kind) {
    case DimKind::kFloorDiv:
      return internal::FloorDivide(a, b);
    case DimKind::kCeilDiv:
      return internal::CeilDivide(a, b);
    case DimKind::kMod:
      return internal::Modulo(a, b);
    case DimKind::kMin:
      return std::min(a, b);
    case DimKind::kMax:
      return std::max(a, b);
    default:
      if (a == b || b == 1) return a;
      return a == 1 ? std::optional<int64_t>(b) : std::nullopt;
  }
}

std::optional<int64_t> EvaluateDim(const Dim& dim, const Lookup& lookup) {
  if (dim.is_unknown()) return std::nullopt;
  if (dim.is_constant()) return dim.value();
  const DimNode* node = DimNode::Of(dim);
  if (node->kind == DimKind::kSymbol) return lookup(node->name);
  if (node->kind == DimKind::kSum) return EvaluateSum(node->sum, lookup);
  std::optional<int64_t> result = EvaluateDim(node->operands[0], lookup);
  for (size_t i = 1; i < node->operands.size() && result; ++i) {
    const auto operand = EvaluateDim(node->operands[i], lookup);
    if (!operand) return std::nullopt;
    result = EvaluatePair(node->kind, *result, *operand);
  }
  return result;
}

Wide Clamp(Wide x) { return std::clamp(x, -kInfinite, kInfinite); }

Interval Plus(const Interval& a, const Interval& b) {
  const bool no_low = a.low == -kInfinite || b.low == -kInfinite;
  const bool no_high = a.high == kInfinite || b.high == kInfinite;
  return {no_low ? -kInfinite : Clamp(a.low + b.low), no_high ? kInfinite : Clamp(a.high + b.high)};
}

Wide TimesEnd(Wide a, Wide b) {
  if (a == 0 || b == 0) return 0;
  const bool infinite = a == kInfinite || a == -kInfinite || b == kInfinite || b == -kInfinite;
  if (infinite) return (a < 0) == (b < 0) ? kInfinite : -kInfinite;
  return Clamp(a * b);
}

Interval Times(const Interval& a, const Interval& b) {
  const auto [low, high] = std::minmax({TimesEnd(a.low, b.low), TimesEnd(a.low, b.high),
                                        TimesEnd(a.high, b.low), TimesEnd(a.high, b.high)});
  return {low, high};
}

// a / b for b > 0, rounded down or up; the limit for infinite b.
Wide DivideFinite(Wide a, Wide b, bool up) {
  if (b == kInfinite) return up ? (a > 0 ? 1 : 0) : (a < 0 ? -1 : 0);
  const Wide quotient = a / b;
  if (a % b == 0) return quotient;
  return up ? quotient + (a > 0 ? 1 : 0) : quotient - (a < 0 ? 1 : 0);
}

Interval Divide(const Interval& a, const Interval& b, bool up) {
  if (b.low < 0) return {};
  const Wide least = std::max<Wide>(b.low, 1), most = std::max(b.high, least);  // by zero: no value
  Interval result;
  if (a.low != -kInfinite) {
    result.low = std::min(DivideFinite(a.low, least, up), DivideFinite(a.low, most, up));
  }
  if (a.high != kInfinite) {
    result.high = std::max(DivideFinite(a.high, least, up), DivideFinite(a.high, most, up));
  }
  return result;
}

Interval Remainder(const Interval& a, const Interval& b) {
  if (b.low < 0) return {};
  const Wide below = b.high == kInfinite ? kInfinite : std::max<Wide>(b.high - 1, 0);
  return {0, a.low >= 0 ? std::min(a.high, below) : below};
}

Interval BoundsOf(const Dim& dim);

Interval ProductBounds(Interval product, const std::vector<Dim>& factors) {
  for (const Dim& factor : factors) product = Times(product, BoundsOf(factor));
  return product;
}

// times * others * (x rounded down to a multiple of divisor).
struct Rounded {
  Dim x;
  int64_t divisor;
  int64_t times;
  std::vector<Dim> others;  // factors
};

void AddRounded(std::vector<Rounded>& all, Rounded rounded) {
  for (Rounded& r : all) {
    if (r.divisor != rounded.divisor || !(r.x == rounded.x) || r.others != rounded.others) continue;
    int64_t times = 0;
    const bool fits = !__builtin_add_overflow(r.times, rounded.times, &times);
    if (!fits || times == std::numeric_limits<int64_t>::min()) continue;
    r.times = times;
    return;
  }
  all.push_back(std::move(rounded));
}

bool IsPositiveConstant(const Dim& d) { return d.is_constant() && d.value() > 0; }

// Takes a term apart if it is made of a * floordiv(x, a).
bool TakeApart(const DimTerm& term, std::vector<Rounded>& all) {
  for (size_t i = 0; i < term.factors.size(); ++i) {
    if (!internal::IsFunction(term.factors[i], DimKind::kFloorDiv)) continue;
    const std::vector<Dim>& operands = DimNode::Of(term.factors[i])->operands;
    if (!IsPositiveConstant(operands[1])) continue;
    const int64_t divisor = operands[1].value();
    const bool has_negative = term.coefficient != std::numeric_limits<int64_t>::min();
    if (term.coefficient % divisor != 0 || !has_negative) continue;
    std::vector<Dim> others = term.factors;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    const int64_t times = term.coefficient / divisor;
    AddRounded(all, {operands[0], divisor, times, std::move(others)});
    return true;
  }
  return false;
}

// Rounded, mod(x, b) is the difference of x rounded and x rounded to b, if b is a multiple: where
// there is more of x, it is written so.
void ResolveRests(std::vector<Rounded>& all) {
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].times == 0 || !internal::IsFunction(all[i].x, DimKind::kMod)) continue;
    const std::vector<Dim> mod = DimNode::Of(all[i].x)->operands;
    const bool is_whole = IsPositiveConstant(mod[1]) && mod[1].value() % all[i].divisor == 0;
    const auto has_more = [&](const Rounded& r) { return r.times != 0 && r.x == mod[0]; };
    if (!is_whole || std::ranges::none_of(all, has_more)) continue;
    const Rounded rest = all[i];
    all[i].times = 0;
    AddRounded(all, {mod[0], rest.divisor, rest.times, rest.others});
    AddRounded(all, {mod[0], mod[1].value(), -rest.times, rest.others});
  }
}

// Rounded to a less rounded to b is 0 to b - a if b is a multiple of a.
Interval TakeDifferences(std::vector<Rounded>& all) {
  Interval total{0, 0};
  for (Rounded& a : all) {
    for (Rounded& b : all) {
      if (a.times <= 0 || b.times >= 0 || !(a.x == b.x) || a.others != b.others) continue;
      const Wide times = std::min(Wide{a.times}, -Wide{b.times});
      const Wide apart = Clamp(times * (Wide{b.divisor} - a.divisor));
      const bool fine = b.divisor % a.divisor == 0, coarse = a.divisor % b.divisor == 0;
      if (!fine && !coarse) continue;
      const Interval difference = fine ? Interval{0, apart} : Interval{apart, 0};
      total = Plus(total, ProductBounds(difference, a.others));
      a.times -= static_cast<int64_t>(times);
      b.times += static_cast<int64_t>(times);
    }
  }
  return total;
}

Interval BoundsOfAll(std::vector<Rounded>& all) {
  ResolveRests(all);
  Interval total = TakeDifferences(all);
  for (const Rounded& r : all) {
    if (r.times == 0) continue;
    const Wide times = Clamp(Wide{r.times} * r.divisor);
    const Interval whole = Times({times, times}, BoundsOf(FloorDiv(r.x, r.divisor)));
    total = Plus(total, ProductBounds(whole, r.others));
  }
  return total;
}

// The same sum with k * floordiv(x, k) as x, from which it is at most k - 1 less; nullopt where
// there is none.
struct Relaxed {
  DimPoly sum;
  Interval error{0, 0};
};

std::optional<Relaxed> Relax(const DimPoly& sum) {
  Relaxed relaxed{.sum = {.constant = sum.constant, .terms = {}}};
  bool changed = false;
  for (const DimTerm& term : sum.terms) {
    std::vector<Rounded> rounded;
    DimPoly part{.constant = 0, .terms = {term}};
    if (term.factors.size() == 1 && TakeApart(term, rounded)) {
      const Rounded& r = rounded[0];
      const auto whole = internal::Scale(internal::PolyOf(r.x), r.times);
      if (!whole) return std::nullopt;
      part = *whole;
      relaxed.error = Plus(relaxed.error, Times({r.times, r.times}, {Wide{1} - r.divisor, 0}));
      changed = true;
    }
    auto added = internal::Add(relaxed.sum, part);
    if (!added) return std::nullopt;
    relaxed.sum = *std::move(added);
  }
  return changed ? std::optional(std::move(relaxed)) : std::nullopt;
}

Interval Intersect(const Interval& a, const Interval& b) {
  return {std::max(a.low, b.low), std::min(a.high, b.high)};
}

Interval SumBounds(const DimPoly& sum) {
  Interval total{sum.constant, sum.constant}, rest = total;
  std::vector<Rounded> all;
  size_t apart = 0;
  for (const DimTerm& term : sum.terms) {
    const Interval product = ProductBounds({term.coefficient, term.coefficient}, term.factors);
    total = Plus(total, product);
    if (sum.terms.size() > 1 && TakeApart(term, all)) {
      ++apart;
    } else {
      rest = Plus(rest, product);
    }
  }
  if (apart == 0) return total;
  if (apart > 1) total = Intersect(total, Plus(rest, BoundsOfAll(all)));
  const auto relaxed = Relax(sum);
  return relaxed ? Intersect(total, Plus(SumBounds(relaxed->sum), relaxed->error)) : total;
}

Interval CombineBounds(DimKind kind, const Interval& a, const Interval& b) {
  switch (kind) {
    case DimKind::kFloorDiv:
      return Divide(a, b, false);
    case DimKind::kCeilDiv:
      return Divide(a, b, true);
    case DimKind::kMod:
      return Remainder(a, b);
    case DimKind::kMin:
      return {std::min(a.low, b.low), std::min(a.high, b.high)};
    case DimKind::kMax:
      return {std::max(a.low, b.low), std::max(a.high, b.high)};
    default:  // broadcast: one of the two
      return {std::min(a.low, b.low), std::max(a.high, b.high)};
  }
}

Interval BoundsOf(const Dim& dim) {
  if (dim.is_unknown()) return {0, kInfinite};
  return dim.is_constant() ? Interval{dim.value(), dim.value()} : DimNode::Of(dim)->bounds;
}

std::optional<int64_t> Narrow(Wide x) {
  if (x < std::numeric_limits<int64_t>::min() || x > std::numeric_limits<int64_t>::max()) {
    return std::nullopt;
  }
  return static_cast<int64_t>(x);
}

// No integers make a sum of multiples of g equal to a constant that g does not divide.
bool NeverZero(const DimPoly& poly) {
  int64_t gcd = 0;
  for (const DimTerm& term : poly.terms) {
    if (term.coefficient == std::numeric_limits<int64_t>::min()) return false;
    gcd = std::gcd(gcd, term.coefficient);
  }
  return gcd == 0 ? poly.constant != 0 : poly.constant % gcd != 0;
}

}  // namespace

Interval internal::FindBounds(const DimNode& node) {
  if (node.kind == DimKind::kSymbol) return {0, kInfinite};
  if (node.kind == DimKind::kSum) return SumBounds(node.sum);
  Interval result = BoundsOf(node.operands[0]);
  for (size_t i = 1; i < node.operands.size(); ++i) {
    result = CombineBounds(node.kind, result, BoundsOf(node.operands[i]));
  }
  return result;
}

std::optional<int64_t> Dim::Evaluate(const Lookup& lookup) const {
  return EvaluateDim(*this, lookup);
}

std::optional<int64_t> Dim::Evaluate(std::span<const Binding> bindings) const {
  return EvaluateDim(*this, [bindings](std::string_view name) -> std::optional<int64_t> {
    for (const Binding& binding : bindings) {
      if (binding.first == name) return binding.second;
    }
    return std::nullopt;
  });
}

Dim Dim::Substitute(const Replacement& replace) const {
  if (!is_expression()) return *this;
  const DimNode* node = DimNode::Of(*this);
  if (node->kind == DimKind::kSymbol) return replace(node->name).value_or(*this);
  if (node->kind != DimKind::kSum) {
    std::vector<Dim> operands;
    for (const Dim& operand : node->operands) operands.push_back(operand.Substitute(replace));
    return internal::ApplyFunction(node->kind, operands);
  }
  Dim sum = node->sum.constant;
  for (const DimTerm& term : node->sum.terms) {
    Dim product = term.coefficient;
    for (const Dim& factor : term.factors) product *= factor.Substitute(replace);
    sum += product;
  }
  return sum;
}

std::optional<int64_t> Dim::LowerBound() const { return Narrow(BoundsOf(*this).low); }
std::optional<int64_t> Dim::UpperBound() const { return Narrow(BoundsOf(*this).high); }

void Dim::CollectSymbols(std::vector<std::string>& names) const {
  const DimNode* node = internal::ExpressionOf(*this);
  if (node == nullptr) return;
  if (node->kind == DimKind::kSymbol) {
    if (std::find(names.begin(), names.end(), node->name) == names.end()) {
      names.push_back(node->name);
    }
    return;
  }
  for (const Dim& operand : node->operands) operand.CollectSymbols(names);
  for (const DimTerm& term : node->sum.terms) {
    for (const Dim& factor : term.factors) factor.CollectSymbols(names);
  }
}

bool ProvablyEqual(const Dim& a, const Dim& b) {
  if (a.is_unknown() || b.is_unknown()) return false;
  if (a == b) return true;
  const Dim difference = a - b;
  return !difference.is_unknown() && difference.LowerBound() == 0 && difference.UpperBound() == 0;
}

bool ProvablyDifferent(const Dim& a, const Dim& b) {
  if (a.is_unknown() || b.is_unknown()) return false;
  const Dim difference = a - b;
  if (difference.is_unknown()) return false;
  const auto low = difference.LowerBound();
  const auto high = difference.UpperBound();
  if ((low && *low > 0) || (high && *high < 0)) return true;
  return NeverZero(internal::PolyOf(difference));
}

}  // namespace lathe
