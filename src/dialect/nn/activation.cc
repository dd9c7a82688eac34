#include "lathe/dialect/nn/activation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lathe/dialect/eval_util.h"

namespace lathe::nn {
namespace {

template <class Types = eval::Doubles, class F>
void Map(EvalContext& c, const F& f) {
  c.SetOutput(0, eval::MapUnary<Types>(c.input(0), f));
}

// Attributes are f32, which matters where a function jumps.
double AsF32(double value) { return static_cast<double>(static_cast<float>(value)); }

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// ln(1 + exp(x)) without overflow.
double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

// NaN passes through, unlike std::clamp's undefined order.
double Clamp01(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

double TanhGelu(double x) {
  const double inner = std::numbers::sqrt2 * std::numbers::inv_sqrtpi * (x + 0.044715 * x * x * x);
  return x / 2 * (1 + std::tanh(inner));
}

double ErfGelu(double x) { return x / 2 * (1 + std::erf(x / std::numbers::sqrt2)); }

}  // namespace

void ReluOp::Eval(EvalContext& c) {
  Map<eval::Signed>(c, [](auto x) { return x < 0 ? decltype(x){0} : x; });
}

void LeakyReluOp::Eval(EvalContext& c) {
  const double alpha = LeakyReluOp(c.op()).alpha();
  Map(c, [alpha](double x) { return x < 0 ? alpha * x : x; });
}

void EluOp::Eval(EvalContext& c) {
  const double alpha = EluOp(c.op()).alpha();
  Map(c, [alpha](double x) { return x < 0 ? alpha * std::expm1(x) : x; });
}

void SeluOp::Eval(EvalContext& c) {
  const SeluOp op(c.op());
  const double alpha = op.alpha();
  const double gamma = op.gamma();
  Map(c, [=](double x) { return gamma * (x > 0 ? x : alpha * std::expm1(x)); });
}

void CeluOp::Eval(EvalContext& c) {
  const double alpha = CeluOp(c.op()).alpha();
  if (alpha == 0) c.Fail("celu/alpha", "alpha is 0", "give a value other than 0");
  Map(c, [alpha](double x) {
    return std::max(x, 0.0) + std::min(0.0, alpha * std::expm1(x / alpha));
  });
}

void GeluOp::Eval(EvalContext& c) {
  if (GeluOp(c.op()).approximate() == "tanh") return Map(c, [](double x) { return TanhGelu(x); });
  Map(c, [](double x) { return ErfGelu(x); });
}

void SigmoidOp::Eval(EvalContext& c) {
  Map(c, [](double x) { return Sigmoid(x); });
}

void HardSigmoidOp::Eval(EvalContext& c) {
  const HardSigmoidOp op(c.op());
  const double alpha = op.alpha();
  const double beta = op.beta();
  Map(c, [=](double x) { return Clamp01(alpha * x + beta); });
}

void HardSwishOp::Eval(EvalContext& c) {
  Map(c, [](double x) { return x * Clamp01(x / 6 + 0.5); });
}

void SwishOp::Eval(EvalContext& c) {
  const double alpha = SwishOp(c.op()).alpha();
  Map(c, [alpha](double x) { return x * Sigmoid(alpha * x); });
}

void SoftplusOp::Eval(EvalContext& c) {
  Map(c, [](double x) { return Softplus(x); });
}

void SoftsignOp::Eval(EvalContext& c) {
  Map(c, [](double x) { return x / (1 + std::fabs(x)); });
}

void MishOp::Eval(EvalContext& c) {
  Map(c, [](double x) { return x * std::tanh(Softplus(x)); });
}

void ThresholdedReluOp::Eval(EvalContext& c) {
  const double alpha = AsF32(ThresholdedReluOp(c.op()).alpha());
  Map(c, [alpha](double x) { return x > alpha ? x : 0.0; });
}

void ShrinkOp::Eval(EvalContext& c) {
  const ShrinkOp op(c.op());
  const double bias = op.bias();
  const double lambd = AsF32(op.lambd());
  const ElementType type = c.input(kX).element_type();
  const Tensor wide = Cast(c.input(kX), ElementType::kF64);
  // A double next to the greatest integer may be beyond it.
  const bool saturates = IsInteger(type) && BitWidth(type) == 64;
  const IntegerLimits limits = saturates ? LimitsOf(type) : IntegerLimits();
  c.SetOutput(kY, eval::MapUnary<eval::Doubles>(wide, type, [=](double x) {
                const double y = x < -lambd ? x + bias : x > lambd ? x - bias : 0.0;
                return saturates ? eval::Saturated(y, limits) : y;
              }));
}

}  // namespace lathe::nn
