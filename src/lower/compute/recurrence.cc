#include "lathe/dialect/nn/activation.h"
#include "lathe/dialect/nn/attention.h"
#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/scalars.h"

// What carries a state from step to step.
namespace lathe::lower {
namespace {

// ---- causal_conv_with_state ----

// The past positions of a channel and behind them the present ones.
Value Remembered(const ElementOf& c, const Dim& past, const Dim& position) {
  using Op = nn::CausalConvWithStateOp;
  const auto fresh = [&] { return c.Operand(Op::kX, {c.at[0], c.at[1], position - past}); };
  const auto old = [&] {
    return c.Has(Op::kPastState) ? c.Operand(Op::kPastState, {c.at[0], c.at[1], position})
                                 : c.Zero();
  };
  const auto below = c.e.space().Below(position, past);
  if (below) return *below ? old() : fresh();
  const Dim is_old = c.e.Loaded(c.e.Int(Min(Max(past - position, 0), 1)), 2);
  const Value before = c.e.Guarded(is_old, c.Zero(), old);
  return c.e.Guarded(1 - is_old, before, fresh);
}

Value CausalConvolution(const ElementOf& c) {
  using Op = nn::CausalConvWithStateOp;
  const Op op(c.op);
  const Scalars s(c.e);
  const Dim taps = c.Dims(Op::kW)[2], past = taps - 1;
  if (c.result == Op::kPresentState) {
    return Remembered(c, past, c.at[2] + c.Dims(Op::kX)[2]);
  }
  const ElementType type = SumType(c.Element());
  const Value bias =
      c.Has(Op::kB) ? s.Cast(c.Operand(Op::kB, {c.at[1]}), type) : s.Number(type, 0.0);
  const Value sum = c.e.Reduce({taps}, bias, [&](const Place& k, Value so_far) {
    const Value x = s.Cast(Remembered(c, past, c.at[2] + k[0]), type);
    const Value w = s.Cast(c.Operand(Op::kW, {c.at[1], 0, k[0]}), type);
    return s.Add(so_far, s.Mul(x, w));
  });
  if (op.activation() == "none") return s.Cast(sum, c.Element());
  const Value gate = nn::SigmoidOp::Create(c.e.lb().b(), sum).y();
  return s.Cast(s.Mul(sum, gate), c.Element());
}

// ---- linear_attention ----

class LinearAttention {
 public:
  explicit LinearAttention(const WholeTensorEmitter& w)
      : w_(w),
        e_(w.e),
        s_(w.e),
        op_(w.op),
        heads_(op_.kv_num_heads()),
        queries_(op_.q_num_heads()) {
    const std::vector<Dim> key = w.Dims(Op::kKey), value = w.Dims(Op::kValue);
    batch_ = key[0];
    steps_ = key[1];
    keys_ = FloorDiv(key[2], heads_);
    values_ = FloorDiv(value[2], heads_);
    type_ = SumType(w.Element(Op::kOutput));
  }

  void Write() {
    const Dim states = batch_ * heads_;
    state_ = e_.Scratch(type_, states * keys_ * values_);
    change_ = e_.Scratch(type_, states * values_);
    e_.For(states, WholeTensorEmitter::IsWorthParallelizing(states * steps_ * keys_ * values_),
           [&](const Dim& number) {
             number_ = number;
             const Place at = e_.space().Unflatten(number, {batch_, heads_});
             b_ = at[0], h_ = at[1];
             Begin();
             e_.For(steps_, false, [&](const Dim& step) {
               t_ = step;
               Update();
               e_.For(Dim(queries_ / heads_), false, [&](const Dim& query) { Read(query); });
             });
             End();
           });
  }

 private:
  using Op = nn::LinearAttentionOp;

  Dim StateAt(const Dim& e, const Dim& f) const { return (number_ * keys_ + e) * values_ + f; }
  Value State(const Dim& e, const Dim& f) const { return e_.LoadFrom(state_, StateAt(e, f)); }
  Dim ChangeAt(const Dim& f) const { return number_ * values_ + f; }
  Value Load(size_t operand, const Dim& at) const {
    return s_.Cast(w_.Operand(operand, {b_, t_, at}), type_);
  }
  // A number per step, per head, or per feature of each head.
  Value Gate(size_t operand, const Dim& feature, const Dim& features) const {
    const Dim width = w_.Dims(operand)[2];
    if (width.IsConstant(1)) return Load(operand, 0);
    if (ProvablyEqual(width, heads_ * features)) return Load(operand, h_ * features + feature);
    return Load(operand, h_);
  }

  void Begin() {
    e_.For(keys_, false, [&](const Dim& e) {
      w_.ForLanes(values_, [&](const Dim& f) {
        const bool some = w_.Has(Op::kPastState);
        const Value past = some ? s_.Cast(w_.Operand(Op::kPastState, {b_, h_, e, f}), type_)
                                : s_.Number(type_, 0.0);
        e_.Store(state_, StateAt(e, f), past);
      });
    });
  }

  void Update() {
    if (w_.Has(Op::kDecay)) {
      e_.For(keys_, false, [&](const Dim& e) {
        const Value factor = s_.Exp(Gate(Op::kDecay, e, keys_));
        w_.ForLanes(values_, [&](const Dim& f) {
          e_.Store(state_, StateAt(e, f), s_.Mul(State(e, f), factor));
        });
      });
    }
    w_.ForLanes(values_, [&](const Dim& f) {
      Value change = Load(Op::kValue, h_ * values_ + f);
      if (w_.Has(Op::kBeta)) {
        change = e_.Reduce({keys_}, change, [&](const Place& e, Value so_far) {
          const Value key = Load(Op::kKey, h_ * keys_ + e[0]);
          return s_.Sub(so_far, s_.Mul(State(e[0], f), key));
        });
        change = s_.Mul(change, Gate(Op::kBeta, 0, 1));
      }
      e_.Store(change_, ChangeAt(f), change);
    });
    e_.For(keys_, false, [&](const Dim& e) {
      const Value key = Load(Op::kKey, h_ * keys_ + e);
      w_.ForLanes(values_, [&](const Dim& f) {
        const Value change = s_.Mul(key, e_.LoadFrom(change_, ChangeAt(f)));
        e_.Store(state_, StateAt(e, f), s_.Add(State(e, f), change));
      });
    });
  }

  void Read(const Dim& own) {
    const Dim query = h_ * (queries_ / heads_) + own;
    const Value root = s_.Power(s_.Number(type_, keys_), 0.5);
    const Value scale = op_.scale() == 0 ? s_.Div(s_.Number(type_, 1.0), root)
                                         : s_.Number(type_, static_cast<double>(op_.scale()));
    const std::vector<Dim> dims = w_.ResultDims(Op::kOutput);
    w_.ForLanes(values_, [&](const Dim& f) {
      const Value sum =
          e_.Reduce({keys_}, s_.Number(type_, 0.0), [&](const Place& e, Value so_far) {
            const Value q = s_.Mul(scale, Load(Op::kQuery, query * keys_ + e[0]));
            return s_.Add(so_far, s_.Mul(q, State(e[0], f)));
          });
      const Dim to = e_.space().Flatten({b_, t_, query * values_ + f}, dims);
      e_.Store(w_.memory[Op::kOutput], to, s_.Cast(sum, w_.Element(Op::kOutput)));
    });
  }

  void End() {
    if (w_.memory.size() <= Op::kPresentState) return;
    e_.For(keys_, false, [&](const Dim& e) {
      w_.ForLanes(values_, [&](const Dim& f) {
        e_.Store(w_.memory[Op::kPresentState], StateAt(e, f),
                 s_.Cast(State(e, f), w_.Element(Op::kPresentState)));
      });
    });
  }

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  Op op_;
  int64_t heads_, queries_;
  Dim batch_, steps_, keys_, values_, number_, b_, h_, t_;
  ElementType type_ = ElementType::kUndefined;
  Value state_, change_;
};

void WriteLinearAttention(const WholeTensorEmitter& w) { LinearAttention(w).Write(); }

// Gates of a symbolic width may be one per head or one per feature.
std::string RefuseGates(const Operation& op) {
  for (const size_t i : {nn::LinearAttentionOp::kDecay, nn::LinearAttentionOp::kBeta}) {
    if (i >= op.num_operands() || !op.operand(i)) continue;
    if (!DimsOf(op.operand(i))[2].is_constant()) return "gates of symbolic width";
  }
  using Op = nn::LinearAttentionOp;
  const Op attention(&op);
  Fits fits(op);
  const std::vector<Dim> q = fits.Dims(Op::kQuery), k = fits.Dims(Op::kKey);
  const std::vector<Dim> v = fits.Dims(Op::kValue);
  const Dim heads = attention.kv_num_heads();
  const Dim keys = FloorDiv(k[2], heads), values = FloorDiv(v[2], heads);
  fits.Same(FloorDiv(q[2], Dim(attention.q_num_heads())), keys);
  fits.Is(Op::kPastState, {k[0], heads, keys, values});
  for (const size_t i : {Op::kQuery, Op::kValue, Op::kDecay, Op::kBeta}) {
    if (fits.Has(i)) fits.Same(fits.Dims(i)[0], k[0]).Same(fits.Dims(i)[1], k[1]);
  }
  return fits.why().empty() ? NeedSizes(op) : fits.why();
}

std::string RefuseCausal(const Operation& op) {
  using Op = nn::CausalConvWithStateOp;
  Fits fits(op);
  const std::vector<Dim> x = fits.Dims(Op::kX), w = fits.Dims(Op::kW);
  fits.Same(x[1], w[0]).Is(Op::kB, {x[1]}).Is(Op::kPastState, {x[0], x[1], w[2] - 1});
  return fits.why();
}

constexpr Compute kRecurrenceComputes[] = {
    {nn::kCausalConvWithState, CausalConvolution, RefuseCausal},
    {nn::kLinearAttention, nullptr, RefuseGates, nullptr, WriteLinearAttention},
};

}  // namespace

std::span<const Compute> RecurrenceComputes() { return kRecurrenceComputes; }

}  // namespace lathe::lower
