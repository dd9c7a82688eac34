#pragma once

#include "lathe/lower/loop_builder.h"

namespace lathe::lower {

/// Rows whose elements are computed phase by phase: those of phase p are p, p + n, p + 2 * n, ...
/// of n phases. Memory of the function's own.
class PhaseRows {
 public:
  struct Sizes {
    ElementType element;
    int64_t rows, phases;
    int64_t positions;  ///< of a phase, a multiple of the lanes
    int64_t lanes;
  };
  static int64_t Bytes(const Sizes& sizes);
  PhaseRows(LoopBuilder& lb, const Sizes& sizes);

  /// Elements of a phase from number `position` on.
  void Store(Value row, Value phase, Value position, Value vector);
  /// Of what Load gives.
  int64_t lanes() const { return sizes_.lanes * turns_; }
  /// Piece number `piece` of what begins with number `position` of all phases.
  Value Load(Value row, Value position, Value piece);

 private:
  LoopBuilder& lb_;
  Sizes sizes_;
  int64_t turns_ = 1;  // of phases that are put together when they are loaded
  Value memory_;
};

}  // namespace lathe::lower
