#include "lathe/dialect/nn/conv.h"

#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/text.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/nn/convolution.h"
#include "src/dialect/nn/layout.h"

namespace lathe::nn {
namespace {

void InferWithBias(InferShapeContext& c, size_t bias, SymShape shape) {
  if (c.HasInput(bias) && shape.ranked) CheckBias(c.shape(bias), shape.dims[1]);
  c.SetShape(0, std::move(shape));
}

Tensor Rounded(EvalContext& c, Tensor y, size_t bias) {
  if (c.HasInput(bias)) AddBias(y, c.input(bias));
  return Cast(y, c.input(0).element_type());
}

double Silu(double x) { return x / (1 + std::exp(-x)); }

}  // namespace

void ConvOp::InferShape(InferShapeContext& c) {
  const ConvOp op(c.op());
  const SymShape x = ToChannelsFirst(c.shape(kX), op.layout());
  const SymShape y = ConvShape(ConvSpecOf(op), x, c.shape(kW));
  if (c.HasInput(kB) && y.ranked) CheckBias(c.shape(kB), y.dims[1]);
  c.SetShape(kY, FromChannelsFirst(y, op.layout()));
}
void ConvOp::Eval(EvalContext& c) {
  const ConvOp op(c.op());
  const Tensor x = ToChannelsFirst(c.input(kX), op.layout());
  const Tensor y = Rounded(c, Convolve(ConvSpecOf(op), x, c.input(kW)), kB);
  c.SetOutput(kY, FromChannelsFirst(y, op.layout()));
}
Dim ConvOp::Flops(Operation* o) {
  const ConvOp op(o);
  return ConvFlops(ShapeOf(op.y()), ShapeOf(op.w()));
}
void ConvOp::Learned(LearnedContext& c) { c.Weights({kW, kB}); }

void ConvTransposeOp::InferShape(InferShapeContext& c) {
  const ConvTransposeOp op(c.op());
  InferWithBias(c, kB, ConvTransposeShape(ConvTransposeSpecOf(op), c.shape(kX), c.shape(kW)));
}
void ConvTransposeOp::Eval(EvalContext& c) {
  const ConvTransposeOp op(c.op());
  const Tensor y = ConvolveTransposed(ConvTransposeSpecOf(op), c.input(kX), c.input(kW));
  c.SetOutput(kY, Rounded(c, y, kB));
}
// Each input element meets the weights of its channel once.
Dim ConvTransposeOp::Flops(Operation* o) {
  const ConvTransposeOp op(o);
  return ConvFlops(ShapeOf(op.x()), ShapeOf(op.w()));
}
void ConvTransposeOp::Learned(LearnedContext& c) { c.Weights({kW, kB}); }

void CausalConvWithStateOp::InferShape(InferShapeContext& c) {
  const SymShape x = ExpectRank(c, kX, 3, "the input");
  const SymShape w = ExpectRank(c, kW, 3, "the weights");
  const Dim channels = ExpectEqual(x.dims[1], w.dims[0], "shape/conv-channels",
                                   StrCat("the input has ", x.dims[1].ToString(),
                                          " channels, the weights ", w.dims[0].ToString()),
                                   "the weights are [C, 1, K]");
  ExpectEqual(w.dims[1], 1, "shape/conv-channels", StrCat("the weights have shape ", w.ToString()),
              "the weights are [C, 1, K]");
  if (c.HasInput(kB)) CheckBias(c.shape(kB), channels);
  const SymShape state{x.dims[0], channels, w.dims[2] - Dim(1)};
  if (c.HasInput(kPastState)) static_cast<void>(Meet(c.shape(kPastState), state));
  c.SetShape(kY, {x.dims[0], channels, x.dims[2]});
  c.SetShape(kPresentState, state);
}

namespace {

void CheckCausal(EvalContext& c, const Tensor& x, const Tensor& w) {
  using Op = CausalConvWithStateOp;
  const bool ok =
      x.rank() == 3 && w.rank() == 3 && w.dim(0) == x.dim(1) && w.dim(1) == 1 && w.dim(2) >= 1;
  if (!ok) {
    c.Fail("shape/conv-channels",
           StrCat("input ", x.TypeString(), " and weights ", w.TypeString(), " do not fit"),
           "the input is [N, C, L], the weights are [C, 1, K]");
  }
  const Shape state{x.dim(0), x.dim(1), w.dim(2) - 1};
  if (c.HasInput(Op::kPastState) && c.input(Op::kPastState).shape() != state) {
    c.Fail("shape/conv-state", StrCat("the state is ", c.input(Op::kPastState).TypeString(), ", ",
                                      ShapeToString(state), " is expected"));
  }
  if (c.HasInput(Op::kB)) {
    CheckBias(SymShape::FromConstants(c.input(Op::kB).shape()), x.dim(1));
  }
}

// The past (zeros if absent) followed by the present of each channel: [N * C][K - 1 + L].
std::vector<double> PastAndPresent(EvalContext& c, const Tensor& x, int64_t past) {
  const std::vector<double> now = ToDoubles(x);
  const int64_t length = x.dim(2);
  std::vector<double> all;
  std::vector<double> before(static_cast<size_t>(x.dim(0) * x.dim(1) * past));
  if (c.HasInput(CausalConvWithStateOp::kPastState)) {
    before = ToDoubles(c.input(CausalConvWithStateOp::kPastState));
  }
  for (int64_t i = 0; i < x.dim(0) * x.dim(1); ++i) {
    all.insert(all.end(), before.begin() + i * past, before.begin() + (i + 1) * past);
    all.insert(all.end(), now.begin() + i * length, now.begin() + (i + 1) * length);
  }
  return all;
}

}  // namespace

void CausalConvWithStateOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kX);
  const Tensor& w = c.input(kW);
  CheckCausal(c, x, w);
  const int64_t channels = x.dim(1);
  const int64_t length = x.dim(2);
  const int64_t taps = w.dim(2);
  const bool silu = CausalConvWithStateOp(c.op()).activation() != "none";
  const std::vector<double> all = PastAndPresent(c, x, taps - 1);
  const std::vector<double> weights = ToDoubles(w);
  std::vector<double> bias(static_cast<size_t>(channels));
  if (c.HasInput(kB)) bias = ToDoubles(c.input(kB));
  std::vector<double> y;
  std::vector<double> state;
  for (int64_t i = 0; i < x.dim(0) * channels; ++i) {
    const double* line = all.data() + i * (length + taps - 1);
    const double* kernel = weights.data() + i % channels * taps;
    for (int64_t t = 0; t < length; ++t) {
      double sum = bias[static_cast<size_t>(i % channels)];
      for (int64_t k = 0; k < taps; ++k) sum += line[t + k] * kernel[k];
      y.push_back(silu ? Silu(sum) : sum);
    }
    state.insert(state.end(), line + length, line + length + taps - 1);
  }
  c.SetOutput(kY, eval::FromDoubles(x.element_type(), x.shape(), y));
  c.SetOutput(kPresentState,
              eval::FromDoubles(x.element_type(), {x.dim(0), channels, taps - 1}, state));
}

}  // namespace lathe::nn
