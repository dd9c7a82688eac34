// Division, remainder, minimum, maximum and broadcast of symbolic dimensions. Each rule holds for
// all integers unless it says what it needs; where the original has no value (division by zero, a
// broadcast that does not fit) the simplified form may have any.

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "lathe/support/error.h"
#include "src/support/dim_node.h"

namespace lathe {
namespace internal {

std::optional<int64_t> FloorDivide(int64_t a, int64_t b) {
  if (b == 0 || (b == -1 && a == std::numeric_limits<int64_t>::min())) return std::nullopt;
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::optional<int64_t> CeilDivide(int64_t a, int64_t b) {
  if (b == 0 || (b == -1 && a == std::numeric_limits<int64_t>::min())) return std::nullopt;
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) == (b < 0) ? quotient + 1 : quotient;
}

std::optional<int64_t> Modulo(int64_t a, int64_t b) {
  if (b == 0) return std::nullopt;
  if (b == -1) return 0;
  const int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

namespace {

constexpr size_t kMaxOperands = 16;
constexpr int kMaxDivisionSteps = 64;

bool AtLeast(const Dim& dim, int64_t bound) {
  const auto lower = dim.LowerBound();
  return lower && *lower >= bound;
}

bool AtMost(const Dim& dim, int64_t bound) {
  const auto upper = dim.UpperBound();
  return upper && *upper <= bound;
}

Dim Negated(const Dim& dim) { return Dim(0) - dim; }

// The one term of a product, with a constant as a term without factors; nullopt for a sum.
std::optional<DimTerm> AsMonomial(const DimPoly& poly) {
  if (poly.terms.empty()) return DimTerm{poly.constant, {}};
  if (poly.terms.size() == 1 && poly.constant == 0) return poly.terms[0];
  return std::nullopt;
}

// term / divisor when that is a product of integers again.
std::optional<DimTerm> DivideTerm(const DimTerm& term, const DimTerm& divisor) {
  if (divisor.coefficient == 0 || divisor.coefficient == -1) return std::nullopt;
  if (term.coefficient % divisor.coefficient != 0) return std::nullopt;
  DimTerm result{term.coefficient / divisor.coefficient, {}};
  size_t next = 0;
  for (const Dim& factor : term.factors) {
    if (next < divisor.factors.size() && factor == divisor.factors[next]) {
      ++next;
    } else {
      result.factors.push_back(factor);
    }
  }
  if (next != divisor.factors.size()) return std::nullopt;
  return result;
}

std::optional<DimPoly> AddTerm(const DimPoly& poly, const DimTerm& term) {
  DimPoly single;
  if (term.factors.empty()) {
    single.constant = term.coefficient;
  } else {
    single.terms.push_back(term);
  }
  return Add(poly, single);
}

// a = divisor * quotient + rest, with as much as possible in the quotient.
struct Split {
  DimPoly quotient;
  DimPoly rest;
};

std::optional<Split> SplitBy(const DimPoly& a, const DimTerm& divisor) {
  Split split;
  for (const DimTerm& term : a.terms) {
    const auto part = DivideTerm(term, divisor);
    auto& target = part ? split.quotient : split.rest;
    auto sum = AddTerm(target, part ? *part : term);
    if (!sum) return std::nullopt;
    target = *std::move(sum);
  }
  if (!divisor.factors.empty()) {
    split.rest.constant = a.constant;
    return split;
  }
  const auto constant = FloorDivide(a.constant, divisor.coefficient);
  if (!constant) return std::nullopt;
  if (__builtin_add_overflow(split.quotient.constant, *constant, &split.quotient.constant)) {
    return std::nullopt;
  }
  split.rest.constant = a.constant - *constant * divisor.coefficient;
  return split;
}

// Greatest by degree, then by the order of factors: an order that multiplication keeps.
DimTerm LeadingTerm(const DimPoly& poly) {
  DimTerm best{poly.constant, {}};
  for (const DimTerm& term : poly.terms) {
    const size_t degree = term.factors.size();
    const bool better = degree > best.factors.size() ||
                        (degree == best.factors.size() && Compare(term.factors, best.factors) < 0);
    if (better) best = term;
  }
  return best;
}

// q with a = q * b, if there is one.
std::optional<DimPoly> DivideExactly(DimPoly a, const DimPoly& b) {
  const DimTerm divisor = LeadingTerm(b);
  DimPoly quotient;
  for (int step = 0; step < kMaxDivisionSteps; ++step) {
    if (a.IsZero()) return quotient;
    const auto part = DivideTerm(LeadingTerm(a), divisor);
    if (!part) return std::nullopt;
    const auto factor = AddTerm(DimPoly{}, *part);
    const auto product = Multiply(*factor, b);
    const auto negated = product ? Scale(*product, -1) : std::nullopt;
    auto rest = negated ? Add(a, *negated) : std::nullopt;
    auto sum = Add(quotient, *factor);
    if (!rest || !sum) return std::nullopt;
    a = *std::move(rest);
    quotient = *std::move(sum);
  }
  return std::nullopt;
}

// Greatest common divisor of `start` and all coefficients (not the constant).
int64_t CoefficientGcd(const DimPoly& poly, int64_t start) {
  int64_t gcd = start;
  for (const DimTerm& term : poly.terms) {
    if (term.coefficient == std::numeric_limits<int64_t>::min()) return 1;
    gcd = std::gcd(gcd, term.coefficient);
  }
  return gcd;
}

// Coefficients divided exactly, the constant rounded down.
DimPoly DivideCoefficients(DimPoly poly, int64_t divisor) {
  for (DimTerm& term : poly.terms) term.coefficient /= divisor;
  poly.constant = *FloorDivide(poly.constant, divisor);
  return poly;
}

// x and m of x floordiv m + c, m a positive constant.
struct Nested {
  Dim inner;
  int64_t divisor;
};

std::optional<Nested> NestedDivision(const DimPoly& poly) {
  if (poly.terms.size() != 1 || poly.terms[0].coefficient != 1) return std::nullopt;
  const auto& factors = poly.terms[0].factors;
  if (factors.size() != 1 || !IsFunction(factors[0], DimKind::kFloorDiv)) return std::nullopt;
  const auto& operands = DimNode::Of(factors[0])->operands;
  if (!operands[1].is_constant() || operands[1].value() <= 0) return std::nullopt;
  return Nested{operands[0], operands[1].value()};
}

Dim Extremum(DimKind kind, const Dim& a, const Dim& b);

size_t SizeOf(const Dim& dim) {
  const DimNode* node = DimNode::Of(dim);
  return node == nullptr ? 1 : node->size;
}

// What a sum is the least or the greatest of, if one of its terms is that of several.
struct Alternatives {
  DimKind kind = DimKind::kMax;
  std::vector<Dim> dims;
};

std::optional<Alternatives> AlternativesOf(const DimPoly& poly) {
  for (size_t i = 0; i < poly.terms.size(); ++i) {
    const DimTerm& term = poly.terms[i];
    if (term.coefficient != 1 || term.factors.size() != 1) continue;
    const DimNode* node = DimNode::Of(term.factors[0]);
    if (node->kind != DimKind::kMin && node->kind != DimKind::kMax) continue;
    DimPoly others = poly;
    others.terms.erase(others.terms.begin() + static_cast<ptrdiff_t>(i));
    const Dim rest = MakeSum(std::move(others));
    Alternatives found{node->kind, {}};
    for (const Dim& operand : node->operands) found.dims.push_back(operand + rest);
    return found;
  }
  return std::nullopt;
}

Dim ExtremumOf(const Alternatives& alternatives) {
  Dim result = alternatives.dims[0];
  for (size_t i = 1; i < alternatives.dims.size(); ++i) {
    result = Extremum(alternatives.kind, result, alternatives.dims[i]);
  }
  return result;
}

// Rounding keeps the order: the quotient of the greatest is the greatest quotient. Nullopt where
// that says nothing shorter than `size`.
std::optional<Dim> FloorDivOfExtremum(const DimPoly& poly, int64_t k, size_t size) {
  auto alternatives = AlternativesOf(poly);
  if (!alternatives) return std::nullopt;
  for (Dim& dim : alternatives->dims) dim = FloorDiv(dim, k);
  const Dim result = ExtremumOf(*alternatives);
  if (result.is_unknown() || SizeOf(result) > size) return std::nullopt;
  return result;
}

Dim FloorDivByConstant(const Dim& a, int64_t k) {
  if (k == 0 || k == std::numeric_limits<int64_t>::min()) return Dim::Unknown();
  if (k < 0) return FloorDiv(Negated(a), -k);
  if (k == 1) return a;
  const DimPoly poly = PolyOf(a);
  const auto split = SplitBy(poly, {k, {}});
  if (!split) return Dim::Unknown();
  if (!split->quotient.IsZero()) {
    return MakeSum(split->quotient) + FloorDiv(MakeSum(split->rest), k);
  }
  if (const int64_t gcd = CoefficientGcd(poly, k); gcd > 1) {
    return FloorDiv(MakeSum(DivideCoefficients(poly, gcd)), k / gcd);
  }
  const auto lower = a.LowerBound();
  const auto upper = a.UpperBound();
  if (lower && upper && FloorDivide(*lower, k) == FloorDivide(*upper, k)) {
    return *FloorDivide(*lower, k);
  }
  if (const auto nested = NestedDivision(poly)) {
    int64_t product = 0;
    if (!__builtin_mul_overflow(nested->divisor, k, &product)) {
      return FloorDiv(nested->inner + Dim(poly.constant) * nested->divisor, product);
    }
  }
  Dim quotient = MakeFunction(DimKind::kFloorDiv, {a, k});
  return FloorDivOfExtremum(poly, k, SizeOf(quotient) + 2).value_or(quotient);
}

// x / max(1, x) is min(1, x), which is 1 but for x = 0. Nullopt unless a product with a factor x is
// divided by one with max(1, x), of an x >= 0.
std::optional<Dim> DivideByRaised(DimKind kind, const DimTerm& a, const DimTerm& b) {
  for (size_t i = 0; i < b.factors.size(); ++i) {
    const DimNode* raised = DimNode::Of(b.factors[i]);
    if (raised->kind != DimKind::kMax || raised->operands.size() != 2) continue;
    const auto& [one, x] = std::tie(raised->operands[0], raised->operands[1]);
    const auto same = std::find(a.factors.begin(), a.factors.end(), x);
    if (!one.IsConstant(1) || same == a.factors.end() || !AtLeast(x, 0)) continue;
    DimTerm dividend = a, divisor = b;
    dividend.factors.erase(dividend.factors.begin() + (same - a.factors.begin()));
    divisor.factors.erase(divisor.factors.begin() + static_cast<ptrdiff_t>(i));
    const auto product = [](const DimTerm& term) {
      Dim result = term.coefficient;
      for (const Dim& factor : term.factors) result *= factor;
      return result;
    };
    return Min(1, x) * ApplyFunction(kind, {product(dividend), product(divisor)});
  }
  return std::nullopt;
}

// Division by an expression, rounded as `kind` says.
Dim DivideByExpression(DimKind kind, const Dim& a, const Dim& b) {
  const auto again = [kind](const Dim& x, const Dim& y) {
    return kind == DimKind::kFloorDiv ? FloorDiv(x, y) : CeilDiv(x, y);
  };
  const DimPoly dividend = PolyOf(a);
  const DimPoly divisor = PolyOf(b);
  if (const auto exact = DivideExactly(dividend, divisor)) return MakeSum(*exact);
  const auto monomial = AsMonomial(divisor);
  if (monomial && monomial->coefficient < 0) return again(Negated(a), Negated(b));
  if (monomial) {
    const auto product = AsMonomial(dividend);
    const auto simpler = product ? DivideByRaised(kind, *product, *monomial) : std::nullopt;
    if (simpler) return *simpler;
    const auto split = SplitBy(dividend, *monomial);
    if (!split) return Dim::Unknown();
    if (!split->quotient.IsZero()) {
      return MakeSum(split->quotient) + again(MakeSum(split->rest), b);
    }
  }
  const int64_t constants =
      std::gcd(dividend.constant == std::numeric_limits<int64_t>::min() ? 1 : dividend.constant,
               divisor.constant == std::numeric_limits<int64_t>::min() ? 1 : divisor.constant);
  const int64_t gcd = CoefficientGcd(dividend, CoefficientGcd(divisor, constants));
  if (gcd > 1) {
    return again(MakeSum(DivideCoefficients(dividend, gcd)),
                 MakeSum(DivideCoefficients(divisor, gcd)));
  }
  const bool below = kind == DimKind::kFloorDiv && AtLeast(a, 0) && AtLeast(b - a, 1);
  return below ? Dim(0) : MakeFunction(kind, {a, b});
}

// Replaces mod(x, n) by x in sums whose remainder by k, which divides n, is wanted; nullopt when
// there is none.
std::optional<Dim> DropInnerMods(const DimPoly& poly, int64_t k) {
  Dim sum = poly.constant;
  bool changed = false;
  for (const DimTerm& term : poly.terms) {
    Dim product = term.coefficient;
    for (const Dim& factor : term.factors) {
      const DimNode* node = DimNode::Of(factor);
      const bool inner = node->kind == DimKind::kMod && node->operands[1].is_constant() &&
                         node->operands[1].value() % k == 0;
      changed = changed || inner;
      product = product * (inner ? node->operands[0] : factor);
    }
    sum = sum + product;
  }
  if (!changed || sum.is_unknown()) return std::nullopt;
  return sum;
}

Dim ModByConstant(const Dim& a, int64_t k) {
  if (k == 0 || k == std::numeric_limits<int64_t>::min()) return Dim::Unknown();
  if (k < 0) return Negated(Mod(Negated(a), -k));
  if (k == 1) return 0;
  DimPoly reduced = PolyOf(a);
  reduced.constant = *Modulo(reduced.constant, k);
  for (DimTerm& term : reduced.terms) term.coefficient = *Modulo(term.coefficient, k);
  std::erase_if(reduced.terms, [](const DimTerm& term) { return term.coefficient == 0; });
  const Dim rest = MakeSum(reduced);
  if (rest.is_constant()) return rest;
  if (const int64_t gcd = CoefficientGcd(reduced, k); gcd > 1) {
    const Dim inner = Mod(MakeSum(DivideCoefficients(reduced, gcd)), k / gcd);
    return inner * gcd + Dim(reduced.constant % gcd);
  }
  if (AtLeast(rest, 0) && AtMost(rest, k - 1)) return rest;
  if (const auto simpler = DropInnerMods(reduced, k)) return Mod(*simpler, k);
  return MakeFunction(DimKind::kMod, {rest, k});
}

Dim ModByExpression(const Dim& a, const Dim& b) {
  const DimPoly dividend = PolyOf(a);
  const DimPoly divisor = PolyOf(b);
  if (DivideExactly(dividend, divisor)) return 0;
  const auto monomial = AsMonomial(divisor);
  if (monomial && monomial->coefficient < 0) return Negated(Mod(Negated(a), Negated(b)));
  if (monomial) {
    const auto split = SplitBy(dividend, *monomial);
    if (split && !split->quotient.IsZero()) return Mod(MakeSum(split->rest), b);
  }
  if (AtLeast(a, 0) && AtLeast(b - a, 1)) return a;
  return MakeFunction(DimKind::kMod, {a, b});
}

// The operands of nested functions of the same kind side by side, sorted, each once.
std::vector<Dim> Flatten(DimKind kind, const Dim& a, const Dim& b) {
  std::vector<Dim> operands;
  for (const Dim* side : {&a, &b}) {
    if (IsFunction(*side, kind)) {
      const auto& inner = DimNode::Of(*side)->operands;
      operands.insert(operands.end(), inner.begin(), inner.end());
    } else {
      operands.push_back(*side);
    }
  }
  std::sort(operands.begin(), operands.end(),
            [](const Dim& x, const Dim& y) { return Compare(x, y) < 0; });
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  return operands;
}

// Whether it is floordiv(u, k) - floordiv(v, k) + c, which is not negative if u + c * k >= v.
bool IsGrowthOfQuotient(const Dim& difference) {
  const DimPoly poly = PolyOf(difference);
  if (poly.terms.size() != 2) return false;
  const DimNode* quotients[2] = {};  // that is added, that is subtracted
  for (const DimTerm& term : poly.terms) {
    const bool is_one = term.factors.size() == 1 && IsFunction(term.factors[0], DimKind::kFloorDiv);
    if (!is_one || (term.coefficient != 1 && term.coefficient != -1)) return false;
    quotients[term.coefficient == 1 ? 0 : 1] = DimNode::Of(term.factors[0]);
  }
  if (quotients[0] == nullptr || quotients[1] == nullptr) return false;
  const Dim& k = quotients[0]->operands[1];
  if (!(k == quotients[1]->operands[1]) || !AtLeast(k, 1)) return false;
  const Dim more = quotients[0]->operands[0] + Dim(poly.constant) * k - quotients[1]->operands[0];
  return !more.is_unknown() && AtLeast(more, 0);
}

// Whether `x` can be left out of an extremum that `y` takes part in.
bool Dominates(DimKind kind, const Dim& y, const Dim& x) {
  const Dim more = kind == DimKind::kMax ? y - x : x - y;
  return !more.is_unknown() && (AtLeast(more, 0) || IsGrowthOfQuotient(more));
}

Dim Extremum(DimKind kind, const Dim& a, const Dim& b) {
  if (a.is_unknown() || b.is_unknown()) return Dim::Unknown();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (kind == DimKind::kMin && a.IsConstant(kMost)) return b;
  if (kind == DimKind::kMin && b.IsConstant(kMost)) return a;
  if (Dominates(kind, a, b)) return a;
  if (Dominates(kind, b, a)) return b;
  std::vector<Dim> operands = Flatten(kind, a, b);
  if (operands.size() > kMaxOperands) return Dim::Unknown();
  for (size_t i = 0; i < operands.size();) {
    bool dominated = false;
    for (size_t j = 0; j < operands.size() && !dominated; ++j) {
      dominated = i != j && Dominates(kind, operands[j], operands[i]);
    }
    if (dominated) {
      operands.erase(operands.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return operands.size() == 1 ? operands[0] : MakeFunction(kind, std::move(operands));
}

}  // namespace

// By how much every operand of b is more than that of a, both being the least, or both the greatest
// of as many; nullopt if there is no such number.
static std::optional<int64_t> ShiftOf(const Dim& a, const Dim& b) {
  const DimNode *left = DimNode::Of(a), *right = DimNode::Of(b);
  const bool is_extremum = left->kind == DimKind::kMin || left->kind == DimKind::kMax;
  const size_t count = left->operands.size();
  if (!is_extremum || right->kind != left->kind || right->operands.size() != count) return {};
  const Dim shift = right->operands[0] - left->operands[0];
  bool is_same = shift.is_constant();
  for (size_t i = 1; i < count && is_same; ++i) {
    is_same = right->operands[i] - left->operands[i] == shift;
  }
  return is_same ? std::optional(shift.value()) : std::nullopt;
}

// term, with `first` for a factor that is `first` and a number: first * others + number * others.
static std::optional<DimPoly> InTermsOf(const DimTerm& first, const DimTerm& term) {
  if (first.factors.size() != term.factors.size()) return std::nullopt;
  const auto [a, b] = std::ranges::mismatch(first.factors, term.factors);
  if (a == first.factors.end() || !std::equal(a + 1, first.factors.end(), b + 1)) return {};
  const auto shift = ShiftOf(*a, *b);
  if (!shift) return std::nullopt;
  DimTerm same{term.coefficient, first.factors}, rest = term;
  rest.factors.erase(rest.factors.begin() + (b - term.factors.begin()));
  if (__builtin_mul_overflow(term.coefficient, *shift, &rest.coefficient)) return std::nullopt;
  if (rest.factors.empty()) return DimPoly{rest.coefficient, {std::move(same)}};
  return Add({.constant = 0, .terms = {std::move(same)}},
             {.constant = 0, .terms = {std::move(rest)}});
}

std::optional<DimPoly> UniteExtrema(const DimPoly& poly) {
  for (size_t i = 0; i < poly.terms.size(); ++i) {
    for (size_t j = i + 1; j < poly.terms.size(); ++j) {
      const auto part = InTermsOf(poly.terms[i], poly.terms[j]);
      if (!part) continue;
      DimPoly others = poly;
      others.terms.erase(others.terms.begin() + static_cast<ptrdiff_t>(j));
      return Add(others, *part);
    }
  }
  return std::nullopt;
}

std::optional<Dim> ShiftedExtremum(const DimPoly& poly) {
  if (poly.constant == 0 || poly.terms.size() != 1) return std::nullopt;
  const auto alternatives = AlternativesOf(poly);
  return alternatives ? std::optional(ExtremumOf(*alternatives)) : std::nullopt;
}

Dim ApplyFunction(DimKind kind, const std::vector<Dim>& operands) {
  LATHE_CHECK(operands.size() >= 2);
  Dim result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    switch (kind) {
      case DimKind::kFloorDiv:
        result = FloorDiv(result, operands[i]);
        break;
      case DimKind::kCeilDiv:
        result = CeilDiv(result, operands[i]);
        break;
      case DimKind::kMod:
        result = Mod(result, operands[i]);
        break;
      case DimKind::kMin:
        result = Min(result, operands[i]);
        break;
      case DimKind::kMax:
        result = Max(result, operands[i]);
        break;
      case DimKind::kBroadcast:
        result = Broadcast(result, operands[i]);
        break;
      default:
        LATHE_CHECK(false, "not a function");
    }
  }
  return result;
}

/// Whether `capped` is min(c, d) with c >= 2 and d among `operands`. Beside d it says nothing in a
/// broadcast: one of the two is 1 just when the other is, so where they fit they are equal.
static bool IsCappedBeside(const Dim& capped, const std::vector<Dim>& operands) {
  if (!IsFunction(capped, DimKind::kMin)) return false;
  const std::vector<Dim>& parts = ExpressionOf(capped)->operands;
  return std::any_of(operands.begin(), operands.end(), [&](const Dim& d) {
    const auto harmless = [&](const Dim& part) { return part == d || AtLeast(part, 2); };
    return std::find(parts.begin(), parts.end(), d) != parts.end() &&
           std::all_of(parts.begin(), parts.end(), harmless);
  });
}

/// Whether `raised` is max(1, d) with d >= 0 among `operands`. Beside d it says nothing: it differs
/// only where d is 0, and then it is 1.
static bool IsRaisedBeside(const Dim& raised, const std::vector<Dim>& operands) {
  const auto alternatives = AlternativesOf(PolyOf(raised));
  if (!alternatives || alternatives->kind != DimKind::kMax) return false;
  const std::vector<Dim>& parts = alternatives->dims;
  return std::any_of(operands.begin(), operands.end(), [&](const Dim& d) {
    const auto harmless = [&](const Dim& part) { return part == d || part.IsConstant(1); };
    return std::find(parts.begin(), parts.end(), d) != parts.end() && AtLeast(d, 0) &&
           std::all_of(parts.begin(), parts.end(), harmless);
  });
}

/// An extent that decides a broadcast, whatever the others are.
static bool IsNeverOne(const Dim& dim) { return AtLeast(dim, 2) || ProvablyDifferent(dim, 1); }

}  // namespace internal

using internal::DimKind;

Dim FloorDiv(const Dim& a, const Dim& b) {
  if (a.is_unknown() || b.is_unknown()) return Dim::Unknown();
  if (a.is_constant() && b.is_constant()) {
    const auto quotient = internal::FloorDivide(a.value(), b.value());
    return quotient ? Dim(*quotient) : Dim::Unknown();
  }
  if (b.is_constant()) return internal::FloorDivByConstant(a, b.value());
  return internal::DivideByExpression(DimKind::kFloorDiv, a, b);
}

Dim CeilDiv(const Dim& a, const Dim& b) {
  if (a.is_unknown() || b.is_unknown()) return Dim::Unknown();
  if (!b.is_constant()) return internal::DivideByExpression(DimKind::kCeilDiv, a, b);
  const int64_t k = b.value();
  if (a.is_constant()) {
    const auto quotient = internal::CeilDivide(a.value(), k);
    return quotient ? Dim(*quotient) : Dim::Unknown();
  }
  if (k < 0) return CeilDiv(Dim(0) - a, Dim(0) - b);
  return FloorDiv(a + Dim(k - 1), b);  // for k = 0 unknown
}

Dim Mod(const Dim& a, const Dim& b) {
  if (a.is_unknown() || b.is_unknown()) return Dim::Unknown();
  if (a.is_constant() && b.is_constant()) {
    const auto remainder = internal::Modulo(a.value(), b.value());
    return remainder ? Dim(*remainder) : Dim::Unknown();
  }
  if (b.is_constant()) return internal::ModByConstant(a, b.value());
  return internal::ModByExpression(a, b);
}

Dim Min(const Dim& a, const Dim& b) { return internal::Extremum(DimKind::kMin, a, b); }
Dim Max(const Dim& a, const Dim& b) { return internal::Extremum(DimKind::kMax, a, b); }

Dim Broadcast(const Dim& a, const Dim& b) {
  if (a.IsConstant(1)) return b;
  if (b.IsConstant(1)) return a;
  if (a.is_constant() && b.is_constant()) return a == b ? a : Dim::Unknown();
  // An extent other than 1 decides, whatever the other one is.
  if (a.is_constant()) return a;
  if (b.is_constant()) return b;
  if (a.is_unknown() || b.is_unknown()) {
    if (internal::IsNeverOne(a)) return a;
    return internal::IsNeverOne(b) ? b : Dim::Unknown();
  }
  std::vector<Dim> operands = internal::Flatten(DimKind::kBroadcast, a, b);
  if (operands.size() > internal::kMaxOperands) return Dim::Unknown();
  for (const Dim& operand : operands) {
    if (internal::IsNeverOne(operand)) return operand;
  }
  std::erase_if(operands, [all = operands](const Dim& operand) {
    return internal::IsCappedBeside(operand, all) || internal::IsRaisedBeside(operand, all);
  });
  return operands.size() == 1 ? operands[0]
                              : internal::MakeFunction(DimKind::kBroadcast, std::move(operands));
}

}  // namespace lathe
