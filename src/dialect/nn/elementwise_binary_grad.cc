#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/op_names.h"
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

// To the exponent only where the base is positive.
std::vector<Value> PowOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const PowOp op(o);
  const Term dy(b, g[0]), base(b, op.a()), c(b, op.c());
  const ElementType type = op.a().type().cast<AnyTensorType>().element();
  const Term exponent(b, CastOp::Create(b, op.b(), {.to = type}).output());
  const Term power(b, PowOp::Create(b, base, exponent + -1).c());
  std::vector<Value> grads{SumTo(b, dy * exponent * power, op.a()), Value()};
  if (!IsFloat(op.b().type().cast<AnyTensorType>().element())) return grads;
  const Value positive = Less(base.Number(0), base);
  const Term log(b, LogOp::Create(b, Select(positive, base, base.Number(1))).y());
  const ElementType back = op.b().type().cast<AnyTensorType>().element();
  const Value part = CastOp::Create(b, dy * c * log, {.to = back}).output();
  grads[kB] = SumTo(b, part, op.b());
  return grads;
}

namespace {

// Each of those that have the extreme value gets an equal share.
std::vector<Value> GradOfExtreme(Operation* o, Value g, Builder& b) {
  const Term dy(b, g), y(b, o->result(0));
  std::vector<Term> has;
  for (size_t i = 0; i < o->num_operands(); ++i) {
    has.push_back(AsNumbers(Equal(Term(b, o->operand(i)), y), y));
  }
  Term count = has[0];
  for (size_t i = 1; i < has.size(); ++i) count = count + has[i];
  std::vector<Value> grads;
  for (size_t i = 0; i < has.size(); ++i) {
    grads.push_back(SumTo(b, Typed(dy * has[i] / count, y), o->operand(i)));
  }
  return grads;
}

std::vector<Value> SumToEach(Operation* o, Value g, Builder& b) {
  std::vector<Value> grads;
  for (size_t i = 0; i < o->num_operands(); ++i) grads.push_back(SumTo(b, g, o->operand(i)));
  return grads;
}

}  // namespace

std::vector<Value> MaxOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return GradOfExtreme(o, g[0], b);
}

std::vector<Value> MinOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return GradOfExtreme(o, g[0], b);
}

std::vector<Value> SumOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return SumToEach(o, g[0], b);
}

std::vector<Value> MeanOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return SumToEach(o, 1.0 / static_cast<double>(o->num_operands()) * Term(b, g[0]), b);
}

std::vector<Value> PreluOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const PreluOp op(o);
  const Term dy(b, g[0]), x(b, op.x()), slope(b, op.slope());
  const Value below = Less(x, x.Number(0));
  const Value dx = Typed(Select(below, dy * slope, dy), op.x());
  return {dx, SumTo(b, Typed(Select(below, dy * x, x.Number(0)), op.x()), op.slope())};
}

// a - q b, where the whole number q is piecewise constant.
std::vector<Value> ModOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const ModOp op(o);
  const Term dy(b, g[0]), a(b, op.a()), divisor(b, op.b()), rest(b, op.c());
  const Term q = ((a - rest) / divisor).Call(nn::kRound);
  return {SumTo(b, dy, op.a()), SumTo(b, -(dy * q), op.b())};
}

}  // namespace lathe::nn
