#pragma once

#include <optional>
#include <set>
#include <vector>

#include "lathe/lower/lowering.h"
#include "lathe/support/random.h"

namespace lathe {

/// Which values of a strategy's knobs a tuner tries next: those that differ in one knob from the
/// best so far and, when all of these are known, any; each only once, so that a small space is
/// tried as a whole. The same questions and answers give the same order.
class KnobSearch {
 public:
  /// Begins at the values that the strategy prefers, which took `seconds`.
  KnobSearch(std::vector<lower::KnobChoice> knobs, double seconds);

  /// The next to try; nothing if all have been.
  std::optional<lower::Knobs> Next();
  /// How long that took; nothing if it could not be tried.
  void Tell(std::optional<double> seconds);
  double best_seconds() const { return best_seconds_; }

 private:
  using Point = std::vector<size_t>;  // a value of each knob, by number
  void AddNeighbors();
  std::optional<Point> Any();
  bool Increment(Point& point) const;

  std::vector<lower::KnobChoice> knobs_;
  RandomStream random_{1};
  std::set<Point> tried_;
  std::vector<Point> neighbors_;  // of the best, the next one last
  Point best_, asked_;
  double best_seconds_;
};

}  // namespace lathe
