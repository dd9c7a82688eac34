#pragma once

#include <optional>

#include "src/dialect/nn/term.h"

namespace lathe {

/// A number of an update rule that is the same for all elements: a rate, a bias correction. It is
/// computed in f64, in the compiler if only constants go in, else by operations of the program.
class Scalar {
 public:
  Scalar(double constant) : constant_(constant) {}    // NOLINT: a number is a scalar
  explicit Scalar(nn::Term value) : value_(value) {}  ///< an f64 scalar of the program

  bool is_constant() const { return !value_.has_value(); }
  double constant() const { return constant_; }
  /// As a scalar tensor of the program, rounded to that type.
  nn::Term As(Builder& b, ElementType element) const;

  friend Scalar operator+(const Scalar& a, const Scalar& b);
  friend Scalar operator-(const Scalar& a, const Scalar& b);
  friend Scalar operator*(const Scalar& a, const Scalar& b);
  friend Scalar operator/(const Scalar& a, const Scalar& b);
  friend Scalar Pow(const Scalar& base, const Scalar& exponent);
  friend Scalar Min(const Scalar& a, const Scalar& b);
  friend Scalar Sqrt(const Scalar& x);
  friend Scalar Cos(const Scalar& x);
  friend Scalar Floor(const Scalar& x);
  /// x where a < b, else y.
  friend Scalar IfLess(const Scalar& a, const Scalar& b, const Scalar& x, const Scalar& y);

 private:
  friend Scalar Unary(const Scalar& x, double (*f)(double), const char* op);
  friend Scalar Binary(const Scalar& a, const Scalar& b, double (*f)(double, double),
                       const char* op);
  double constant_ = 0;
  std::optional<nn::Term> value_;
};

/// Each element times, plus the number, which is rounded to the type of the elements first.
nn::Term operator*(const nn::Term& x, const Scalar& s);
nn::Term operator/(const nn::Term& x, const Scalar& s);
nn::Term operator+(const nn::Term& x, const Scalar& s);

}  // namespace lathe
