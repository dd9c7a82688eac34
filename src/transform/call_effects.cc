#include "src/transform/call_effects.h"

#include <algorithm>

#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

CallEffects::CallEffects(const Program& program) : functions_(program) {
  if (functions_.empty()) return;
  for (Operation* function : functions_.CalleesFirst()) {
    effects_.emplace(function, EffectOfBody(function));
  }
}

CallEffects::Effect CallEffects::EffectOf(const Operation* op) const {
  if (functions_.empty() || !functions_.IsCall(op)) return Effect::kUnknown;
  const auto at = effects_.find(functions_.Callee(op));
  return at == effects_.end() ? Effect::kUnknown : at->second;
}

CallEffects::Effect CallEffects::EffectOfBody(Operation* function) const {
  Effect effect = Effect::kNone;
  for (OpWalker w(FunctionTable::Body(function)); const Operation* op = w.Next();) {
    if (op->HasTrait<Terminator>()) continue;
    if (functions_.IsCall(op)) {
      effect = std::max(effect, EffectOf(op));
    } else if (op->num_regions() > 0) {
      const bool plain = op->info().is_registered() && !op->HasTrait<SideEffect>();
      if (!plain) effect = Effect::kUnknown;
    } else if (!IsRemovableWhenUnused(op)) {
      effect = Effect::kUnknown;
    } else if (!IsMergeable(op)) {
      effect = std::max(effect, Effect::kReads);
    }
    if (effect == Effect::kUnknown) break;
  }
  return effect;
}

}  // namespace lathe
