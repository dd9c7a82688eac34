#include "lathe/dialect/nn/matmul.h"
#include "lathe/support/error.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {
namespace {

void ExpectMatrix(Value v) {
  const auto type = v.type().cast<AnyTensorType>();
  if (type.has_rank() && type.rank() >= 2) return;
  throw Error(ErrorCode::kUnsupported, "gradient/unsupported",
              "nn.matmul has a gradient for operands of rank 2 or more only");
}

}  // namespace

// z = X Y for X = x or its transpose, Y likewise: dX = dz Y^T, dY = X^T dz.
std::vector<Value> MatmulOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const MatmulOp op(o);
  ExpectMatrix(op.x());
  ExpectMatrix(op.y());
  const auto product = [&b](Value x, Value y, bool transpose_x, bool transpose_y) {
    return MatmulOp::Create(b, x, y, {.transpose_x = transpose_x, .transpose_y = transpose_y}).z();
  };
  const bool tx = op.transpose_x(), ty = op.transpose_y();
  const Value dx = tx ? product(op.y(), g[0], ty, true) : product(g[0], op.y(), false, !ty);
  const Value dy = ty ? product(g[0], op.x(), true, tx) : product(op.x(), g[0], !tx, false);
  return {SumTo(b, dx, op.x()), SumTo(b, dy, op.y())};
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
