#pragma once

#include "lathe/ir/builder.h"

namespace lathe::lower {

/// Replaces an `nn.gemm` by a product and what follows it. Integers that are scaled stay: they are
/// computed in double.
void SpellGemm(Operation* gemm);

/// Replaces an `nn.qlinear_matmul` of bytes by a product of integers, which is exact, and what
/// makes bytes of it in f64. Scales per row stay, and so do 8-bit floats.
void SpellQlinearMatmul(Operation* product);

}  // namespace lathe::lower
