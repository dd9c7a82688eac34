#pragma once

#include <algorithm>
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
  /// Whether what is compiled may run nevertheless (excuses.h), or what is refused is made of sizes
  /// that nothing tells.
  bool excused() const { return excused_; }
  /// Whether an entry of a computed shape was 0 and copied an extent.
  bool copies_extent() const { return copies_extent_; }
  /// Whether some output is made of sizes that nothing tells, which may be others: nothing can be
  /// said of it.
  bool vague() const { return std::ranges::count(vague_, true) > 0; }
  /// Empty, or what differs. `got`: one value per output.
  std::string Difference(const NamedValues& got) const;
  /// False if it is refused, or a number overflowed on the way to an output, the elements of which
  /// are not compared then: what fuses operations may not overflow.
  bool comparable() const { return !error_ && std::ranges::count(unsure_, true) == 0; }

 private:
  void Measure(const Program& program, const NamedValues& inputs, uint64_t seed);
  void Widen(size_t output, const Tensor& other);

  std::optional<Error> error_;
  NamedValues values_;
  std::vector<std::vector<double>> tolerance_;  ///< per element; negative: not compared
  std::vector<bool> unsure_;                    ///< outputs whose elements are not compared
  std::vector<bool> vague_;                     ///< outputs whose sizes may be others, too
  bool excused_ = false;
  bool copies_extent_ = false;
  bool jumps_ = false;
  bool other_sizes_ = false;  ///< a number that may be off decides sizes
};

}  // namespace lathe::testing
