#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/ir/program.h"
#include "lathe/support/error.h"

namespace lathe::testing {

/// What a program gives on some inputs, by the interpreter, and how far other right answers may be
/// from it.
///
/// Tolerances are measured: the program is evaluated again with every inexact operation off by a
/// few units of its type's precision, in its operands and its results. An element that moves may be
/// as far off as it moves; one that changes its mind (an integer, a bool, NaN, infinity) is not
/// compared. What only moves numbers, chooses among them or computes with few bits is exact.
class Expectation {
 public:
  Expectation(const Program& program, const NamedValues& inputs, uint64_t seed);

  /// Of the interpreter; then there are no values.
  const std::optional<Error>& error() const { return error_; }
  /// Whether what is compiled may do without the operation that is refused.
  bool excused() const { return excused_; }
  /// Sizes that nothing tells may be others, and nothing can be said of what is made of them.
  bool vague() const { return vague_; }
  /// Empty, or what differs.
  std::string Difference(const NamedValues& got) const;
  /// False if a number overflowed on the way: what fuses operations may not overflow.
  bool comparable() const { return comparable_; }

 private:
  void Measure(const Program& program, const NamedValues& inputs, uint64_t seed);
  void Excuse(const Program& program, const Operation* last);
  void Widen(size_t output, const Tensor& other);

  std::optional<Error> error_;
  NamedValues values_;
  std::vector<std::vector<double>> tolerance_;  ///< per element; negative: not compared
  bool comparable_ = true;
  bool excused_ = false;
  bool jumps_ = false;
  bool vague_ = false;
  bool other_sizes_ = false;  ///< a number that may be off decides sizes
};

}  // namespace lathe::testing
