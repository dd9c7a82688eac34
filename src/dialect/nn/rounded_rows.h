#pragma once

#include "lathe/dialect/nn/matmul_nbits.h"

// How nn.matmul_nbits rounds the rows that it multiplies, for those who compute it.
namespace lathe::nn {

constexpr double kMostOfByte = 127;
constexpr double kLeastRounded = 1e-30;  ///< a block whose largest number is not above is zeros

/// Whether it rounds them to whole numbers of 8 bits, by blocks.
inline bool HasRoundedRows(const MatmulNbitsOp& op) { return op.accuracy_level() == 4; }

}  // namespace lathe::nn
