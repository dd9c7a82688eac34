#pragma once

#include "lathe/ir/context.h"

namespace lathe {

/// Loads every dialect that comes with Lathe. Takes well under a millisecond.
void LoadAllDialects(IrContext& context);

}  // namespace lathe
