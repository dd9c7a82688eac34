#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lathe::detail {

/// The matching engine: depth-first search over goals with real backtracking, without recursion.
/// A goal is met by one of its numbered alternatives and may leave further goals, which come first.
/// `Domain` gives the meaning:
///
///   using Goal = ...;                                  // small, copied
///   bool Try(const Goal&, uint32_t alternative, std::vector<Goal>& further, bool& more);
///   size_t Mark() const;  void Undo(size_t mark);       // the trail of bindings
///   bool Accept();                                      // all goals are met: is it a match?
///   void GaveUp(int64_t steps);
///
/// Every step counts against a budget, so that the work at one root is bounded.
template <class Domain>
class Search {
 public:
  using Goal = typename Domain::Goal;
  explicit Search(Domain& domain) : domain_(domain) {}

  /// Whether all of `goals`, in order, can be met; the bindings of the first way stay.
  bool Run(const std::vector<Goal>& goals, int64_t budget) {
    cells_.clear();
    choices_.clear();
    Next now{Prepend(goals, kNone), 0};
    for (int64_t steps = 0;; ++steps) {
      if (steps == budget) {
        domain_.GaveUp(steps);
        return false;
      }
      if (now.cell == kNone && domain_.Accept()) return true;
      if (now.cell != kNone && Step(now)) continue;
      if (!Backtrack(now)) return false;
    }
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Cell {
    Goal goal;
    uint32_t next;
  };
  struct Next {
    uint32_t cell;
    uint32_t alternative;
  };
  struct Choice {
    Next next;
    size_t num_cells;
    size_t mark;
  };

  uint32_t Prepend(const std::vector<Goal>& goals, uint32_t rest) {
    for (size_t i = goals.size(); i-- > 0;) {
      cells_.push_back({goals[i], rest});
      rest = static_cast<uint32_t>(cells_.size() - 1);
    }
    return rest;
  }

  bool Step(Next& now) {
    const Cell cell = cells_[now.cell];
    const size_t mark = domain_.Mark();
    bool more = false;
    further_.clear();
    const bool met = domain_.Try(cell.goal, now.alternative, further_, more);
    if (more) choices_.push_back({{now.cell, now.alternative + 1}, cells_.size(), mark});
    if (met) now = {Prepend(further_, cell.next), 0};
    return met;
  }

  bool Backtrack(Next& now) {
    if (choices_.empty()) return false;
    const Choice choice = choices_.back();
    choices_.pop_back();
    domain_.Undo(choice.mark);
    cells_.resize(choice.num_cells);
    now = choice.next;
    return true;
  }

  Domain& domain_;
  std::vector<Cell> cells_;
  std::vector<Choice> choices_;
  std::vector<Goal> further_;
};

}  // namespace lathe::detail
