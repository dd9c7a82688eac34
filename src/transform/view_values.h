#pragma once

#include <string>

#include "lathe/pass/rewriter.h"

namespace lathe {

/// The op that computes what in-place op `op` writes: its name without '_'. Empty if there is none.
std::string ValueTwin(const Operation* op);

/// The view op has counterparts with value semantics.
bool IsKnownView(const Operation* view);
/// Ops before the insertion point that compute what `view` shows when what it views holds `base`.
Value ReadView(Rewriter& r, Operation* view, Value base);
/// Every element of the viewed tensor is in the view: a write needs none of the old ones.
bool ShowsEverything(const Operation* view);
/// What the viewed tensor holds after `value` was written through `view`. `base`: what it held; for
/// its shape only if the view shows everything.
Value WriteView(Rewriter& r, Operation* view, Value base, Value value);

}  // namespace lathe
