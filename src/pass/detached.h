#pragma once

#include <unordered_set>

#include "lathe/ir/program.h"

namespace lathe {

/// An isolated operation on its own: in a program that holds nothing else but the parameters it
/// names, so that passes can neither see nor touch what stands around it. It comes back to its
/// place; parameters that are new come into the whole program then, in order.
class Detached {
 public:
  Detached(Program& whole, Operation* op) : whole_(whole), part_(whole.context()), op_(op) {}
  Detached(Detached&&) = default;

  void TakeOut();
  /// Of several that are out, the last in program order comes back first.
  void PutBack();
  /// New parameters, renamed if the whole program has others of that name.
  void MergeParameters();

  Operation* op() const { return op_; }
  Program& part() { return part_; }
  Program& whole() const { return whole_; }

 private:
  Program& whole_;
  Program part_;
  Operation* op_;
  Block* home_ = nullptr;
  Operation* next_ = nullptr;                 ///< what it stands before
  std::unordered_set<const void*> borrowed_;  ///< names of the whole program; membership only
};

}  // namespace lathe
