#include "src/dialect/gemm.h"

#include <algorithm>
#include <vector>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/budget.h"
#include "lathe/support/divide.h"
#include "lathe/support/error.h"
#include "lathe/support/parallel.h"

namespace lathe::eval {
namespace {

constexpr int64_t kColumns = 128;  // of a task
constexpr int64_t kTaskRows = 512;
constexpr int64_t kDepth = 256;             // of a panel of A and B
constexpr int64_t kRows = 64;               // of a panel of A
constexpr int64_t kPanelLd = kColumns + 8;  // odd in cache lines, so that a strip stays in L1
constexpr int64_t kTile = 4;                // rows and columns held in registers

// c[4, 4] += a[4, depth] * b[depth, 4], two columns to a register.
template <class Acc>
void MultiplyTile(const Acc* a, const Acc* b, int64_t depth, Acc* c, int64_t ldc) {
  using Pair __attribute__((vector_size(16), aligned(8), may_alias)) = Acc;
  const auto load = [](const Acc* p) { return *reinterpret_cast<const Pair*>(p); };
  Pair c00{}, c01{}, c10{}, c11{}, c20{}, c21{}, c30{}, c31{};
  for (int64_t k = 0; k < depth; ++k, b += kPanelLd) {
    const Pair b0 = load(b);
    const Pair b1 = load(b + 2);
    c00 += a[k] * b0;
    c01 += a[k] * b1;
    c10 += a[kDepth + k] * b0;
    c11 += a[kDepth + k] * b1;
    c20 += a[2 * kDepth + k] * b0;
    c21 += a[2 * kDepth + k] * b1;
    c30 += a[3 * kDepth + k] * b0;
    c31 += a[3 * kDepth + k] * b1;
  }
  const Pair sums[kTile][2] = {{c00, c01}, {c10, c11}, {c20, c21}, {c30, c31}};
  for (int64_t r = 0; r < kTile; ++r) {
    for (int64_t j = 0; j < kTile; ++j) c[r * ldc + j] += sums[r][j / 2][j % 2];
  }
}

// The same for the rest at the edges.
template <class Acc>
void MultiplyEdge(const Acc* a, const Acc* b, int64_t depth, int64_t rows, int64_t columns, Acc* c,
                  int64_t ldc) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < columns; ++j) {
      Acc sum{};
      for (int64_t k = 0; k < depth; ++k) sum += a[r * kDepth + k] * b[k * kPanelLd + j];
      c[r * ldc + j] += sum;
    }
  }
}

template <class Acc>
void MultiplyPanels(const Acc* a, const Acc* b, int64_t depth, int64_t rows, int64_t columns,
                    Acc* c) {
  for (int64_t j = 0; j < columns; j += kTile) {
    for (int64_t r = 0; r < rows; r += kTile) {
      const int64_t tile_rows = std::min(kTile, rows - r);
      const int64_t tile_columns = std::min(kTile, columns - j);
      Acc* out = c + r * kColumns + j;
      if (tile_rows == kTile && tile_columns == kTile) {
        MultiplyTile(a + r * kDepth, b + j, depth, out, kColumns);
      } else {
        MultiplyEdge(a + r * kDepth, b + j, depth, tile_rows, tile_columns, out, kColumns);
      }
    }
  }
}

template <class Acc>
void MultiplyBlock(const MatrixProduct<Acc>& p, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  std::vector<Acc> sums(static_cast<size_t>((r1 - r0) * kColumns));
  std::vector<Acc> a(static_cast<size_t>(kRows * kDepth));
  std::vector<Acc> b(static_cast<size_t>(kDepth * kPanelLd));
  for (int64_t k0 = 0; k0 < p.k; k0 += kDepth) {
    CheckBudget();
    const int64_t k1 = std::min(p.k, k0 + kDepth);
    p.b(k0, k1, c0, c1, b.data(), kPanelLd);
    for (int64_t m0 = r0; m0 < r1; m0 += kRows) {
      const int64_t m1 = std::min(r1, m0 + kRows);
      p.a(m0, m1, k0, k1, a.data(), kDepth);
      Acc* c = sums.data() + (m0 - r0) * kColumns;
      MultiplyPanels(a.data(), b.data(), k1 - k0, m1 - m0, c1 - c0, c);
    }
  }
  p.c(r0, r1, c0, c1, sums.data(), kColumns);
}

}  // namespace

template <class Acc>
void Multiply(const MatrixProduct<Acc>& p) {
  const int64_t across = CeilDiv(p.n, kColumns);
  const int64_t down = CeilDiv(p.m, kTaskRows);
  ParallelFor(0, across * down, 1, [&](int64_t task, int64_t) {
    const int64_t r0 = task / across * kTaskRows;
    const int64_t c0 = task % across * kColumns;
    MultiplyBlock(p, r0, std::min(p.m, r0 + kTaskRows), c0, std::min(p.n, c0 + kColumns));
  });
}

template <class Acc>
BlockReader<Acc> MatrixOf(const Tensor& tensor, int64_t offset, int64_t row_stride,
                          int64_t column_stride) {
  const ElementType type = tensor.element_type();
  const std::byte* data = tensor.raw();
  if (column_stride == 1) {
    return [=](int64_t r0, int64_t r1, int64_t c0, int64_t c1, Acc* out, int64_t ld) {
      for (int64_t r = r0; r < r1; ++r, out += ld) {
        Load<Acc>(type, data, offset + r * row_stride + c0, c1 - c0, out);
      }
    };
  }
  LATHE_CHECK(row_stride == 1);
  return [=](int64_t r0, int64_t r1, int64_t c0, int64_t c1, Acc* out, int64_t ld) {
    std::vector<Acc> column(static_cast<size_t>(r1 - r0));
    for (int64_t c = c0; c < c1; ++c, ++out) {
      Load<Acc>(type, data, offset + c * column_stride + r0, r1 - r0, column.data());
      for (int64_t r = 0; r < r1 - r0; ++r) out[r * ld] = column[static_cast<size_t>(r)];
    }
  };
}

template void Multiply(const MatrixProduct<double>&);
template void Multiply(const MatrixProduct<uint64_t>&);
template BlockReader<double> MatrixOf(const Tensor&, int64_t, int64_t, int64_t);
template BlockReader<uint64_t> MatrixOf(const Tensor&, int64_t, int64_t, int64_t);

}  // namespace lathe::eval
