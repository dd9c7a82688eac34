#include "src/lower/compute/scalars.h"

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/movement.h"

namespace lathe::lower {

Value Scalars::Cast(Value x, ElementType to) const {
  if (TensorOf(x).element() == to) return x;
  return nn::CastOp::Create(b(), x, {.to = to}).output();
}

Value Scalars::Add(Value a, Value b2) const { return nn::AddOp::Create(b(), a, b2).c(); }
Value Scalars::Sub(Value a, Value b2) const { return nn::SubOp::Create(b(), a, b2).c(); }
Value Scalars::Mul(Value a, Value b2) const { return nn::MulOp::Create(b(), a, b2).c(); }
Value Scalars::Div(Value a, Value b2) const { return nn::DivOp::Create(b(), a, b2).c(); }

Value Scalars::Max(Value a, Value b2) const {
  const Value both[] = {a, b2};
  return nn::MaxOp::Create(b(), both).y();
}

Value Scalars::Min(Value a, Value b2) const {
  const Value both[] = {a, b2};
  return nn::MinOp::Create(b(), both).y();
}

Value Scalars::Abs(Value x) const { return nn::AbsOp::Create(b(), x).y(); }
Value Scalars::Floor(Value x) const { return nn::FloorOp::Create(b(), x).y(); }
Value Scalars::Round(Value x) const { return nn::RoundOp::Create(b(), x).y(); }
Value Scalars::Exp(Value x) const { return nn::ExpOp::Create(b(), x).y(); }
Value Scalars::Log(Value x) const { return nn::LogOp::Create(b(), x).y(); }
Value Scalars::Less(Value a, Value b2) const { return nn::LessOp::Create(b(), a, b2).c(); }
Value Scalars::AtMost(Value a, Value b2) const { return nn::LessOrEqualOp::Create(b(), a, b2).c(); }
Value Scalars::Equal(Value a, Value b2) const { return nn::EqualOp::Create(b(), a, b2).c(); }
Value Scalars::And(Value a, Value b2) const { return nn::AndOp::Create(b(), a, b2).c(); }
Value Scalars::Or(Value a, Value b2) const { return nn::OrOp::Create(b(), a, b2).c(); }
Value Scalars::Not(Value x) const { return nn::NotOp::Create(b(), x).y(); }

Value Scalars::Select(Value condition, Value x, Value y) const {
  return nn::WhereOp::Create(b(), condition, x, y).output();
}

Value SaturatedCast(LoopBuilder& lb, Value x, ElementType to) {
  const AnyTensorType type = TensorOf(x);
  if (type.element() == to) return x;
  if (IsInteger(to)) {
    const int64_t lanes = type.rank() == 0 ? 0 : type.dims()[0].value();
    const IntegerLimits limits = LimitsOf(to);
    const Value low = lb.Splat(type.element(), limits.low, lanes);
    const Value high = lb.Splat(type.element(), limits.high, lanes);
    const Value above = nn::LessOp::Create(lb.b(), low, x).c();
    const Value both[] = {x, high};
    const Value below = nn::MinOp::Create(lb.b(), both).y();
    x = nn::WhereOp::Create(lb.b(), above, below, low).output();
  }
  return nn::CastOp::Create(lb.b(), x, {.to = to}).output();
}

Value Scalars::Power(Value x, double p) const {
  if (p == 1) return x;
  if (p == 2) return Mul(x, x);
  if (p == 0.5) return nn::SqrtOp::Create(b(), x).y();
  const ElementType element = TensorOf(x).element();
  const Value power = Exp(Mul(Log(x), Number(element, p)));
  return Select(Equal(x, Number(element, 0.0)), x, power);
}

Dim Scalars::AsIndex(Value condition) const {
  return e_.Loaded(Cast(condition, ElementType::kI64), 2);
}

Dim Scalars::Inside(Value x, const Dim& extent) const {
  const Value index = Cast(x, ElementType::kI64), zero = e_.lb().Int(0);
  return e_.Loaded(Max(Min(index, e_.Int(extent - 1)), zero), extent);
}

}  // namespace lathe::lower
