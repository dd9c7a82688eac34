#pragma once

#include "lathe/ir/builder.h"

namespace lathe::lower {

/// Replaces an `nn.gemm` by a product and what follows it. Integers that are scaled stay: they are
/// computed in double.
void SpellGemm(Operation* gemm);

}  // namespace lathe::lower
