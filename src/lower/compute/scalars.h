#pragma once

#include "src/lower/compute/elements.h"

namespace lathe::lower {

/// Arithmetic of compute functions on scalars, which have one element type.
class Scalars {
 public:
  explicit Scalars(Elements& e) : e_(e) {}

  Value Number(ElementType element, double value) const { return e_.lb().Splat(element, value); }
  /// An index as a number.
  Value Number(ElementType element, const Dim& expr) const { return Cast(e_.Int(expr), element); }
  Value Cast(Value x, ElementType to) const;
  Value Add(Value a, Value b) const;
  Value Sub(Value a, Value b) const;
  Value Mul(Value a, Value b) const;
  Value Div(Value a, Value b) const;
  Value Max(Value a, Value b) const;
  Value Min(Value a, Value b) const;
  Value Abs(Value x) const;
  Value Floor(Value x) const;
  /// To the nearest whole number, halves to the even one.
  Value Round(Value x) const;
  Value Exp(Value x) const;
  Value Log(Value x) const;
  Value Less(Value a, Value b) const;
  Value AtMost(Value a, Value b) const;
  Value Equal(Value a, Value b) const;
  Value And(Value a, Value b) const;
  Value Or(Value a, Value b) const;
  Value Not(Value x) const;
  Value Select(Value condition, Value x, Value y) const;
  /// x^p of an x that is not negative: 0 for x = 0 and p > 0.
  Value Power(Value x, double p) const;
  /// A condition as an index that is 0 or 1.
  Dim AsIndex(Value condition) const;
  /// A scalar of a whole number as an index of an axis, brought inside.
  Dim Inside(Value x, const Dim& extent) const;

 private:
  Builder& b() const { return e_.lb().b(); }
  Elements& e_;
};

/// A scalar or vector as one of another type; as an integer it is brought into its range first, NaN
/// to the least value.
Value SaturatedCast(LoopBuilder& lb, Value x, ElementType to);

/// What sums over elements of that type are made in.
inline ElementType SumType(ElementType element) {
  return BitWidth(element) == 16 ? ElementType::kF32 : element;
}

}  // namespace lathe::lower
