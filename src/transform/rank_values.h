#pragma once

#include <set>
#include <string>
#include <string_view>
#include <unordered_set>

#include "lathe/pass/graph.h"

namespace lathe {

/// Which values of a program all ranks share when each runs it on inputs of its own: constants,
/// results of collectives that give everyone the same, parameters (which ranks begin with alike),
/// and what is computed of such. Inputs, random numbers, and what one rank gets of a collective may
/// differ. Conservative: what it says to be shared is. Places of one process count as ranks.
class RankValues {
 public:
  explicit RankValues(const Program& program);

  bool MayDiffer(Value value) const { return differing_.contains(value); }
  /// Ranks may disagree on whether, or how often, the regions of the operation run.
  bool RunsApart(const Operation* op) const;

 private:
  void Visit(Operation* op);
  void VisitYield(Operation* yield);
  bool ResultsDiffer(Operation* op) const;
  bool ReadsDiffering(const Operation* op) const;
  void Mark(Value value);
  void MarkAll(const Operation* op);

  std::unordered_set<Value> differing_;           // asked, never iterated
  std::set<std::string, std::less<>> variables_;  // parameters that are set to such values
  std::set<std::string, std::less<>> functions_;  // that read more than their arguments
  bool changed_ = false;
};

/// A collective, or something whose regions or callee have one.
class CollectiveFinder {
 public:
  explicit CollectiveFinder(const Program& program);
  bool Holds(Operation* op) const;

 private:
  bool HoldsWithin(Operation* op) const;
  std::set<std::string, std::less<>> functions_;
};

}  // namespace lathe
