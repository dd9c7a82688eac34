#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {

std::vector<Value> IdentityOp::Grad(Operation*, std::span<const Value> g, Builder&) {
  return {g[0]};
}

std::vector<Value> BlockGradientOp::Grad(Operation*, std::span<const Value>, Builder&) {
  return {Value()};
}

std::vector<Value> NegOp::Grad(Operation*, std::span<const Value> g, Builder& b) {
  return {NegOp::Create(b, g[0]).y()};
}

std::vector<Value> ExpOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {MulOp::Create(b, g[0], ExpOp(o).y()).c()};
}

std::vector<Value> LogOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {DivOp::Create(b, g[0], LogOp(o).x()).c()};
}

// 1 / (2 sqrt(x)).
std::vector<Value> SqrtOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Value y = SqrtOp(o).y();
  return {DivOp::Create(b, g[0], AddOp::Create(b, y, y).c()).c()};
}

// 1 - tanh(x)^2.
std::vector<Value> TanhOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Value y = TanhOp(o).y();
  const Value square = MulOp::Create(b, y, y).c();
  return {SubOp::Create(b, g[0], MulOp::Create(b, g[0], square).c()).c()};
}

}  // namespace lathe::nn
