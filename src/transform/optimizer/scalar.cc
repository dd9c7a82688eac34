#include "src/transform/optimizer/scalar.h"

#include <algorithm>
#include <cmath>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/support/error.h"

namespace lathe {

nn::Term Scalar::As(Builder& b, ElementType element) const {
  if (is_constant()) {
    const Tensor value = Cast(Tensor::Scalar<double>(constant_), element);
    return {b, builtin::ConstantOp::Create(b, {.value = value}).result()};
  }
  if (element == ElementType::kF64) return *value_;
  return {b, nn::CastOp::Create(b, *value_, {.to = element}).output()};
}

Scalar Unary(const Scalar& x, double (*f)(double), const char* op) {
  if (x.is_constant()) return f(x.constant());
  return Scalar(x.value_->Call(op));
}

Scalar Binary(const Scalar& a, const Scalar& b, double (*f)(double, double), const char* op) {
  if (a.is_constant() && b.is_constant()) return f(a.constant(), b.constant());
  Builder& builder = (a.is_constant() ? b : a).value_->builder();
  const nn::Term left = a.As(builder, ElementType::kF64);
  return Scalar(left.Call(op, {b.As(builder, ElementType::kF64)}));
}

Scalar operator+(const Scalar& a, const Scalar& b) {
  return Binary(a, b, [](double x, double y) { return x + y; }, nn::kAdd);
}
Scalar operator-(const Scalar& a, const Scalar& b) {
  return Binary(a, b, [](double x, double y) { return x - y; }, nn::kSub);
}
Scalar operator*(const Scalar& a, const Scalar& b) {
  return Binary(a, b, [](double x, double y) { return x * y; }, nn::kMul);
}
Scalar operator/(const Scalar& a, const Scalar& b) {
  return Binary(a, b, [](double x, double y) { return x / y; }, nn::kDiv);
}
Scalar Pow(const Scalar& base, const Scalar& exponent) {
  return Binary(base, exponent, [](double x, double y) { return std::pow(x, y); }, nn::kPow);
}
Scalar Min(const Scalar& a, const Scalar& b) {
  return Binary(a, b, [](double x, double y) { return std::min(x, y); }, nn::kMin);
}
Scalar Sqrt(const Scalar& x) {
  return Unary(x, [](double v) { return std::sqrt(v); }, nn::kSqrt);
}
Scalar Cos(const Scalar& x) {
  return Unary(x, [](double v) { return std::cos(v); }, nn::kCos);
}
Scalar Floor(const Scalar& x) {
  return Unary(x, [](double v) { return std::floor(v); }, nn::kFloor);
}

Scalar IfLess(const Scalar& a, const Scalar& b, const Scalar& x, const Scalar& y) {
  if (a.is_constant() && b.is_constant()) return a.constant() < b.constant() ? x : y;
  Builder& builder = (a.is_constant() ? b : a).value_->builder();
  const auto term = [&](const Scalar& s) { return s.As(builder, ElementType::kF64); };
  return Scalar(nn::Where(term(a).Call(nn::kLess, {term(b)}), term(x), term(y)));
}

nn::Term operator*(const nn::Term& x, const Scalar& s) {
  return x * s.As(x.builder(), x.element());
}
nn::Term operator/(const nn::Term& x, const Scalar& s) {
  return x / s.As(x.builder(), x.element());
}
nn::Term operator+(const nn::Term& x, const Scalar& s) {
  return x + s.As(x.builder(), x.element());
}

}  // namespace lathe
