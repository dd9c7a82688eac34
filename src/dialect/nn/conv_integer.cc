#include "lathe/dialect/nn/conv.h"
#include "src/dialect/eval_util.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/nn/convolution.h"
#include "src/dialect/nn/quantized.h"

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

}  // namespace

void ConvIntegerOp::InferShape(InferShapeContext& c) { InferIntegerConv<ConvIntegerOp>(c); }
void ConvIntegerOp::Eval(EvalContext& c) {
  c.SetOutput(kY, Cast(CenteredConvolution<ConvIntegerOp>(c), ElementType::kI32));
}
Dim ConvIntegerOp::Flops(Operation* o) {
  const ConvIntegerOp op(o);
  return ConvFlops(ShapeOf(op.y()), ShapeOf(op.w()));
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
Dim QlinearConvOp::Flops(Operation* o) {
  const QlinearConvOp op(o);
  return ConvFlops(ShapeOf(op.y()), ShapeOf(op.w()));
}

}  // namespace lathe::nn
