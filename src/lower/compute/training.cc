#include "lathe/dialect/nn/training.h"

#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/scalars.h"

// Steps of optimizers, in f64 as the interpreter makes them.
namespace lathe::lower {
namespace {

constexpr size_t kRate = 0, kTime = 1, kFirst = 2;  // operands

// One element of a tensor and what is kept about it.
class Step {
 public:
  /// `kinds`: parameters, gradients and what is kept, of each tensor.
  Step(const ElementOf& c, size_t kinds) : c_(c), s(c.e) {
    count_ = (c.op->num_operands() - kFirst) / kinds;
    x = Load(0);
    gradient = Load(1);
  }

  /// Of operands: parameter, gradient, first and second state.
  Value Load(size_t kind) const { return Wide(kFirst + kind * count_ + c_.result % count_, c_.at); }
  Value Number(double v) const { return s.Number(kWide, v); }
  Value rate() const { return Only(kRate); }
  Value time() const { return Only(kTime); }
  /// Which of the results it is: parameter, first or second state.
  size_t kind() const { return c_.result / count_; }
  Value Result(Value v) const { return s.Cast(v, c_.Element()); }

 private:
  Value Wide(size_t operand, const Place& at) const {
    return s.Cast(c_.Operand(operand, at), kWide);
  }
  Value Only(size_t operand) const { return Wide(operand, Place(c_.Dims(operand).size(), 0)); }

  const ElementOf& c_;
  size_t count_ = 1;

 public:
  Scalars s;
  Value x, gradient;
};

Value Regularized(const Step& step, double norm) {
  return step.s.Add(step.s.Mul(step.Number(norm), step.x), step.gradient);
}

Value Adagrad(const ElementOf& c) {
  const nn::AdagradOp op(c.op);
  const Step step(c, 3);
  const Scalars& s = step.s;
  const Value g = Regularized(step, op.norm_coefficient());
  const Value h = s.Add(step.Load(2), s.Mul(g, g));
  if (step.kind() == 1) return step.Result(h);
  const Value decay = s.Add(step.Number(1), s.Mul(step.time(), step.Number(op.decay_factor())));
  const Value change =
      s.Div(s.Mul(s.Div(step.rate(), decay), g), s.Add(s.Power(h, 0.5), step.Number(op.epsilon())));
  return step.Result(s.Sub(step.x, change));
}

Value Adam(const ElementOf& c) {
  const nn::AdamOp op(c.op);
  const Step step(c, 4);
  const Scalars& s = step.s;
  const double alpha = op.alpha(), beta = op.beta();
  const Value g = Regularized(step, op.norm_coefficient());
  const Value v = s.Add(s.Mul(step.Number(alpha), step.Load(2)), s.Mul(step.Number(1 - alpha), g));
  if (step.kind() == 1) return step.Result(v);
  const Value h =
      s.Add(s.Mul(step.Number(beta), step.Load(3)), s.Mul(step.Number(1 - beta), s.Mul(g, g)));
  if (step.kind() == 2) return step.Result(h);
  const auto left = [&](double base) {
    const Value power = nn::PowOp::Create(c.e.lb().b(), step.Number(base), step.time()).c();
    return s.Sub(step.Number(1), power);
  };
  const Value later = s.Mul(step.rate(), s.Div(s.Power(left(beta), 0.5), left(alpha)));
  const Value rate = s.Select(s.Less(step.Number(0), step.time()), later, step.rate());
  const Value change = s.Div(s.Mul(rate, v), s.Add(s.Power(h, 0.5), step.Number(op.epsilon())));
  const Value x = s.Sub(step.x, change);
  return step.Result(s.Mul(step.Number(1 - op.norm_coefficient_post()), x));
}

Value Momentum(const ElementOf& c) {
  const nn::MomentumOp op(c.op);
  const Step step(c, 3);
  const Scalars& s = step.s;
  const Value alpha = step.Number(op.alpha());
  const Value g = Regularized(step, op.norm_coefficient());
  const Value later = s.Less(step.Number(0), step.time());
  const Value beta = s.Select(later, step.Number(op.beta()), step.Number(1));
  const Value v = s.Add(s.Mul(alpha, step.Load(2)), s.Mul(beta, g));
  if (step.kind() == 1) return step.Result(v);
  const Value change = op.mode() == "nesterov" ? s.Add(g, s.Mul(alpha, v)) : v;
  return step.Result(s.Sub(step.x, s.Mul(step.rate(), change)));
}

// What is kept about a tensor has its shape.
template <size_t kKinds>
std::string RefuseStep(const Operation& op) {
  Fits fits(op);
  const size_t count = (op.num_operands() - kFirst) / kKinds;
  for (size_t i = kFirst; i < op.num_operands(); ++i) fits.Same(kFirst + (i - kFirst) % count, i);
  return fits.why();
}

constexpr Compute kTrainingComputes[] = {
    {nn::kAdagrad, Adagrad, RefuseStep<3>},
    {nn::kAdam, Adam, RefuseStep<4>},
    {nn::kMomentum, Momentum, RefuseStep<3>},
};

}  // namespace

std::span<const Compute> TrainingComputes() { return kTrainingComputes; }

}  // namespace lathe::lower
