#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lathe/ir/program.h"

namespace lathe {

/// x W for a matrix x [N, rows] and constants W [rows, width], row by row.
struct LinearTerm {
  Value x;
  int64_t rows;
  std::vector<double> w;
};

/// A matrix [N, width] as a sum of products with constant matrices and of a constant row.
struct LinearForm {
  int64_t width = 0;
  std::vector<LinearTerm> terms;  ///< each x once
  std::vector<double> bias;       ///< [width]

  /// The term of `x`, or null.
  const LinearTerm* Of(Value x) const;
};

/// `width` columns of `value` from `begin` on. Reads through sums, products (matmul, gemm),
/// concatenated inputs and slices of columns.
std::optional<LinearForm> AsLinearForm(const Program& program, Value value, int64_t begin,
                                       int64_t width);

}  // namespace lathe
