#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {

std::vector<Value> AddOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const AddOp op(o);
  return {SumTo(b, g[0], op.a()), SumTo(b, g[0], op.b())};
}

std::vector<Value> SubOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const SubOp op(o);
  return {SumTo(b, g[0], op.a()), SumTo(b, NegOp::Create(b, g[0]).y(), op.b())};
}

std::vector<Value> MulOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const MulOp op(o);
  return {SumTo(b, MulOp::Create(b, g[0], op.b()).c(), op.a()),
          SumTo(b, MulOp::Create(b, g[0], op.a()).c(), op.b())};
}

// d(a / b) = da / b - (a / b) db / b.
std::vector<Value> DivOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const DivOp op(o);
  const Value by_a = DivOp::Create(b, g[0], op.b()).c();
  const Value by_b = NegOp::Create(b, MulOp::Create(b, by_a, op.c()).c()).y();
  return {SumTo(b, by_a, op.a()), SumTo(b, by_b, op.b())};
}

}  // namespace lathe::nn
