#include "src/lower/compute/index_space.h"

#include <algorithm>
#include <charconv>

#include "lathe/support/text.h"
#include "src/support/dim_node.h"

namespace lathe::lower {
namespace {

constexpr char kMark = '%';  // no symbol of a type begins with it

constexpr size_t kLongSize = 64;
constexpr uint32_t kLongDepth = 12;

}  // namespace

Dim ProductOf(std::span<const Dim> dims) {
  Dim product = 1;
  for (const Dim& dim : dims) product *= dim;
  return product;
}

bool IsLong(const Dim& expr) {
  const auto* node = lathe::internal::ExpressionOf(expr);
  return node != nullptr && (node->size > kLongSize || node->depth > kLongDepth);
}

namespace {

bool IsAtLeast0(const Dim& expr) {
  const auto low = expr.LowerBound();
  return !expr.is_unknown() && low && *low >= 0;
}

// A sum in which -min(a, b) is -a or -b, or max(a, b) is either, is at most the sum as it was.
constexpr int kMaxExtrema = 3;

// As deep as extrema are replaced.
bool ProvablyAtLeast0(const Dim& expr, int extrema = kMaxExtrema) {
  using lathe::internal::DimKind;
  if (IsAtLeast0(expr)) return true;
  if (extrema == 0 || lathe::internal::ExpressionOf(expr) == nullptr) return false;
  for (const lathe::internal::DimTerm& term : lathe::internal::PolyOf(expr).terms) {
    const DimKind kind = term.coefficient < 0 ? DimKind::kMin : DimKind::kMax;
    for (size_t i = 0; i < term.factors.size(); ++i) {
      if (!lathe::internal::IsFunction(term.factors[i], kind)) continue;
      Dim others = term.coefficient < 0 ? -1 * term.coefficient : term.coefficient;
      for (size_t k = 0; k < term.factors.size(); ++k) {
        if (k != i) others *= term.factors[k];
      }
      if (!IsAtLeast0(others)) continue;
      const Dim sign = term.coefficient < 0 ? -1 : 1;
      for (const Dim& one : lathe::internal::ExpressionOf(term.factors[i])->operands) {
        const Dim relaxed = expr + sign * others * (one - term.factors[i]);
        if (ProvablyAtLeast0(relaxed, extrema - 1)) return true;
      }
    }
  }
  return false;
}

}  // namespace

bool ProvablyAtMost(const Dim& a, const Dim& b) { return ProvablyAtLeast0(b - a); }

bool ProvablyLess(const Dim& a, const Dim& b) { return ProvablyAtMost(a + 1, b); }

bool IndexSpace::Piece::BeginsAt(const Dim& cut) const {
  return std::ranges::any_of(cuts_before, [&](const Dim& c) { return ProvablyAtMost(cut, c); });
}

bool IndexSpace::Piece::EndsBefore(const Dim& cut) const {
  return std::ranges::any_of(cuts_after, [&](const Dim& c) { return ProvablyAtMost(c, cut); });
}

Dim IndexSpace::Add(const Dim& extent) {
  if (extent.IsConstant(1)) return 0;
  integers_.push_back({StrCat(kMark, integers_.size()), extent, {}});
  return Dim::Symbol(integers_.back().name);
}

Dim IndexSpace::AddCounter(const Dim& extent, const Piece& piece) {
  const Dim counter = Add(extent);
  if (counter.is_symbol()) integers_.back().piece = piece;
  return counter;
}

void IndexSpace::AddQuestions(const IndexSpace& other) {
  cuts_.insert(cuts_.end(), other.cuts_.begin(), other.cuts_.end());
  factors_.insert(factors_.end(), other.factors_.begin(), other.factors_.end());
}

std::optional<size_t> IndexSpace::Number(std::string_view symbol) const {
  if (symbol.empty() || symbol[0] != kMark) return std::nullopt;
  size_t number = 0;
  std::from_chars(symbol.data() + 1, symbol.data() + symbol.size(), number);
  return number;
}

std::vector<size_t> IndexSpace::NumbersIn(const Dim& expr) const {
  std::vector<std::string> names;
  expr.CollectSymbols(names);
  std::vector<size_t> numbers;
  for (const std::string& name : names) {
    if (const auto number = Number(name)) numbers.push_back(*number);
  }
  return numbers;
}

Dim IndexSpace::Replace(const Dim& expr, size_t number, const Dim& by) const {
  return expr.Substitute([&](std::string_view name) -> std::optional<Dim> {
    if (name != integers_[number].name) return std::nullopt;
    return by;
  });
}

Dim IndexSpace::Slope(const Dim& expr, size_t number) const {
  const Dim next = Replace(expr, number, Dim::Symbol(integers_[number].name) + 1);
  const Dim slope = next - expr;
  return IsFree(slope) ? slope : Dim();
}

std::pair<Dim, Dim> IndexSpace::Range(const Dim& expr) const {
  Dim low = expr, high = expr;
  for (const size_t number : NumbersIn(expr)) {
    const Dim slope = Slope(expr, number);
    const Dim last = integers_[number].extent - 1;
    if (slope.is_unknown() || last.is_unknown()) return {};
    const bool rises = ProvablyAtMost(0, slope);
    if (!rises && !ProvablyAtMost(slope, 0)) return {};
    low = Replace(low, number, rises ? Dim(0) : last);
    high = Replace(high, number, rises ? last : Dim(0));
  }
  return {low, high};
}

std::optional<bool> IndexSpace::Below(const Dim& expr, const Dim& bound) {
  const auto [low, high] = Range(expr);
  if (!high.is_unknown() && ProvablyLess(high, bound)) return true;
  if (!low.is_unknown() && ProvablyAtMost(bound, low)) return false;
  // A cut outside of the loop has all iterations on one side of it, too.
  bool rises = true;
  const auto cut = CutWhere(expr, bound, &rises);
  if (!cut) return std::nullopt;
  const Piece& piece = *integers_[NumbersIn(expr)[0]].piece;
  if (piece.EndsBefore(cut->at)) return rises;
  if (piece.BeginsAt(cut->at)) return !rises;
  cuts_.push_back(*cut);
  return std::nullopt;
}

// The iteration at which the answer changes, where a single counter decides it: from there on the
// expression is not below the bound if it `rises`, and before that if it falls.
std::optional<IndexSpace::Cut> IndexSpace::CutWhere(const Dim& expr, const Dim& bound,
                                                    bool* rises) const {
  const std::vector<size_t> numbers = NumbersIn(expr);
  if (numbers.size() != 1 || !integers_[numbers[0]].piece || !IsFree(bound)) return std::nullopt;
  const Dim slope = Slope(expr, numbers[0]);
  if (!slope.is_constant() || slope.value() == 0) return std::nullopt;
  *rises = slope.value() > 0;
  const Dim rest = Replace(expr, numbers[0], 0);
  const Dim at =
      *rises ? CeilDiv(bound - rest, slope) : FloorDiv(rest - bound, Dim(-slope.value())) + 1;
  if (at.is_unknown()) return std::nullopt;
  const Piece& piece = *integers_[numbers[0]].piece;
  return Cut{piece.loop, piece.start + at};
}

// What a multiple of `by` and what is less than `by` give is known term by term.
std::pair<Dim, Dim> IndexSpace::Divide(const Dim& expr, const Dim& by) {
  if (by.IsConstant(1)) return {expr, 0};
  Dim quotient = 0, rest = expr;
  for (const size_t number : NumbersIn(expr)) {
    const Dim slope = Slope(expr, number);
    if (slope.is_unknown()) continue;
    const Dim times = FloorDiv(slope, by);
    if (times.is_unknown() || !(times * by == slope)) continue;
    const Dim integer = Dim::Symbol(integers_[number].name);
    quotient += times * integer;
    rest -= slope * integer;
  }
  Dim fixed = rest;
  for (const size_t number : NumbersIn(rest)) fixed = Replace(fixed, number, 0);
  const Dim more = FloorDiv(fixed, by);
  if (!more.is_unknown() && ((fixed.is_constant() && by.is_constant()) || more * by == fixed)) {
    quotient += more;
    rest -= more * by;
  }
  const auto [low, high] = Range(rest);
  if (!high.is_unknown() && ProvablyAtMost(0, low) && ProvablyLess(high, by)) {
    return {quotient, rest};
  }
  AskForFactor(rest, by);
  return {quotient + FloorDiv(rest, by), lathe::Mod(rest, by)};
}

// A counter whose extent is a multiple of `by` may become two.
bool IndexSpace::AskForFactor(const Dim& rest, const Dim& by) {
  for (const size_t number : NumbersIn(rest)) {
    const Integer& integer = integers_[number];
    const Dim slope = Slope(rest, number);
    if (!integer.piece || !integer.piece->start.IsConstant(0) || slope.is_unknown()) continue;
    if (!ProvablyAtMost(0, slope)) continue;  // backwards, the factors would be negative
    const Dim inner = FloorDiv(by, slope);
    if (inner.is_unknown() || !(inner * slope == by)) continue;
    const Dim outer = FloorDiv(integer.extent, inner);
    if (outer.is_unknown() || !(outer * inner == integer.extent)) continue;
    if (inner == integer.extent || inner.IsConstant(1)) continue;
    factors_.push_back({integer.piece->loop, inner});
    return true;
  }
  return false;
}

Dim IndexSpace::Short(const Dim& expr, const Dim& extent) const {
  return shorten_ && IsLong(expr) ? shorten_(expr, extent) : expr;
}

Dim IndexSpace::Flatten(const std::vector<Dim>& at, const std::vector<Dim>& dims) const {
  Dim flat = 0, count = 1;
  for (size_t a = 0; a < at.size(); ++a) {
    Dim next = a == 0 ? at[a] : flat * dims[a] + at[a];
    if (next.is_unknown() && !at[a].is_unknown() && shorten_) {
      next = shorten_(flat, count) * dims[a] + shorten_(at[a], dims[a]);
    }
    count *= dims[a];
    flat = Short(next, count);
  }
  return flat;
}

std::vector<Dim> IndexSpace::Unflatten(const Dim& flat, const std::vector<Dim>& dims) {
  std::vector<Dim> at(dims.size(), 0);
  Dim rest = flat;
  for (size_t a = dims.size(); a-- > 0;) {
    if (dims[a].IsConstant(1)) continue;
    bool is_first = true;
    for (size_t b = 0; b < a; ++b) is_first = is_first && dims[b].IsConstant(1);
    if (is_first) {
      at[a] = rest;
      break;
    }
    const auto [quotient, place] = Divide(rest, dims[a]);
    at[a] = Short(place, dims[a]);
    rest = Short(quotient, {});
  }
  return at;
}

}  // namespace lathe::lower
