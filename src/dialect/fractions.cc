#include "src/dialect/fractions.h"

#include <cmath>
#include <string_view>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/type.h"
#include "src/dialect/contents.h"

namespace lathe {
namespace {

// The ops between an integer and the cast back are few.
constexpr int kMaxDepth = 12;

// num / den with den > 0. Of a quotient that floats round, only what it rounds to is known.
struct Fraction {
  Dim num;
  Dim den = 1;
  bool exact = true;
};

using Fractions = std::optional<std::vector<Fraction>>;

std::optional<int64_t> SmallCount(Value value) {
  const auto type = value.type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank() || type.rank() > 1) return std::nullopt;
  const Dim count = type.shape().NumElements();
  if (!count.is_constant() || count.value() > static_cast<int64_t>(kMaxContents)) {
    return std::nullopt;
  }
  return count.value();
}

// m / 2^k with few bits, so that products with sizes are exact.
std::optional<Fraction> OfConstant(double value) {
  constexpr double kMost = 16, kDen = 16;
  const double scaled = value * kDen;
  if (!std::isfinite(value) || scaled != std::floor(scaled)) return std::nullopt;
  if (value == std::floor(value)) {
    if (std::fabs(value) > 1024) return std::nullopt;
    return Fraction{static_cast<int64_t>(value)};
  }
  if (std::fabs(value) > kMost) return std::nullopt;
  return Fraction{static_cast<int64_t>(scaled), static_cast<int64_t>(kDen)};
}

Fractions OfConstants(const Tensor& constant) {
  if (!IsFloat(constant.element_type())) return std::nullopt;
  std::vector<Fraction> result;
  for (const double value : ToDoubles(constant)) {
    const auto fraction = OfConstant(value);
    if (!fraction) return std::nullopt;
    result.push_back(*fraction);
  }
  return result;
}

bool IsWhole(const Fraction& x) { return x.exact && x.num.is_constant() && x.den.IsConstant(1); }

// Nothing where the result is not exact, or a divisor may be zero.
std::optional<Fraction> Combine(std::string_view op, const Fraction& a, const Fraction& b) {
  // A quotient that is rounded stays between the same whole numbers with one added to it.
  const bool exact = a.exact && b.exact, shifts = a.exact ? IsWhole(a) : IsWhole(b);
  if (op == nn::kAdd && (exact || shifts)) {
    return Fraction{a.num * b.den + b.num * a.den, a.den * b.den, exact};
  }
  if (op == nn::kSub && (exact || shifts)) {
    return Fraction{a.num * b.den - b.num * a.den, a.den * b.den, exact};
  }
  if (!exact) return std::nullopt;
  if (op == nn::kMul) return Fraction{a.num * b.num, a.den * b.den};
  if (!b.num.is_constant() || b.num.value() <= 0) return std::nullopt;
  const int64_t by = b.num.value();
  return Fraction{a.num * b.den, a.den * b.num, (by & (by - 1)) == 0};
}

std::optional<Fraction> Rounded(std::string_view op, const Fraction& x) {
  if (x.num.is_unknown() || x.den.is_unknown()) return std::nullopt;
  if (x.den.IsConstant(1)) return x;
  if (op == nn::kFloor) return Fraction{FloorDiv(x.num, x.den)};
  if (op == nn::kCeil) return Fraction{CeilDiv(x.num, x.den)};
  // A cast cuts off towards zero.
  const auto low = x.num.LowerBound();
  if (!low || *low < 0) return std::nullopt;
  return Fraction{FloorDiv(x.num, x.den)};
}

template <class F>
Fractions Map(const Fractions& x, const F& f) {
  if (!x) return std::nullopt;
  std::vector<Fraction> result;
  for (const Fraction& fraction : *x) {
    const auto next = f(fraction);
    if (!next) return std::nullopt;
    result.push_back(*next);
  }
  return result;
}

bool IsArithmetic(std::string_view op) {
  return op == nn::kAdd || op == nn::kSub || op == nn::kMul || op == nn::kDiv;
}

Fractions FractionsOf(Value value, ValueFacts& facts, int depth);

Fractions OfArithmetic(const Operation* op, ValueFacts& facts, int depth) {
  const Fractions a = FractionsOf(op->operand(0), facts, depth);
  const Fractions b = a ? FractionsOf(op->operand(1), facts, depth) : std::nullopt;
  if (!b || (a->size() != b->size() && a->size() != 1 && b->size() != 1)) return std::nullopt;
  const size_t count = a->size() == 1 ? b->size() : a->size();
  std::vector<Fraction> result;
  for (size_t i = 0; i < count; ++i) {
    const auto next =
        Combine(op->name(), (*a)[a->size() == 1 ? 0 : i], (*b)[b->size() == 1 ? 0 : i]);
    if (!next) return std::nullopt;
    result.push_back(*next);
  }
  return result;
}

// The elements of a float value; the depth is bounded, so this may call itself.
Fractions FractionsOf(Value value, ValueFacts& facts, int depth) {
  const auto count = SmallCount(value);
  if (!count || depth == 0) return std::nullopt;
  if (const Tensor* constant = facts.Constant(value)) return OfConstants(*constant);
  if (const std::vector<Dim>* contents = facts.Contents(value)) {
    std::vector<Fraction> result;
    for (const Dim& dim : *contents) result.push_back({dim});
    return result;
  }
  const Operation* op = value.defining_op();
  if (op == nullptr) return std::nullopt;
  if (IsArithmetic(op->name())) return OfArithmetic(op, facts, depth - 1);
  if (op->name() == nn::kFloor || op->name() == nn::kCeil) {
    return Map(FractionsOf(op->operand(0), facts, depth - 1),
               [&](const Fraction& x) { return Rounded(op->name(), x); });
  }
  const bool moves = op->name() == nn::kSqueeze || op->name() == nn::kUnsqueeze ||
                     op->name() == nn::kReshape || op->name() == nn::kIdentity;
  return moves ? FractionsOf(op->operand(0), facts, depth - 1) : std::nullopt;
}

}  // namespace

std::optional<std::vector<Dim>> RoundedContents(Operation* cast, ValueFacts& facts) {
  if (cast->name() != nn::kCast || !SmallCount(cast->result(0))) return std::nullopt;
  const auto from = cast->operand(0).type().dyn_cast<AnyTensorType>();
  const auto to = cast->result(0).type().cast<AnyTensorType>().element();
  const bool wide =
      from && (from.element() == ElementType::kF32 || from.element() == ElementType::kF64);
  if (!wide || (to != ElementType::kI64 && to != ElementType::kI32)) return std::nullopt;
  const Fractions rounded = Map(FractionsOf(cast->operand(0), facts, kMaxDepth),
                                [](const Fraction& x) { return Rounded(nn::kCast, x); });
  if (!rounded) return std::nullopt;
  std::vector<Dim> contents;
  for (const Fraction& x : *rounded) contents.push_back(x.num);
  return contents;
}

}  // namespace lathe
