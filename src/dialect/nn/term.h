#pragma once

#include <string_view>
#include <vector>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/builder.h"

// What functions `Decompose` are written with: values as terms of formulas.
namespace lathe::nn {

// A value and the builder that makes what is computed from it. A number stands for a scalar of the
// element type of the other side.
class Term {
 public:
  Term(Builder& b, Value value) : b_(&b), value_(value) {}
  operator Value() const { return value_; }  // NOLINT: a term is a value
  Value value() const { return value_; }
  Builder& builder() const { return *b_; }
  ElementType element() const;
  // A scalar constant of this term's element type.
  Term Number(double number) const;
  // The first result of an op on this and others.
  Term Call(std::string_view op, std::vector<Value> others = {},
            std::vector<NamedAttribute> attributes = {}) const;

  friend Term operator+(const Term& a, const Term& b) { return a.Call(nn::kAdd, {b}); }
  friend Term operator-(const Term& a, const Term& b) { return a.Call(nn::kSub, {b}); }
  friend Term operator*(const Term& a, const Term& b) { return a.Call(nn::kMul, {b}); }
  friend Term operator/(const Term& a, const Term& b) { return a.Call(nn::kDiv, {b}); }
  friend Term operator+(const Term& a, double b) { return a + a.Number(b); }
  friend Term operator-(const Term& a, double b) { return a - a.Number(b); }
  friend Term operator*(const Term& a, double b) { return a * a.Number(b); }
  friend Term operator/(const Term& a, double b) { return a / a.Number(b); }
  friend Term operator/(double a, const Term& b) { return b.Number(a) / b; }

 private:
  Builder* b_;
  Value value_;
};

inline Term Exp(const Term& x) { return x.Call(nn::kExp); }
inline Term Log(const Term& x) { return x.Call(nn::kLog); }
inline Term Sqrt(const Term& x) { return x.Call(nn::kSqrt); }
inline Term Abs(const Term& x) { return x.Call(nn::kAbs); }
inline Term Sigmoid(const Term& x) { return x.Call(nn::kSigmoid); }
// Of that element type; `x` itself if it is.
Term As(const Term& x, ElementType element);
Term Least(const Term& a, double b);
Term Greatest(const Term& a, double b);
// exp(x) - 1 with the relative precision of the type for every x.
Term Expm1(const Term& x);
// ln(1 + exp(x)) without overflow, with the relative precision of the type for every x.
Term Softplus(const Term& x);
// x where `a` compares so to `b`, else y.
Term Where(const Term& condition, const Term& x, const Term& y);
// A reduction over constant axes that keeps them; of `op` "nn.reduce_sum" and the like.
Term Reduced(const Term& x, std::string_view op, const std::vector<int64_t>& axes);
// round(y) + zero, half to even, saturated to an integer type; `zero`, of y's type, may be null.
// NaN becomes the lowest value.
Term Requantized(const Term& y, Value zero, ElementType to);
// [C] as [C, 1, ..., 1], to be broadcast along the channels of a tensor of this rank.
Term PerChannel(const Term& x, size_t rank);

}  // namespace lathe::nn
