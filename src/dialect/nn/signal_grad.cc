#include <numeric>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/nn/signal.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {
namespace {

// [n, n - 1]: row i has all numbers below n but i.
Value AllBut(Builder& b, int64_t n) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      if (j != i) numbers.push_back(j);
    }
  }
  return builtin::ConstantOp::Create(b, {.value = Tensor::Of<int64_t>({n, n - 1}, numbers)})
      .result();
}

// [n, n]: 1 and -1 like the fields of a chessboard.
Value Signs(Builder& b, int64_t n, ElementType type) {
  std::vector<double> signs;
  for (int64_t i = 0; i < n * n; ++i) signs.push_back((i / n + i % n) % 2 == 0 ? 1 : -1);
  const Tensor all = Cast(Tensor::Of<double>({n, n}, signs), type);
  return builtin::ConstantOp::Create(b, {.value = all}).result();
}

}  // namespace

// The gradient of an element is its cofactor, a determinant of a smaller matrix: right for singular
// matrices, too.
std::vector<Value> DetOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const DetOp op(o);
  const int64_t rank = KnownRank(op.x());
  const int64_t n = KnownShape(op.x(), static_cast<size_t>(rank - 2)).back();
  const int64_t last[] = {rank - 2, rank - 1};
  const Term dy(b, UnsqueezeOp::Create(b, g[0], IntsConstant(b, last)).expanded());
  if (n < 2) return {Typed(dy, op.x())};
  const Value others = AllBut(b, n);
  const Value rows = GatherOp::Create(b, op.x(), others, {.axis = rank - 2}).output();
  const Value minors = GatherOp::Create(b, rows, others, {.axis = rank}).output();
  std::vector<int64_t> perm(static_cast<size_t>(rank) + 2);  // ..., i, row, j, column
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[static_cast<size_t>(rank) - 1], perm[static_cast<size_t>(rank)]);
  const Value ordered = TransposeOp::Create(b, minors, {.perm = perm}).transposed();
  const Term cofactors =
      Term(b, DetOp::Create(b, ordered).y()) * Term(b, Signs(b, n, dy.element()));
  return {Typed(dy * cofactors, op.x())};
}

}  // namespace lathe::nn
