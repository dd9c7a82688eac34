#pragma once

#include <unordered_map>

#include "lathe/ir/functions.h"

namespace lathe {

/// What calls of the program's functions do beside giving results; as far as it concerns whether
/// they may be dropped or merged.
class CallEffects {
 public:
  explicit CallEffects(const Program& program);
  /// A call whose function changes nothing outside of it.
  bool IsRemovableCall(const Operation* op) const { return EffectOf(op) <= Effect::kReads; }
  /// A call that gives the same again for the same operands.
  bool IsMergeableCall(const Operation* op) const { return EffectOf(op) == Effect::kNone; }

 private:
  enum class Effect : uint8_t { kNone, kReads, kUnknown };
  Effect EffectOf(const Operation* op) const;
  Effect EffectOfBody(Operation* function) const;

  FunctionTable functions_;
  std::unordered_map<const Operation*, Effect> effects_;  ///< looked up, never iterated
};

}  // namespace lathe
