#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {
namespace {

Value Unsqueezed(Builder& b, Value x, const std::vector<int64_t>& axes) {
  if (axes.empty()) return x;
  return UnsqueezeOp::Create(b, x, IntsConstant(b, axes)).expanded();
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
  const auto product = [&b](Value left, Value right, bool transpose_x, bool transpose_y) {
    return MatmulOp::Create(b, left, right,
                            {.transpose_x = transpose_x, .transpose_y = transpose_y})
        .z();
  };
  Value dx = SumTo(b, tx ? product(y, dz, ty, true) : product(dz, y, false, !ty), x);
  Value dy = SumTo(b, ty ? product(dz, x, true, tx) : product(x, dz, !tx, false), y);
  if (row) dx = ReshapeLike(b, dx, op.x());
  if (column) dy = ReshapeLike(b, dy, op.y());
  return {dx, dy};
}

std::vector<Value> GemmOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const GemmOp op(o);
  const Term dy(b, g[0]);
  const Value scaled = op.alpha() * dy;
  const auto product = [&b](Value x, Value y, bool transpose_x, bool transpose_y) {
    return MatmulOp::Create(b, x, y, {.transpose_x = transpose_x, .transpose_y = transpose_y}).z();
  };
  const bool ta = op.transA(), tb = op.transB();
  const Value da = ta ? product(op.b(), scaled, tb, true) : product(scaled, op.b(), false, !tb);
  const Value db = tb ? product(scaled, op.a(), true, ta) : product(op.a(), scaled, !ta, false);
  std::vector<Value> grads{Typed(da, op.a()), Typed(db, op.b())};
  if (op.c()) grads.push_back(SumTo(b, op.beta() * dy, op.c()));
  return grads;
}

}  // namespace lathe::nn
