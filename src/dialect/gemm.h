#pragma once

#include <cstdint>
#include <functional>

#include "lathe/support/tensor.h"

// The matrix product that matmul, gemm, einsum and the convolutions share.
namespace lathe::eval {

// Copies rows [r0, r1) and columns [c0, c1) of a matrix to `out`, row by row, `ld` apart. Called
// from several threads.
template <class Acc>
using BlockReader =
    std::function<void(int64_t r0, int64_t r1, int64_t c0, int64_t c1, Acc* out, int64_t ld)>;
// Takes rows [r0, r1) and columns [c0, c1) of the result, rows `ld` apart. Called from several
// threads, once for each element.
template <class Acc>
using BlockWriter =
    std::function<void(int64_t r0, int64_t r1, int64_t c0, int64_t c1, const Acc* in, int64_t ld)>;

// C[m, n] = sum over k of A[m, k] * B[k, n], accumulated in Acc: double for floats and 8-bit
// integers, uint64_t (which wraps like every integer type below it) for the others. The order of
// the sums depends on the sizes only, not on the number of threads.
template <class Acc>
struct MatrixProduct {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  BlockReader<Acc> a;
  BlockReader<Acc> b;
  BlockWriter<Acc> c;
};
template <class Acc>
void Multiply(const MatrixProduct<Acc>& product);

// The matrix that starts at element `offset` of `tensor`; neighbors in a row (column) are
// `column_stride` (`row_stride`) elements apart. The tensor must outlive the reader.
template <class Acc>
BlockReader<Acc> MatrixOf(const Tensor& tensor, int64_t offset, int64_t row_stride,
                          int64_t column_stride);

}  // namespace lathe::eval
