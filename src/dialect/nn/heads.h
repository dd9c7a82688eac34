#pragma once

#include <cstdint>
#include <vector>

#include "lathe/support/dim.h"
#include "lathe/support/tensor.h"

// Operands of the attention ops: [B, H, L, E], or [B, L, H * E] with a given number of heads.
namespace lathe::nn {

// Batches, heads, rows and features of a shape of either kind. `heads` counts for rank 3 only; 0 is
// none given. Throws Error kShape.
SymShape HeadShape(const SymShape& shape, int64_t heads, const char* what);

// The elements as doubles, row by row.
class Heads {
 public:
  Heads(const Tensor& tensor, int64_t heads, const char* what);

  int64_t batch, heads, rows, features;

  [[nodiscard]] const double* Row(int64_t b, int64_t h, int64_t row) const {
    const int64_t at = packed_ ? (b * rows + row) * heads + h : (b * heads + h) * rows + row;
    return values_.data() + at * features;
  }
  [[nodiscard]] double* Row(int64_t b, int64_t h, int64_t row) {
    return const_cast<double*>(std::as_const(*this).Row(b, h, row));
  }
  [[nodiscard]] std::vector<double>& values() { return values_; }

 private:
  bool packed_;
  std::vector<double> values_;
};

}  // namespace lathe::nn
