#include "lathe/dialect/nn/activation.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/movement.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {

// 0 at the corner.
std::vector<Value> ReluOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Value zero = FilledLike(b, ReluOp(o).x(), 0);
  const Value positive = GreaterOp::Create(b, ReluOp(o).x(), zero).c();
  return {WhereOp::Create(b, positive, g[0], zero).output()};
}

// y (1 - y).
std::vector<Value> SigmoidOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Value y = SigmoidOp(o).y();
  const Value part = MulOp::Create(b, g[0], y).c();
  return {SubOp::Create(b, part, MulOp::Create(b, part, y).c()).c()};
}

}  // namespace lathe::nn
