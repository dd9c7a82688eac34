#include <algorithm>
#include <numeric>

#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/tensor_of.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/nn/convolution.h"
#include "src/dialect/nn/grad_util.h"
#include "src/dialect/nn/quantized.h"
#include "src/dialect/nn/term.h"

namespace lathe::nn {
namespace {

const Tensor& ZeroPointOr(EvalContext& c, size_t i, const Tensor& zero) {
  return c.HasInput(i) ? c.input(i) : zero;
}

// The sums of (x - x_zero_point) * (w - w_zero_point), exact in f64. Padding counts as zero, that
// is, holds the zero point.
template <class OpT>
Tensor CenteredConvolution(EvalContext& c) {
  const Tensor& x = c.input(OpT::kX);
  const Tensor& w = c.input(OpT::kW);
  const Tensor zero = Tensor::Scalar<uint8_t>(0);
  const Tensor& x_zero = ZeroPointOr(c, OpT::kXZeroPoint, zero);
  const Tensor& w_zero = ZeroPointOr(c, OpT::kWZeroPoint, zero);
  if (x.rank() < 3 || w.rank() < 3) {
    c.Fail("shape/conv-rank", "input and weights have at least rank 3");
  }
  const double shift = ScalarOf(x_zero, "x_zero_point");
  const Tensor centered = Centered(x, Tensor::Scalar<double>(shift));
  const Tensor weights = Centered(w, AlongAxis(w_zero, w.shape(), 0, "w_zero_point"));
  return Convolve(ConvSpecOf(OpT(c.op())), centered, weights);
}

template <class OpT>
void InferIntegerConv(InferShapeContext& c) {
  ExpectScalar(c, OpT::kXZeroPoint, "x_zero_point");
  SymShape y = ConvShape(ConvSpecOf(OpT(c.op())), c.shape(OpT::kX), c.shape(OpT::kW));
  if (y.ranked && c.HasInput(OpT::kWZeroPoint)) {
    CheckPerChannel(c.shape(OpT::kWZeroPoint), y.dims[1], "w_zero_point");
  }
  c.SetShape(OpT::kY, std::move(y));
}

// ---- as a convolution of floats ----

// How many products of two centered bytes f32 adds exactly in any order.
constexpr int64_t kExactInF32 = (int64_t{1} << 24) / (255 * 255);

Term As(Builder& b, Value v, ElementType to) {
  if (TensorOf(v).element() == to) return {b, v};
  return {b, CastOp::Create(b, v, {.to = to}).output()};
}

// An operand [] or [M] to be broadcast along axis `axis` of a tensor of this rank.
Term Along(Builder& b, Value v, ElementType type, size_t axis, size_t rank) {
  const Term numbers = As(b, v, type);
  const AnyTensorType given = TensorOf(v);
  const bool is_one = given.rank() == 0 || given.dims()[0].IsConstant(1);
  return is_one ? numbers : PerChannel(numbers, rank + 1 - axis);
}

// Whether all but the rank of `x` that a convolution of floats needs is known.
template <class OpT>
bool HasFloatForm(Operation* op) {
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const Value v = op->operand(i);
    if (!v || v.type().isa<NoneType>()) continue;
    if (!TensorOf(v).has_rank() || (i != OpT::kX && !TensorOf(v).is_static())) return false;
  }
  return TensorOf(op->operand(OpT::kX)).rank() >= 3;
}

// The sums of centered bytes, in `type`.
template <class OpT>
Term FloatSums(Operation* op, Builder& b, ElementType type) {
  const auto centered = [&](size_t operand, size_t zero_point) {
    const Term numbers = As(b, op->operand(operand), type);
    if (!(zero_point < op->num_operands()) || !op->operand(zero_point)) return numbers;
    const size_t rank = TensorOf(op->operand(operand)).rank();
    return numbers - Along(b, op->operand(zero_point), type, 0, rank);
  };
  const Term x = centered(OpT::kX, OpT::kXZeroPoint), w = centered(OpT::kW, OpT::kWZeroPoint);
  const OpT conv(op);
  const ConvAttrs attributes{.kernel_shape = conv.kernel_shape(),
                             .strides = conv.strides(),
                             .pads = conv.pads(),
                             .dilations = conv.dilations(),
                             .auto_pad = std::string(conv.auto_pad()),
                             .group = conv.group()};
  return {b, ConvOp::Create(b, x, w, Value(), attributes).y()};
}

}  // namespace

void ConvIntegerOp::InferShape(InferShapeContext& c) { InferIntegerConv<ConvIntegerOp>(c); }
void ConvIntegerOp::Eval(EvalContext& c) {
  c.SetOutput(kY, Cast(CenteredConvolution<ConvIntegerOp>(c), ElementType::kI32));
}
Dim ConvIntegerOp::Flops(Operation* o) {
  const ConvIntegerOp op(o);
  return ConvFlops(ShapeOf(op.y()), ShapeOf(op.w()));
}

// With weights of which no more are added than f32 adds exactly, else in f64.
std::vector<Value> ConvIntegerOp::Decompose(Operation* o, Builder& b) {
  if (!HasFloatForm<ConvIntegerOp>(o)) return {};
  int64_t depth = 1;
  for (const Dim& d : TensorOf(o->operand(kW)).dims().subspan(1)) depth *= d.value();
  const ElementType type = depth <= kExactInF32 ? ElementType::kF32 : ElementType::kF64;
  return {As(b, FloatSums<ConvIntegerOp>(o, b, type), ElementType::kI32)};
}

void ConvBytesOp::InferShape(InferShapeContext& c) {
  ExpectScalar(c, kPadding, "padding");
  const SymShape w = c.shape(kW);
  if (w.ranked && w.rank() > 0) CheckBias(c.shape(kB), w.dims[0]);
  c.SetShape(kY, ConvShape(ConvSpecOf(ConvBytesOp(c.op())), c.shape(kX), w));
}

namespace {

// What padding of 1 all around adds up to: the sums of each filter, in f64.
Tensor FilterSums(const Tensor& w) {
  const std::vector<double> all = ToDoubles(w);
  std::vector<double> sums(static_cast<size_t>(w.dim(0)));
  for (size_t i = 0; i < all.size(); ++i) sums[i / (all.size() / sums.size())] += all[i];
  return Tensor::Of<double>({w.dim(0)}, sums);
}

}  // namespace

// Less the padding, what is in the padding is zero.
void ConvBytesOp::Eval(EvalContext& c) {
  const Tensor padding = Tensor::Scalar<double>(ScalarOf(c.input(kPadding), "padding"));
  const Tensor centered = Centered(c.input(kX), padding);
  Tensor sums = Convolve(ConvSpecOf(ConvBytesOp(c.op())), centered, c.input(kW));
  AddBias(sums, c.input(kB));
  AddBias(sums, Scaled(FilterSums(c.input(kW)), padding));
  Tensor y(ElementType::kI32, sums.shape());
  const std::vector<double> exact = ToDoubles(sums);
  std::ranges::transform(exact, y.mutable_data<int32_t>().begin(), [](double sum) {
    return static_cast<int32_t>(static_cast<uint32_t>(static_cast<int64_t>(sum)));
  });
  c.SetOutput(kY, std::move(y));
}
Dim ConvBytesOp::Flops(Operation* o) {
  const ConvBytesOp op(o);
  return ConvFlops(ShapeOf(op.y()), ShapeOf(op.w()));
}

// As ONNX has it: with what the padding adds up to apart.
std::vector<Value> ConvBytesOp::Decompose(Operation* o, Builder& b) {
  const ConvBytesOp op(o);
  if (!TensorOf(op.w()).has_rank()) return {};
  const size_t rank = TensorOf(op.w()).rank();
  std::vector<int64_t> axes(rank - 1);
  std::iota(axes.begin(), axes.end(), 1);
  const Term sums = Reduced(As(b, op.w(), ElementType::kI32), nn::kReduceSum, axes);
  const Term all =
      sums.Call(nn::kSqueeze, {IntsConstant(b, std::vector{static_cast<int64_t>(rank) - 1})});
  const ConvIntegerOp::Attrs attributes{.kernel_shape = op.kernel_shape(),
                                        .strides = op.strides(),
                                        .pads = op.pads(),
                                        .dilations = op.dilations(),
                                        .auto_pad = std::string(op.auto_pad()),
                                        .group = op.group()};
  const Term inside(
      b, ConvIntegerOp::Create(b, op.x(), op.w(), op.padding(), Value(), attributes).y());
  return {inside + all * As(b, op.padding(), ElementType::kI32) + PerChannel({b, op.b()}, rank)};
}

void QlinearConvOp::InferShape(InferShapeContext& c) {
  InferIntegerConv<QlinearConvOp>(c);
  ExpectScalar(c, kXScale, "x_scale");
  ExpectScalar(c, kYScale, "y_scale");
  ExpectScalar(c, kYZeroPoint, "y_zero_point");
  const SymShape w = c.shape(kW);
  if (!w.ranked) return;
  CheckPerChannel(c.shape(kWScale), w.dims[0], "w_scale");
  if (c.HasInput(kB)) CheckBias(c.shape(kB), w.dims[0]);
}
void QlinearConvOp::Eval(EvalContext& c) {
  Tensor sums = CenteredConvolution<QlinearConvOp>(c);
  if (c.HasInput(kB)) AddBias(sums, c.input(kB));
  const Tensor w_scale = AlongAxis(c.input(kWScale), sums.shape(), 1, "w_scale");
  const Tensor x_scale = Tensor::Scalar<double>(ScalarOf(c.input(kXScale), "x_scale"));
  const Tensor values = Scaled(Scaled(sums, w_scale), x_scale);
  const Tensor& y_zero = c.input(kYZeroPoint);
  c.SetOutput(kY, Requantize(values, ScalarOf(c.input(kYScale), "y_scale"),
                             ScalarOf(y_zero, "y_zero_point"), y_zero.element_type()));
}
// Sums are those of f32: exact to 2^24, which is far more than the 256 numbers of the result.
std::vector<Value> QlinearConvOp::Decompose(Operation* o, Builder& b) {
  if (!HasFloatForm<QlinearConvOp>(o)) return {};
  const QlinearConvOp op(o);
  const size_t rank = TensorOf(op.x()).rank();
  constexpr ElementType kWide = ElementType::kF64, kNarrow = ElementType::kF32;
  const auto wide = [&](Value v) { return Along(b, v, kWide, 1, rank); };
  Term sums = As(b, FloatSums<QlinearConvOp>(o, b, kNarrow), kWide);
  if (op.b()) sums = sums + wide(op.b());
  const Term exact = sums * wide(op.w_scale()) * wide(op.x_scale()) / wide(op.y_scale());
  const Term zero = Along(b, op.y_zero_point(), kNarrow, 1, rank);
  return {Requantized(As(b, exact, kNarrow), zero, TensorOf(op.y()).element())};
}
Dim QlinearConvOp::Flops(Operation* o) {
  const QlinearConvOp op(o);
  return ConvFlops(ShapeOf(op.y()), ShapeOf(op.w()));
}

}  // namespace lathe::nn
