#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/support/dim.h"

namespace lathe::lower {

/// The product of the extents; 1 if there are none.
Dim ProductOf(std::span<const Dim> dims);

/// Index expressions: dim expressions over integers of which an upper bound is known (counters of
/// loops, loaded indices) and symbols of the function's types. Where a question has no answer for a
/// whole loop, it is noted how the loop would have to be divided.
class IndexSpace {
 public:
  /// An index below `extent` that has the value of a long expression, but is one symbol.
  using Shorten = std::function<Dim(const Dim& expr, const Dim& extent)>;

  IndexSpace() = default;
  explicit IndexSpace(Shorten shorten) : shorten_(std::move(shorten)) {}

  /// A new integer in 0 .. extent-1.
  Dim Add(const Dim& extent);
  /// Iterations of a loop from `start` on, and cuts that were asked for: `cuts_before` at places
  /// none of which is behind its first iteration, `cuts_after` at places none of which is before
  /// its end.
  struct Piece {
    size_t loop;
    Dim start;
    std::vector<Dim> cuts_before, cuts_after;
    /// Whether all its iterations are known to be at or behind the cut; before it.
    bool BeginsAt(const Dim& cut) const;
    bool EndsBefore(const Dim& cut) const;
  };
  /// One that a loop counts over a piece; the loop may be divided.
  Dim AddCounter(const Dim& extent, const Piece& piece);
  /// The number of the integer of that symbol, in order of Add; nothing for one of the types.
  std::optional<size_t> Number(std::string_view symbol) const;

  /// Least and greatest values; unknown where not found.
  std::pair<Dim, Dim> Range(const Dim& expr) const;
  /// Whether expr < bound, for all values; nothing if only for some, or if that is not known.
  std::optional<bool> Below(const Dim& expr, const Dim& bound);
  /// Of an expression that is not negative.
  Dim Div(const Dim& expr, const Dim& by) { return Divide(expr, by).first; }
  Dim Mod(const Dim& expr, const Dim& by) { return Divide(expr, by).second; }
  std::pair<Dim, Dim> Divide(const Dim& expr, const Dim& by);
  /// The expression, or what it is shortened to where it is long: expressions are made of one
  /// another, and must not grow with the number of operations.
  Dim Short(const Dim& expr, const Dim& extent) const;
  /// The row-major place of an element, and back.
  Dim Flatten(const std::vector<Dim>& at, const std::vector<Dim>& dims) const;
  std::vector<Dim> Unflatten(const Dim& flat, const std::vector<Dim>& dims);

  /// How much `expr` grows where that integer grows by one; unknown if that depends on integers.
  Dim Slope(const Dim& expr, size_t number) const;

  /// That loop would have to be cut before iteration `at` ...
  struct Cut {
    size_t loop;
    Dim at;
  };
  /// ... or to become two, the inner one of that extent.
  struct Factor {
    size_t loop;
    Dim inner;
  };
  const std::vector<Cut>& cuts() const { return cuts_; }
  const std::vector<Factor>& factors() const { return factors_; }
  void AddQuestions(const IndexSpace& other);

 private:
  struct Integer {
    std::string name;
    Dim extent;
    std::optional<Piece> piece;
  };
  Dim Replace(const Dim& expr, size_t number, const Dim& by) const;
  std::vector<size_t> NumbersIn(const Dim& expr) const;
  bool IsFree(const Dim& expr) const { return NumbersIn(expr).empty(); }
  std::optional<Cut> CutWhere(const Dim& expr, const Dim& bound, bool* rises) const;
  bool AskForFactor(const Dim& rest, const Dim& by);

  Shorten shorten_;  // none: nothing is
  std::vector<Integer> integers_;
  std::vector<Cut> cuts_;
  std::vector<Factor> factors_;
};

/// Whether it takes long to compute with the expression.
bool IsLong(const Dim& expr);

/// Whether a < b (a <= b) whatever the symbols are. More is found than by the bounds of b - a.
bool ProvablyLess(const Dim& a, const Dim& b);
bool ProvablyAtMost(const Dim& a, const Dim& b);

}  // namespace lathe::lower
