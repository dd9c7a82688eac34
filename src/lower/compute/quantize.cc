#include "lathe/dialect/nn/quantize.h"

#include <cmath>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/scalars.h"

// Numbers to small integers and back. The arithmetic is that of the interpreter where it decides
// how a number is rounded.
namespace lathe::lower {
namespace {

constexpr ElementType kNarrow = ElementType::kF32;

// Which entry of the scale or zero point belongs to an element.
Place ScaleAt(const ElementOf& c, size_t operand, int64_t axis_attribute, int64_t block) {
  const std::vector<Dim> scale = c.Dims(operand);
  if (scale.empty()) return {};
  if (scale.size() == 1 && scale[0].IsConstant(1)) return {0};
  const size_t axis = AxisOf(axis_attribute, c.at.size());
  if (axis >= c.at.size()) return {0};
  if (block == 0) return {c.at[axis]};
  Place place = c.at;
  place[axis] = c.e.space().Div(c.at[axis], Dim(block));
  return place;
}

std::string RefuseScale(const Operation& op, int64_t axis_attribute, int64_t block) {
  Fits fits(op);
  const std::vector<Dim> x = fits.Dims(0);
  for (const size_t i : {1, 2}) {
    const std::vector<Dim> scale = fits.Dims(i);
    if (scale.empty() || (scale.size() == 1 && scale[0].IsConstant(1))) continue;
    std::vector<Dim> expected = x;
    const size_t axis = AxisOf(axis_attribute, x.size());
    if (axis >= x.size() && scale.size() == 1) continue;  // one for all: a constraint says so
    if (block > 0) expected[axis] = CeilDiv(x[axis], Dim(block));
    if (block == 0) expected = {x[axis]};
    fits.Is(i, expected);
  }
  return fits.why();
}

bool IsSmallFloat(ElementType element) { return IsFloat(element) && BitWidth(element) <= 8; }

// In which type (x - zero point) * scale is rounded only once, to the result. Of 8-bit floats the
// difference may have more digits than f32.
ElementType ProductType(const ElementOf& c) {
  using Op = nn::DequantizeLinearOp;
  const ElementType x = TensorOf(c.op->operand(Op::kX)).element();
  const ElementType scale = TensorOf(c.op->operand(Op::kXScale)).element();
  const bool exact_difference = BitWidth(x) <= 16 && !(IsSmallFloat(x) && c.Has(Op::kXZeroPoint));
  const bool exact_product = BitWidth(x) <= 8 && BitWidth(scale) == 16;
  const bool rounds_once = c.Element() == kNarrow || exact_product;
  return exact_difference && rounds_once ? kNarrow : kWide;
}

Value Dequantized(const ElementOf& c) {
  using Op = nn::DequantizeLinearOp;
  const Op op(c.op);
  const Scalars s(c.e);
  const auto at = [&](size_t i) { return ScaleAt(c, i, op.axis(), op.block_size()); };
  const ElementType type = ProductType(c);
  Value x = s.Cast(c.Operand(Op::kX, c.at), type);
  if (c.Has(Op::kXZeroPoint))
    x = s.Sub(x, s.Cast(c.Operand(Op::kXZeroPoint, at(Op::kXZeroPoint)), type));
  return s.Cast(s.Mul(x, s.Cast(c.Operand(Op::kXScale, at(Op::kXScale)), type)), c.Element());
}

// The precision of x / scale.
ElementType DivisionType(nn::QuantizeLinearOp op) {
  const ElementType scale = TensorOf(op.y_scale()).element();
  if (const auto given = op.precision()) return *given;
  if (scale == ElementType::kF8E8M0) return kNarrow;
  return IsFloat(scale) ? scale : kWide;
}

// Of a quotient. Nothing but the sum is rounded: in f32 it may lose digits.
Value QuantizedFloat(const ElementOf& c, Value y) {
  const nn::QuantizeLinearOp op(c.op);
  const Scalars s(c.e);
  if (op.y_zero_point()) {
    const Place at = ScaleAt(c, op.kYZeroPoint, op.axis(), op.block_size());
    y = s.Add(s.Cast(y, kWide), s.Cast(c.Operand(op.kYZeroPoint, at), kWide));
  }
  return nn::CastOp::Create(c.e.lb().b(), y, {.to = c.Element(), .saturate = op.saturate()})
      .output();
}

Value Quantized(const ElementOf& c) {
  using Op = nn::QuantizeLinearOp;
  const Op op(c.op);
  const Scalars s(c.e);
  const auto at = [&](size_t i) { return ScaleAt(c, i, op.axis(), op.block_size()); };
  const ElementType precision = DivisionType(op);
  Value y = s.Div(s.Cast(c.Operand(Op::kX, c.at), precision),
                  s.Cast(c.Operand(Op::kYScale, at(Op::kYScale)), precision));
  if (IsFloat(c.Element())) return QuantizedFloat(c, y);
  const ElementType type = precision == kWide ? kWide : kNarrow;
  y = nn::RoundOp::Create(c.e.lb().b(), s.Cast(y, type)).y();
  if (c.Has(Op::kYZeroPoint))
    y = s.Add(y, s.Cast(c.Operand(Op::kYZeroPoint, at(Op::kYZeroPoint)), type));
  return SaturatedCast(c.e.lb(), y, c.Element());
}

std::string RefuseQuantized(const Operation& op) {
  const nn::QuantizeLinearOp quantize(&op);
  if (std::string why = RefuseScale(op, quantize.axis(), quantize.block_size()); !why.empty()) {
    return why;
  }
  const ElementType precision = DivisionType(quantize);
  const bool known = precision == kWide || precision == kNarrow || BitWidth(precision) == 16;
  return known ? "" : StrCat("a division in ", Name(precision));
}

std::string RefuseDequantized(const Operation& op) {
  const nn::DequantizeLinearOp dequantize(&op);
  return RefuseScale(op, dequantize.axis(), dequantize.block_size());
}

Value LookedUp(const ElementOf& c) {
  using Op = nn::LookupOp;
  const Scalars s(c.e);
  const Value index = s.Cast(c.Operand(Op::kX, c.at), ElementType::kI64);
  return c.Operand(Op::kTable, {c.e.Loaded(index, c.Dims(Op::kTable)[0])});
}

constexpr Compute kQuantizeComputes[] = {
    {nn::kDequantizeLinear, Dequantized, RefuseDequantized},
    {nn::kLookup, LookedUp},
    {nn::kQuantizeLinear, Quantized, RefuseQuantized},
};

}  // namespace

std::span<const Compute> QuantizeComputes() { return kQuantizeComputes; }

}  // namespace lathe::lower
