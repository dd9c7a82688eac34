#include <array>

#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {
namespace {

Value Unsqueezed(Builder& b, Value x, const std::vector<int64_t>& axes) {
  if (axes.empty()) return x;
  return UnsqueezeOp::Create(b, x, IntsConstant(b, axes)).expanded();
}

Value Product(Builder& b, Value left, Value right, bool transpose_x, bool transpose_y) {
  return MatmulOp::Create(b, left, right, {.transpose_x = transpose_x, .transpose_y = transpose_y})
      .z();
}

// [..., K] as [rows, K].
Value Rows(Builder& b, Value x, int64_t columns) {
  return ReshapeOp::Create(b, x, IntsConstant(b, std::array<int64_t, 2>{-1, columns})).reshaped();
}

// The gradient of one matrix y that all of x [..., M, K] is multiplied by: a product of matrices,
// too, where the sum over batches of products would write each of them. Null if it is not so.
Value OfSharedMatrix(Builder& b, Value x, Value y, Value dz, bool transpose_y) {
  if (KnownRank(y) != 2 || KnownRank(x) < 3) return {};
  const auto last = [](Value v) {
    const Dim dim = v.type().cast<AnyTensorType>().dims().back();
    return dim.is_constant() ? dim.value() : 0;
  };
  const int64_t depth = last(x), columns = last(dz);
  if (depth == 0 || columns == 0) return {};
  const Value left = Rows(b, x, depth), right = Rows(b, dz, columns);
  return Typed(
      transpose_y ? Product(b, right, left, true, false) : Product(b, left, right, true, false), y);
}

}  // namespace

// z = X Y for X = x or its transpose, Y likewise: dX = dz Y^T, dY = X^T dz. A vector x is a row, a
// vector y a column.
std::vector<Value> MatmulOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const MatmulOp op(o);
  const bool row = KnownRank(op.x()) == 1, column = KnownRank(op.y()) == 1;
  const bool tx = op.transpose_x() && !row, ty = op.transpose_y() && !column;
  std::vector<int64_t> missing;
  if (row) missing.push_back(-2);
  if (column) missing.push_back(-1);
  const Value x = row ? Unsqueezed(b, op.x(), {0}) : op.x();
  const Value y = column ? Unsqueezed(b, op.y(), {1}) : op.y();
  const Value dz = Unsqueezed(b, g[0], missing);
  Value dx = SumTo(b, tx ? Product(b, y, dz, ty, true) : Product(b, dz, y, false, !ty), x);
  Value dy = tx ? Value() : OfSharedMatrix(b, x, y, dz, ty);
  if (!dy) dy = SumTo(b, ty ? Product(b, dz, x, true, tx) : Product(b, x, dz, !tx, false), y);
  if (row) dx = ReshapeLike(b, dx, op.x());
  if (column) dy = ReshapeLike(b, dy, op.y());
  return {dx, dy};
}

std::vector<Value> GemmOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const GemmOp op(o);
  const Term dy(b, g[0]);
  const Value scaled = op.alpha() * dy;
  const bool ta = op.transA(), tb = op.transB();
  const Value da =
      ta ? Product(b, op.b(), scaled, tb, true) : Product(b, scaled, op.b(), false, !tb);
  const Value db =
      tb ? Product(b, scaled, op.a(), true, ta) : Product(b, op.a(), scaled, !ta, false);
  std::vector<Value> grads{Typed(da, op.a()), Typed(db, op.b())};
  if (op.c()) grads.push_back(SumTo(b, op.beta() * dy, op.c()));
  return grads;
}

}  // namespace lathe::nn
