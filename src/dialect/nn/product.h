#pragma once

#include "lathe/support/dim.h"
#include "lathe/support/tensor.h"

// The matrix product of the matmul family, numpy.matmul's rules. Throws Error kShape without a
// place.
namespace lathe::nn {

// x is [..., M, K] ([..., K, M] if `transpose_x`), y is [..., K, N]; rank 1 as in numpy.
SymShape ProductShape(const SymShape& x, const SymShape& y, bool transpose_x, bool transpose_y);

// The product as `type`: floats are summed in double and rounded once, integers wrap around.
Tensor Product(const Tensor& x, const Tensor& y, bool transpose_x, bool transpose_y,
               ElementType type);

// The arithmetic of the product, of which `x` is the left operand; a multiply-add is two.
Dim ProductFlops(const SymShape& result, const SymShape& x, bool transpose_x);

}  // namespace lathe::nn
