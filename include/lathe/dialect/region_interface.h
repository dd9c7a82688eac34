#pragma once

#include <cstdint>

#include "lathe/ir/op.h"

namespace lathe {

/// How to set the arguments of an op's regions.
enum class RegionRound : uint8_t {
  kFirst,    ///< from the operands, as if the region ran once
  kAgain,    ///< after the region was inferred: cover what it yields as well
  kWeakest,  ///< keep only what holds whatever the region yields
};

/// Ops whose regions take arguments and may run more than once.
///   static bool RegionArguments(Operation* op, RegionRound round);
/// sets the types of the arguments; true if one changed. Repeating `kAgain` ends: each change gives
/// up a known dim or rank.
class RegionArgumentsInterface : public OpInterface<RegionArgumentsInterface> {
 public:
  struct Concept {
    bool (*region_arguments)(Operation*, RegionRound);
  };
  template <class OpT>
  struct Model : Concept {
    Model() : Concept{&OpT::RegionArguments} {}
  };
  using OpInterface::OpInterface;
  bool Set(RegionRound round) const { return table()->region_arguments(op_, round); }
};

}  // namespace lathe
