#include "lathe/dialect/nn/quantize.h"

#include <algorithm>
#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/term.h"
#include "src/dialect/wide.h"

namespace lathe::nn {

using eval::FailShape;

namespace {

constexpr int64_t kBytes = 256;  // that there are

// Which entry of the scale belongs to an element of x.
class Granularity {
 public:
  Granularity(const Shape& x, const Shape& scale, int64_t axis_attribute, int64_t block) {
    if (NumElements(scale) == 1 && scale.size() <= 1) return;  // one for all
    const auto axis =
        static_cast<size_t>(eval::NormalizeAxis(axis_attribute, static_cast<int64_t>(x.size())));
    CheckShapes(x, scale, axis, block);
    const eval::Lines lines(x, axis);
    extent_ = lines.extent;
    inner_ = lines.inner;
    if (block > 0) {
      block_ = block;
      blocks_ = scale[axis];
    }
  }

  size_t operator()(int64_t i) const {
    if (extent_ == 0) return 0;
    const int64_t k = i / inner_ % extent_;
    if (block_ == 0) return static_cast<size_t>(k);
    const int64_t outer = i / (inner_ * extent_);
    return static_cast<size_t>((outer * blocks_ + k / block_) * inner_ + i % inner_);
  }

 private:
  static void CheckShapes(const Shape& x, const Shape& scale, size_t axis, int64_t block) {
    Shape expected{x[axis]};
    if (block > 0) {
      expected = x;
      expected[axis] = x[axis] / block + (x[axis] % block != 0 ? 1 : 0);
    }
    if (scale == expected) return;
    FailShape("shape/quantize",
              StrCat("the scale has shape ", ShapeToString(scale), ", but ",
                     ShapeToString(expected), " is expected"),
              block > 0 ? "one scale per block along the axis"
                        : "one scale, one per index of the axis, or blocks with block_size");
  }

  int64_t extent_ = 0, inner_ = 1, block_ = 0, blocks_ = 0;
};

// A single zero point may have shape [] or [1], whichever of them the scale has.
void CheckZeroPoint(const Shape& scale, const Shape& zero_point) {
  const bool single = NumElements(scale) == 1 && NumElements(zero_point) == 1;
  if (scale == zero_point || single) return;
  FailShape("shape/quantize",
            StrCat("the scale has shape ", ShapeToString(scale), ", the zero point ",
                   ShapeToString(zero_point)),
            "both must have the same shape");
}

// What Granularity checks, of symbols: a scale per block, per index of the axis, or one.
void AssumeScale(const SymShape& x, const SymShape& scale, int64_t axis_attribute, int64_t block) {
  if (scale.rank() == 0 || (scale.rank() == 1 && scale.dims[0].IsConstant(1))) return;
  const auto rank = static_cast<int64_t>(x.rank());
  if (scale.rank() == 1 && !scale.dims[0].is_constant() &&
      (axis_attribute < -rank || axis_attribute >= rank)) {
    Assume(SizeCondition::Equal(scale.dims[0], 1), "shape/axis", [&] {
      return StrCat("axis ", axis_attribute, " is out of range for rank ", rank,
                    ", which only one scale for all allows");
    });
    return;
  }
  const auto axis = static_cast<size_t>(eval::NormalizeAxis(axis_attribute, rank));
  SymShape expected{x.dims[axis]};
  if (block > 0) {
    expected = x;
    expected.dims[axis] = CeilDiv(x.dims[axis], block);
  }
  const auto message = [&] {
    return StrCat("the scale has shape ", scale.ToString(), ", but ", expected.ToString(),
                  " is expected");
  };
  if (scale.rank() == 1 && expected.rank() == 1) {
    Assume(SizeCondition::BroadcastTo(scale.dims[0], expected.dims[0]), "shape/quantize", message);
    return;
  }
  if (scale.rank() == 1) {
    Assume(SizeCondition::Equal(scale.dims[0], 1), "shape/quantize", message);
    return;
  }
  if (scale.rank() != expected.rank()) FailShape("shape/quantize", message());
  for (size_t i = 0; i < scale.rank(); ++i) {
    Assume(SizeCondition::Equal(scale.dims[i], expected.dims[i]), "shape/quantize", message);
  }
}

// What CheckZeroPoint checks, of symbols.
void AssumeZeroPoint(const SymShape& scale, const SymShape& zero_point) {
  const auto message = [&] {
    return StrCat("the scale has shape ", scale.ToString(), ", the zero point ",
                  zero_point.ToString());
  };
  if (scale.rank() != zero_point.rank()) {
    for (const SymShape* single : {&scale, &zero_point}) {
      Assume(SizeCondition::Equal(single->NumElements(), 1), "shape/quantize", message);
    }
    return;
  }
  for (size_t i = 0; i < scale.rank(); ++i) {
    Assume(SizeCondition::Equal(scale.dims[i], zero_point.dims[i]), "shape/quantize", message);
  }
}

void InferScale(const InferShapeContext& c, int64_t axis, int64_t block) {
  const SymShape scale = c.shape(1);
  if (!scale.ranked) return;
  if (c.shape(0).ranked) AssumeScale(c.shape(0), scale, axis, block);
  if (c.HasInput(2) && c.shape(2).ranked) AssumeZeroPoint(scale, c.shape(2));
}

// Zero points as numbers, zeros if there is none.
std::vector<double> ZeroPoints(const EvalContext& c) {
  const Tensor& scale = c.input(1);
  if (!c.HasInput(2)) return std::vector<double>(static_cast<size_t>(scale.num_elements()), 0);
  CheckZeroPoint(scale.shape(), c.input(2).shape());
  return ToDoubles(c.input(2));
}

Tensor Doubles(const Shape& shape, std::span<const double> values) {
  return Tensor::Of<double>(shape, values);
}

// Each value as `type` represents it.
std::vector<double> Rounded(const Shape& shape, std::span<const double> values, ElementType type) {
  return ToDoubles(Cast(Doubles(shape, values), type));
}

ElementType QuantizedType(std::optional<ElementType> given, ElementType zero_point) {
  if (zero_point == ElementType::kUndefined) return given.value_or(ElementType::kU8);
  if (given && *given != zero_point) {
    eval::FailArgument("type/quantize", StrCat("output_dtype is ", Name(*given),
                                               ", but the zero point has type ", Name(zero_point)));
  }
  return zero_point;
}

// The precision of x / scale; powers of two and integers divide exactly enough in double.
ElementType DivisionType(QuantizeLinearOp op, ElementType scale) {
  if (const auto given = op.precision()) return *given;
  if (scale == ElementType::kF8E8M0) return ElementType::kF32;
  return IsFloat(scale) ? scale : ElementType::kF64;
}

}  // namespace

void QuantizeLinearOp::InferShape(InferShapeContext& c) {
  const QuantizeLinearOp op(c.op());
  InferScale(c, op.axis(), op.block_size());
  c.SetTensor(kY, QuantizedType(op.output_dtype(), c.element(kYZeroPoint)), c.shape(kX));
}

void QuantizeLinearOp::Eval(EvalContext& c) {
  const QuantizeLinearOp op(c.op());
  const Tensor& x = c.input(kX);
  const Tensor& scale = c.input(kYScale);
  const Granularity place(x.shape(), scale.shape(), op.axis(), op.block_size());
  const ElementType precision = DivisionType(op, scale.element_type());
  const ElementType type =
      QuantizedType(op.output_dtype(), c.HasInput(kYZeroPoint) ? c.input(kYZeroPoint).element_type()
                                                               : ElementType::kUndefined);
  const auto zero_points = ZeroPoints(c);
  const auto scales = Rounded(scale.shape(), ToDoubles(scale), precision);
  auto values = Rounded(x.shape(), ToDoubles(x), precision);
  for (size_t i = 0; i < values.size(); ++i) values[i] /= scales[place(static_cast<int64_t>(i))];
  values = Rounded(x.shape(), values, precision);
  for (size_t i = 0; i < values.size(); ++i) {
    const double zero = zero_points[place(static_cast<int64_t>(i))];
    values[i] = IsFloat(type) ? values[i] + zero
                              : eval::Saturated(std::nearbyint(values[i]) + zero, LimitsOf(type));
  }
  c.SetOutput(kY, Cast(Doubles(x.shape(), values), type, op.saturate()));
}

namespace {

// Whether f32 and bytes are what an operation is between, by one scale in f32.
template <class OpT>
bool IsByOneScale(OpT op, Value real, Value bytes) {
  const auto of = [](Value v) { return v.type().cast<AnyTensorType>(); };
  const Operation* o = op.operation();
  const ElementType element = of(bytes).element();
  const bool is_byte = element == ElementType::kI8 || element == ElementType::kU8;
  const bool is_f32 =
      of(real).element() == ElementType::kF32 && of(o->operand(1)).element() == ElementType::kF32;
  if (!is_byte || !is_f32 || op.block_size() != 0 || !of(real).has_rank()) return false;
  for (size_t i = 1; i < o->num_operands(); ++i) {
    if (!o->operand(i) || o->operand(i).type().isa<NoneType>()) continue;
    const AnyTensorType type = of(o->operand(i));
    const bool is_one = type.has_rank() && type.rank() <= std::min<size_t>(of(real).rank(), 1);
    if (!is_one || (type.rank() == 1 && !type.dims()[0].IsConstant(1))) return false;
  }
  return true;
}

Term AsF32(Builder& b, Value v) {
  return {b, CastOp::Create(b, v, {.to = ElementType::kF32}).output()};
}

bool HasOperand(const Operation* o, size_t i) {
  return i < o->num_operands() && o->operand(i) && !o->operand(i).type().isa<NoneType>();
}

}  // namespace

std::vector<Value> QuantizeLinearOp::Decompose(Operation* o, Builder& b) {
  const QuantizeLinearOp op(o);
  if (op.precision().value_or(ElementType::kF32) != ElementType::kF32) return {};
  if (!IsByOneScale(op, op.x(), op.y())) return {};
  const Term y = Term(b, op.x()) / Term(b, op.y_scale());
  const Value zero = HasOperand(o, kYZeroPoint) ? Value(AsF32(b, op.y_zero_point())) : Value();
  return {Requantized(y, zero, op.y().type().cast<AnyTensorType>().element())};
}

std::vector<Value> DequantizeLinearOp::Decompose(Operation* o, Builder& b) {
  const DequantizeLinearOp op(o);
  if (!IsByOneScale(op, op.y(), op.x())) return {};
  Term x = AsF32(b, op.x());
  if (HasOperand(o, kXZeroPoint)) x = x - AsF32(b, op.x_zero_point());
  return {x * Term(b, op.x_scale())};
}

void DequantizeLinearOp::InferShape(InferShapeContext& c) {
  const DequantizeLinearOp op(c.op());
  InferScale(c, op.axis(), op.block_size());
  c.SetTensor(kY, op.output_dtype().value_or(c.element(kXScale)), c.shape(kX));
}

void DequantizeLinearOp::Eval(EvalContext& c) {
  const DequantizeLinearOp op(c.op());
  const Tensor& x = c.input(kX);
  const Tensor& scale = c.input(kXScale);
  const Granularity place(x.shape(), scale.shape(), op.axis(), op.block_size());
  const auto zero_points = ZeroPoints(c);
  const auto scales = ToDoubles(scale);
  auto values = ToDoubles(x);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t at = place(static_cast<int64_t>(i));
    values[i] = (values[i] - zero_points[at]) * scales[at];
  }
  c.SetOutput(kY,
              Cast(Doubles(x.shape(), values), op.output_dtype().value_or(scale.element_type())));
}

// ---- dynamic_quantize_linear ----

void LookupOp::InferShape(InferShapeContext& c) {
  const SymShape table = c.shape(kTable);
  const auto message = [&] { return StrCat("the table has shape ", table.ToString()); };
  if (table.ranked) {
    if (table.rank() != 1) FailShape("shape/lookup", message(), "it is [256]");
    Assume(SizeCondition::Equal(table.dims[0], kBytes), "shape/lookup", message);
  }
  c.SetShape(kY, c.shape(kX));
}

void LookupOp::Eval(EvalContext& c) {
  const Tensor &x = c.input(kX), &table = c.input(kTable);
  if (table.shape() != Shape{kBytes}) {
    FailShape("shape/lookup", StrCat("the table has shape ", ShapeToString(table.shape())),
              "it is [256]");
  }
  Tensor y(table.element_type(), x.shape());
  const eval::ElementMover mover(table, y);
  const auto bytes = x.data<uint8_t>();
  for (size_t i = 0; i < bytes.size(); ++i) mover.Copy(static_cast<int64_t>(i), bytes[i]);
  c.SetOutput(kY, std::move(y));
}

std::vector<Value> LookupOp::Decompose(Operation* o, Builder& b) {
  const LookupOp op(o);
  const Term index(b, CastOp::Create(b, op.x(), {.to = ElementType::kI32}).output());
  return {Term(b, op.table()).Call(nn::kGather, {index})};
}

void DynamicQuantizeLinearOp::InferShape(InferShapeContext& c) {
  c.SetShape(kY, c.shape(kX));
  c.SetShape(kYScale, SymShape::OfRank(0));
  c.SetShape(kYZeroPoint, SymShape::OfRank(0));
}

void DynamicQuantizeLinearOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kX);
  const auto values = x.data<float>();
  float low = 0;
  float high = 0;
  for (const float value : values) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Nothing but zeros: any scale will do.
  const float scale = high > low ? (high - low) / 255.0F : 1.0F;
  const IntegerLimits limits{0, 255};
  const auto zero_point =
      static_cast<uint8_t>(std::nearbyint(eval::Saturated(-low / scale, limits)));
  Tensor out(ElementType::kU8, x.shape());
  auto quantized = out.mutable_data<uint8_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    quantized[i] = static_cast<uint8_t>(eval::Saturated(
        std::nearbyint(static_cast<double>(values[i] / scale)) + zero_point, limits));
  }
  c.SetOutput(kY, std::move(out));
  c.SetOutput(kYScale, Tensor::Scalar<float>(scale));
  c.SetOutput(kYZeroPoint, Tensor::Scalar<uint8_t>(zero_point));
}

// With the f32 arithmetic of the evaluation; NaN counts for nothing in the range and becomes 0.
std::vector<Value> DynamicQuantizeLinearOp::Decompose(Operation* o, Builder& b) {
  const Term x(b, DynamicQuantizeLinearOp(o).x());
  const auto type = x.value().type().cast<AnyTensorType>();
  if (!type.has_rank()) return {};
  const auto is_nan = [](const Term& v) { return v.Call(nn::kIsNan); };
  // Of the numbers on that side of 0: what a reduction reads is computed there, nothing is stored.
  const auto over_all = [&](std::string_view op, std::string_view is_beyond) {
    const Term beyond = Where(x.Call(is_beyond, {x.Number(0)}), x, x.Number(0));
    return beyond.Call(op, {}, {b.Named("keepdims", b.Attr(false))});
  };
  const auto bounded = [&](const Term& v) {
    return Where(is_nan(v), v.Number(0), Least(Greatest(v, 0), 255));
  };
  const Term low = Least(over_all(nn::kReduceMin, nn::kLess), 0);
  const Term high = Greatest(over_all(nn::kReduceMax, nn::kGreater), 0);
  const Term scale = Where(high.Call(nn::kGreater, {low}), (high - low) / 255, high.Number(1));
  const auto saturated = [&](const Term& v) -> Term {
    return {b, CastOp::Create(b, bounded(v), {.to = ElementType::kU8}).output()};
  };
  const Term zero = bounded((low / scale).Call(nn::kNeg)).Call(nn::kRound);
  const Term y = saturated(Term(b, (x / scale).Call(nn::kRound)) + zero);
  return {y, scale, saturated(zero)};
}

}  // namespace lathe::nn
