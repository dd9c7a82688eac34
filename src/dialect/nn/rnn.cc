#include "lathe/dialect/nn/rnn.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/text.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/operand_shape.h"
#include "src/dialect/nn/rnn_activation.h"

namespace lathe::nn {
namespace {

// Operands that the three layers have in common; lstm goes on with the cell state and peepholes.
enum Operand : size_t { kX, kW, kR, kB, kLens, kH, kC, kP };

struct Spec {
  size_t operands = 6;
  int64_t gates = 1;
  int64_t directions = 1;
  bool reverse = false;  // the first direction
  bool batch_first = false;
  std::optional<int64_t> hidden;
  std::optional<double> clip;
  std::vector<Activation> activations;  // `per_direction` for each
  size_t per_direction = 1;
};

template <class OpT>
Spec SpecOf(const OpT& op, int64_t gates, const std::vector<std::string>& defaults) {
  Spec spec;
  spec.operands = gates == 4 ? 8 : 6;
  spec.gates = gates;
  spec.directions = op.direction() == "bidirectional" ? 2 : 1;
  spec.reverse = op.direction() == "reverse";
  spec.batch_first = op.layout();
  spec.hidden = op.hidden_size();
  spec.clip = op.clip();
  spec.per_direction = defaults.size();
  std::vector<std::string> names = op.activations().value_or(std::vector<std::string>{});
  const size_t count = defaults.size() * static_cast<size_t>(spec.directions);
  if (names.empty()) {
    while (names.size() < count) names.insert(names.end(), defaults.begin(), defaults.end());
  }
  if (names.size() < count) {
    eval::FailArgument("rnn/activation", StrCat("there are ", names.size(), " activations, ", count,
                                                " are expected"));
  }
  spec.activations = ActivationsOf(std::span(names).first(count),
                                   op.activation_alpha().value_or(std::vector<double>{}),
                                   op.activation_beta().value_or(std::vector<double>{}));
  return spec;
}

Spec SpecOf(const RnnOp& op) { return SpecOf(op, 1, {"Tanh"}); }
Spec SpecOf(const GruOp& op) { return SpecOf(op, 3, {"Sigmoid", "Tanh"}); }
Spec SpecOf(const LstmOp& op) { return SpecOf(op, 4, {"Sigmoid", "Tanh", "Tanh"}); }

// ---- shapes -------------------------------------------------------------------------------------

struct Sizes {
  Dim steps, batch, features, hidden;
};

Sizes SizesOf(const Spec& spec, const std::vector<SymShape>& shapes) {
  const SymShape x = WithRank(shapes[kX], 3, "the input");
  const SymShape r = WithRank(shapes[kR], 3, "the recurrence weight");
  Sizes s{x.dims[0], x.dims[1], x.dims[2], r.dims[2]};
  if (spec.batch_first) std::swap(s.steps, s.batch);
  if (spec.hidden) Unify(s.hidden, *spec.hidden, "the hidden size");
  const Dim rows = Dim(spec.gates) * s.hidden;
  ExpectShape(shapes[kW], {spec.directions, rows, s.features}, "the weight");
  ExpectShape(shapes[kR], {spec.directions, rows, s.hidden}, "the recurrence weight");
  ExpectShape(shapes[kB], {spec.directions, Dim(2) * rows}, "the bias");
  ExpectShape(shapes[kLens], {s.batch}, "sequence_lens");
  SymShape state{spec.directions, s.batch, s.hidden};
  if (spec.batch_first) std::swap(state.dims[0], state.dims[1]);
  for (size_t i = kH; i < std::min<size_t>(spec.operands, kP); ++i) {
    ExpectShape(shapes[i], state, "an initial state");
  }
  if (spec.operands > kP) {
    ExpectShape(shapes[kP], {spec.directions, Dim(3) * s.hidden}, "the peephole weight");
  }
  return s;
}

void InferRecurrent(InferShapeContext& c, const Spec& spec) {
  const Sizes s = SizesOf(spec, OperandShapes(c, spec.operands));
  const Dim d = spec.directions;
  c.SetShape(0, spec.batch_first ? SymShape{s.batch, s.steps, d, s.hidden}
                                 : SymShape{s.steps, d, s.batch, s.hidden});
  for (size_t i = 1; i < c.num_outputs(); ++i) {
    c.SetShape(i,
               spec.batch_first ? SymShape{s.batch, d, s.hidden} : SymShape{d, s.batch, s.hidden});
  }
}

// The matrix products.
template <class OpT>
Dim RecurrentFlops(Operation* o) {
  const Spec spec = SpecOf(OpT(o));
  const Sizes s = SizesOf(spec, OperandShapes(o, spec.operands));
  return 2 * s.steps * s.batch * spec.directions * spec.gates * s.hidden * (s.features + s.hidden);
}

// ---- one direction ------------------------------------------------------------------------------

using Vector = std::vector<double>;

// The weights of one direction. `gate` counts in the order of the operands.
struct Weights {
  int64_t features, hidden;
  const double* w;
  const double* r;
  const double* wb;
  const double* rb;
  const double* p;
  std::optional<double> clip;
  std::span<const Activation> f;

  // (W x + wb) and (R h + rb) of row `j` of a gate.
  [[nodiscard]] double FromInput(int64_t gate, int64_t j, const double* x) const {
    const int64_t row = gate * hidden + j;
    double sum = wb[row];
    for (int64_t i = 0; i < features; ++i) sum += w[row * features + i] * x[i];
    return sum;
  }
  [[nodiscard]] double FromState(int64_t gate, int64_t j, const Vector& h) const {
    const int64_t row = gate * hidden + j;
    double sum = rb[row];
    for (int64_t i = 0; i < hidden; ++i) sum += r[row * hidden + i] * h[static_cast<size_t>(i)];
    return sum;
  }
  [[nodiscard]] double Activate(size_t which, double v) const {
    if (clip && v > *clip) v = *clip;  // NaN stays
    if (clip && v < -*clip) v = -*clip;
    return f[which](v);
  }
};

struct State {
  Vector h, c;
};

// The next state of one sequence after input x.
using Step = void (*)(Operation* op, const Weights& weights, const double* x, State& state);

void RnnStep(Operation*, const Weights& m, const double* x, State& s) {
  Vector next(s.h.size());
  for (int64_t j = 0; j < m.hidden; ++j) {
    next[static_cast<size_t>(j)] = m.Activate(0, m.FromInput(0, j, x) + m.FromState(0, j, s.h));
  }
  s.h = std::move(next);
}

void GruStep(Operation* op, const Weights& m, const double* x, State& s) {
  const bool linear = GruOp(op).linear_before_reset();
  const size_t n = s.h.size();
  Vector z(n), r(n), reset(n), next(n);
  for (size_t j = 0; j < n; ++j) {
    const auto row = static_cast<int64_t>(j);
    z[j] = m.Activate(0, m.FromInput(0, row, x) + m.FromState(0, row, s.h));
    r[j] = m.Activate(0, m.FromInput(1, row, x) + m.FromState(1, row, s.h));
    reset[j] = r[j] * s.h[j];
  }
  for (size_t j = 0; j < n; ++j) {
    const auto row = static_cast<int64_t>(j);
    const double recurrent = linear ? r[j] * m.FromState(2, row, s.h) : m.FromState(2, row, reset);
    next[j] = (1 - z[j]) * m.Activate(1, m.FromInput(2, row, x) + recurrent) + z[j] * s.h[j];
  }
  s.h = std::move(next);
}

void LstmStep(Operation* op, const Weights& m, const double* x, State& s) {
  const bool couple = LstmOp(op).input_forget();
  const Vector h = s.h;
  for (int64_t row = 0; row < m.hidden; ++row) {
    const auto j = static_cast<size_t>(row);
    const auto gate = [&](int64_t g) { return m.FromInput(g, row, x) + m.FromState(g, row, h); };
    const double* p = m.p + row;
    const double i = m.Activate(0, gate(0) + p[0] * s.c[j]);
    const double f = couple ? 1 - i : m.Activate(0, gate(2) + p[2 * m.hidden] * s.c[j]);
    s.c[j] = f * s.c[j] + i * m.Activate(1, gate(3));
    const double o = m.Activate(0, gate(1) + p[m.hidden] * s.c[j]);
    s.h[j] = o * m.f[2](s.c[j]);
  }
}

// ---- the layer ----------------------------------------------------------------------------------

// Distances in y, in elements.
struct Layout {
  int64_t step, direction, sequence;
};

class Layer {
 public:
  Layer(EvalContext& c, Spec spec, Step step) : c_(c), spec_(std::move(spec)), step_(step) {
    const Sizes s = SizesOf(spec_, OperandShapes(c, spec_.operands));
    const Shape sizes = eval::Concrete({s.steps, s.batch, s.features, s.hidden});
    steps_ = sizes[0], batch_ = sizes[1], features_ = sizes[2], hidden_ = sizes[3];
    eval::CheckSize(ElementType::kF64, {spec_.directions, steps_, batch_, hidden_});
    eval::CheckSize(ElementType::kF64, {spec_.directions, batch_, hidden_});
  }

  void Run() {
    const int64_t rows = spec_.gates * hidden_;
    const int64_t d = spec_.directions;
    const Vector x = ToDoubles(c_.input(kX));
    const Vector w = ToDoubles(c_.input(kW));
    const Vector r = ToDoubles(c_.input(kR));
    const Vector b = Operand(kB, d * 2 * rows);
    const Vector p = Operand(kP, d * 3 * hidden_);
    h_ = Operand(kH, d * batch_ * hidden_);
    cell_ = Operand(kC, d * batch_ * hidden_);
    y_.assign(static_cast<size_t>(steps_ * d * batch_ * hidden_), 0.0);
    if (h_.empty()) return SetOutputs();
    const std::vector<int64_t> lens = Lengths();
    const std::span<const Activation> f(spec_.activations);
    for (int64_t i = 0; i < d; ++i) {
      const Weights weights{features_,
                            hidden_,
                            w.data() + i * rows * features_,
                            r.data() + i * rows * hidden_,
                            b.data() + i * 2 * rows,
                            b.data() + i * 2 * rows + rows,
                            p.data() + i * 3 * hidden_,
                            spec_.clip,
                            f.subspan(static_cast<size_t>(i) * spec_.per_direction)};
      for (int64_t n = 0; n < batch_; ++n) {
        RunSequence(weights, i, n, lens[static_cast<size_t>(n)], x);
      }
    }
    SetOutputs();
  }

 private:
  Vector Operand(size_t i, int64_t count) const {
    if (i < spec_.operands && c_.HasInput(i)) return ToDoubles(c_.input(i));
    return Vector(static_cast<size_t>(count), 0.0);
  }

  std::vector<int64_t> Lengths() const {
    if (!c_.HasInput(kLens)) return std::vector<int64_t>(static_cast<size_t>(batch_), steps_);
    std::vector<int64_t> lens = ToInt64s(c_.input(kLens));
    for (int64_t len : lens) {
      if (len >= 0 && len <= steps_) continue;
      c_.Fail("rnn/sequence-lens", StrCat("a sequence of ", len, " steps among ", steps_));
    }
    return lens;
  }

  [[nodiscard]] Layout LayoutOfY() const {
    const int64_t d = spec_.directions;
    if (spec_.batch_first) return {d * hidden_, hidden_, steps_ * d * hidden_};
    return {d * batch_ * hidden_, batch_ * hidden_, hidden_};
  }

  void RunSequence(const Weights& weights, int64_t direction, int64_t n, int64_t len,
                   const Vector& x) {
    const bool backwards = spec_.reverse || direction == 1;
    const int64_t at =
        spec_.batch_first ? n * spec_.directions + direction : direction * batch_ + n;
    double* h = h_.data() + at * hidden_;
    double* cell = cell_.data() + at * hidden_;
    State state{Vector(h, h + hidden_), Vector(cell, cell + hidden_)};
    const Layout y = LayoutOfY();
    for (int64_t i = 0; i < len; ++i) {
      const int64_t t = backwards ? len - 1 - i : i;
      const int64_t row = spec_.batch_first ? n * steps_ + t : t * batch_ + n;
      step_(c_.op(), weights, x.data() + row * features_, state);
      std::copy(state.h.begin(), state.h.end(),
                y_.data() + t * y.step + direction * y.direction + n * y.sequence);
    }
    std::copy(state.h.begin(), state.h.end(), h);
    std::copy(state.c.begin(), state.c.end(), cell);
  }

  void SetOutputs() {
    const ElementType type = c_.input(kX).element_type();
    const int64_t d = spec_.directions;
    const bool first = spec_.batch_first;
    const Shape state = first ? Shape{batch_, d, hidden_} : Shape{d, batch_, hidden_};
    const Shape all = first ? Shape{batch_, steps_, d, hidden_} : Shape{steps_, d, batch_, hidden_};
    c_.SetOutput(0, eval::FromDoubles(type, all, y_));
    c_.SetOutput(1, eval::FromDoubles(type, state, h_));
    c_.SetOutput(2, eval::FromDoubles(type, state, cell_));
  }

  EvalContext& c_;
  Spec spec_;
  Step step_;
  int64_t steps_ = 0, batch_ = 0, features_ = 0, hidden_ = 0;
  Vector h_, cell_, y_;
};

}  // namespace

void RnnOp::InferShape(InferShapeContext& c) { InferRecurrent(c, SpecOf(RnnOp(c.op()))); }
Dim RnnOp::Flops(Operation* o) { return RecurrentFlops<RnnOp>(o); }
void RnnOp::Learned(LearnedContext& c) { c.Weights({kW, kR, kB}); }
void RnnOp::Eval(EvalContext& c) { Layer(c, SpecOf(RnnOp(c.op())), RnnStep).Run(); }

void GruOp::InferShape(InferShapeContext& c) { InferRecurrent(c, SpecOf(GruOp(c.op()))); }
Dim GruOp::Flops(Operation* o) { return RecurrentFlops<GruOp>(o); }
void GruOp::Learned(LearnedContext& c) { c.Weights({kW, kR, kB}); }
void GruOp::Eval(EvalContext& c) { Layer(c, SpecOf(GruOp(c.op())), GruStep).Run(); }

void LstmOp::InferShape(InferShapeContext& c) { InferRecurrent(c, SpecOf(LstmOp(c.op()))); }
Dim LstmOp::Flops(Operation* o) { return RecurrentFlops<LstmOp>(o); }
void LstmOp::Learned(LearnedContext& c) { c.Weights({kW, kR, kB}); }
void LstmOp::Eval(EvalContext& c) { Layer(c, SpecOf(LstmOp(c.op())), LstmStep).Run(); }

}  // namespace lathe::nn
