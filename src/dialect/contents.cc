#include "src/dialect/contents.h"

#include <algorithm>

namespace lathe {

namespace {

// Narrow and unsigned integers wrap around where extents do not.
bool IsFollowed(ElementType element) {
  return element == ElementType::kI64 || element == ElementType::kI32 ||
         element == ElementType::kIndex || element == ElementType::kBool;
}

}  // namespace

std::optional<SmallArray> SmallArrayOf(const InferShapeContext& c, size_t i) {
  if (!c.HasInput(i) || !IsFollowed(c.element(i))) return std::nullopt;
  const auto extents = c.shape(i).Constants();
  const Dim count = c.shape(i).NumElements();
  if (!extents || !count.is_constant() || count.value() > static_cast<int64_t>(kMaxContents)) {
    return std::nullopt;
  }
  auto elements = c.Contents(i);
  if (!elements || count != static_cast<int64_t>(elements->size())) return std::nullopt;
  return SmallArray{*extents, *std::move(elements)};
}

std::optional<std::vector<Dim>> SmallContents(const InferShapeContext& c, size_t i) {
  auto array = SmallArrayOf(c, i);
  if (!array || array->extents.size() > 1) return std::nullopt;
  return std::move(array->elements);
}

void ForwardContents(InferShapeContext& c, size_t i) {
  if (auto contents = SmallContents(c, i)) c.SetContents(0, std::move(*contents));
}

namespace {

// Element `i` of contents that may be broadcast.
const Dim& At(const std::vector<Dim>& contents, size_t i) {
  return contents[contents.size() == 1 ? 0 : i];
}

std::optional<std::vector<Dim>> Combine(const std::vector<Dim>& a, const std::vector<Dim>& b,
                                        DimFunction f) {
  if (a.size() != b.size() && a.size() != 1 && b.size() != 1) return std::nullopt;
  const size_t count = a.size() == 1 ? b.size() : a.size();
  std::vector<Dim> result;
  for (size_t i = 0; i < count; ++i) result.push_back(f(At(a, i), At(b, i)));
  return result;
}

}  // namespace

void PublishElementwise(InferShapeContext& c, DimFunction f) {
  auto result = SmallContents(c, 0);
  for (size_t i = 1; result && i < c.num_inputs(); ++i) {
    const auto next = SmallContents(c, i);
    result = next ? Combine(*result, *next, f) : std::nullopt;
  }
  if (result) c.SetContents(0, std::move(*result));
}

void PublishElementwise(InferShapeContext& c, Dim (*f)(const Dim&)) {
  auto contents = SmallContents(c, 0);
  if (!contents) return;
  std::transform(contents->begin(), contents->end(), contents->begin(), f);
  c.SetContents(0, std::move(*contents));
}

Dim DimAdd(const Dim& a, const Dim& b) { return a + b; }
Dim DimSub(const Dim& a, const Dim& b) { return a - b; }
Dim DimMul(const Dim& a, const Dim& b) { return a * b; }
Dim DimMax(const Dim& a, const Dim& b) { return Max(a, b); }
Dim DimMin(const Dim& a, const Dim& b) { return Min(a, b); }
Dim DimNeg(const Dim& a) { return Dim(0) - a; }

namespace {

// By zero, tensors give zero (docs/decisions/0005-evaluation.md), where a quotient of dims may have
// any value or none.
Dim DivideNatural(const Dim& a, const Dim& b) {
  const Dim quotient = FloorDiv(a, b);
  if (*b.LowerBound() > 0) return quotient;
  const bool is_exact = ProvablyEqual(quotient * b, a);
  return (is_exact ? quotient : FloorDiv(a, Max(b, 1))) * Min(b, 1);
}

}  // namespace

Dim DimDiv(const Dim& a, const Dim& b) {
  if (b.IsConstant(0)) return {};
  const bool known_signs = !a.is_unknown() && !b.is_unknown() && a.LowerBound() && b.LowerBound();
  if (known_signs && *a.LowerBound() >= 0 && *b.LowerBound() >= 0) return DivideNatural(a, b);
  if (!a.is_unknown() && !a.is_constant() && b.is_constant() && b.value() > 0) {
    const Dim quotient = FloorDiv(Max(a, 0), b);
    return known_signs && *a.LowerBound() > -b.value() ? quotient
                                                       : quotient - FloorDiv(Max(DimNeg(a), 0), b);
  }
  if (!a.is_constant() || !b.is_constant()) return {};
  return b.IsConstant(-1) ? DimNeg(a) : Dim(a.value() / b.value());
}

Dim DimMod(const Dim& a, const Dim& b) {
  if (a.is_unknown() || b.is_unknown()) return {};
  const Dim rest = Mod(a, b);
  const bool is_zero = rest.IsConstant(0);  // so it is by zero, too
  if (is_zero || (b.LowerBound() && *b.LowerBound() > 0)) return rest;
  if (b.UpperBound() && *b.UpperBound() < 0) return rest;
  return b.LowerBound() && *b.LowerBound() == 0 ? Mod(a, Max(b, 1)) : Dim();
}

Dim DimEqual(const Dim& a, const Dim& b) {
  if (ProvablyEqual(a, b)) return 1;
  if (ProvablyDifferent(a, b)) return 0;
  // An extent is never negative, whatever the symbols are.
  const auto below = [](const Dim& x, const Dim& y) {
    return x.is_expression() && y.is_constant() && x.LowerBound() && *x.LowerBound() > y.value();
  };
  return below(a, b) || below(b, a) ? Dim(0) : Dim();
}

Dim DimLess(const Dim& a, const Dim& b) {
  if (a.is_unknown() || b.is_unknown()) return {};
  const Dim difference = b - a;
  if (difference.is_unknown()) return {};
  if (const auto low = difference.LowerBound(); low && *low > 0) return 1;
  if (const auto high = difference.UpperBound(); high && *high <= 0) return 0;
  return {};
}

Dim DimNot(const Dim& a) { return a.is_constant() ? Dim(a.value() == 0 ? 1 : 0) : Dim(); }

std::vector<Dim> ToDims(std::span<const int64_t> values) { return {values.begin(), values.end()}; }

}  // namespace lathe
