#include "lathe/dialect/nn/activation.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/rnn.h"
#include "lathe/support/error.h"
#include "src/dialect/nn/rnn_activation.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/scalars.h"

// Recurrent layers of any element type, activation and extents, in f64. The strategy `recurrent`
// comes first.
namespace lathe::lower {
namespace {

enum Operand : size_t { kX, kW, kR, kB, kLens, kH, kC, kP };

// ---- activations ----

// log(1 + u) of u in 0 .. 1, e^x - 1.
Value Log1p(const Scalars& s, Elements& e, Value u) {
  const Value half = s.Div(u, s.Add(u, s.Number(kWide, 2.0)));
  return s.Mul(nn::AtanhOp::Create(e.lb().b(), half).y(), s.Number(kWide, 2.0));
}
Value Expm1(const Scalars& s, Elements& e, Value x) {
  const Value half = s.Mul(x, s.Number(kWide, 0.5));
  const Value sinh = nn::SinhOp::Create(e.lb().b(), half).y();
  return s.Mul(s.Mul(sinh, s.Number(kWide, 2.0)), s.Exp(half));
}

Value Activated(Elements& e, const nn::ActivationName& f, Value x) {
  const Scalars s(e);
  Builder& b = e.lb().b();
  const Value zero = s.Number(kWide, 0.0), one = s.Number(kWide, 1.0);
  const Value alpha = s.Number(kWide, f.alpha), beta = s.Number(kWide, f.beta);
  const auto tanh = [&](Value v) { return nn::TanhOp::Create(b, v).y(); };
  const auto where_below_0 = [&](Value y) { return s.Select(s.AtMost(zero, x), x, y); };
  if (f.name == "Sigmoid") return nn::SigmoidOp::Create(b, x).y();
  if (f.name == "Tanh") return tanh(x);
  if (f.name == "Relu") return s.Select(s.Less(x, zero), zero, x);
  if (f.name == "Affine") return s.Add(s.Mul(alpha, x), beta);
  if (f.name == "LeakyRelu") return where_below_0(s.Mul(alpha, x));
  if (f.name == "Elu") return where_below_0(s.Mul(alpha, Expm1(s, e, x)));
  if (f.name == "ThresholdedRelu") return s.Select(s.Less(alpha, x), x, zero);
  if (f.name == "ScaledTanh") return s.Mul(alpha, tanh(s.Mul(beta, x)));
  if (f.name == "Softsign") return s.Div(x, s.Add(one, s.Abs(x)));
  if (f.name == "HardSigmoid") {
    return s.Max(zero, s.Min(one, s.Add(s.Mul(alpha, x), beta)));
  }
  const Value power = s.Exp(s.Sub(zero, s.Abs(x)));  // Softplus
  return s.Add(s.Max(x, zero), Log1p(s, e, power));
}

// ---- the layer ----

struct Form {
  int64_t gates = 1, directions = 1;
  size_t states = 1;  ///< 2 with cells
  bool reverse = false, batch_first = false;
  std::optional<double> clip;
  std::vector<nn::ActivationName> functions;  ///< as many for each direction
};

template <class OpT>
Form FormOf(const OpT& op, int64_t gates, std::vector<std::string> standard) {
  Form form;
  form.gates = gates;
  form.states = gates == 4 ? 2 : 1;
  form.directions = op.direction() == "bidirectional" ? 2 : 1;
  form.reverse = op.direction() == "reverse";
  form.batch_first = op.layout();
  form.clip = op.clip();
  std::vector<std::string> names = op.activations().value_or(std::vector<std::string>{});
  const size_t count = standard.size() * static_cast<size_t>(form.directions);
  while (names.size() < count) names.insert(names.end(), standard.begin(), standard.end());
  form.functions = nn::ActivationNamesOf(std::span(names).first(count),
                                         op.activation_alpha().value_or(std::vector<double>{}),
                                         op.activation_beta().value_or(std::vector<double>{}));
  return form;
}

Form FormOf(const Operation& op) {
  Operation* o = const_cast<Operation*>(&op);
  if (op.name() == nn::RnnOp::kName) return FormOf(nn::RnnOp(o), 1, {"Tanh"});
  if (op.name() == nn::GruOp::kName) return FormOf(nn::GruOp(o), 3, {"Sigmoid", "Tanh"});
  return FormOf(nn::LstmOp(o), 4, {"Sigmoid", "Tanh", "Tanh"});
}

std::string Refuse(const Operation& op) {
  Form form;
  try {
    form = FormOf(op);
  } catch (const Error&) {
    return "an activation is not known";
  }
  Fits fits(op);
  const std::vector<Dim> x = fits.Dims(kX), r = fits.Dims(kR);
  const Dim batch = x[form.batch_first ? 0 : 1], hidden = r[2], rows = hidden * form.gates;
  const Dim d = form.directions;
  fits.Is(kW, {d, rows, x[2]}).Is(kR, {d, rows, hidden}).Is(kB, {d, rows * 2}).Is(kLens, {batch});
  for (size_t i = kH; i < kH + form.states; ++i) {
    fits.Is(i, form.batch_first ? std::vector<Dim>{batch, d, hidden}
                                : std::vector<Dim>{d, batch, hidden});
  }
  if (form.states == 2) fits.Is(kP, {d, hidden * 3});
  return fits.why().empty() ? NeedSizes(op) : fits.why();
}

class Layer {
 public:
  explicit Layer(const WholeTensorEmitter& w) : w_(w), e_(w.e), s_(w.e), form_(FormOf(*w.op)) {
    const std::vector<Dim> x = w.Dims(kX);
    steps_ = x[form_.batch_first ? 1 : 0], batch_ = x[form_.batch_first ? 0 : 1];
    features_ = x[2], hidden_ = w.Dims(kR)[2];
  }

  void Write() {
    // Of each sequence: state, cells, the next state, and two gates.
    work_ = e_.Scratch(kWide, batch_ * hidden_ * kTables);
    for (int64_t direction = 0; direction < form_.directions; ++direction) {
      direction_ = direction;
      e_.For(
          batch_, WholeTensorEmitter::IsWorthParallelizing(batch_ * steps_ * hidden_ * features_),
          [&](const Dim& n) {
            n_ = n;
            Begin();
            const Dim length =
                w_.Has(kLens) ? e_.Loaded(ToInt64(e_, w_.Operand(kLens, {n})), steps_ + 1) : steps_;
            const bool backwards = form_.reverse || direction == 1;
            e_.For(length, false, [&](const Dim& i) {
              t_ = backwards ? length - 1 - i : i;
              Step();
              e_.For(hidden_, false, [&](const Dim& j) { StoreY(t_, j, Load(kState, j)); });
            });
            e_.For(steps_ - length, false, [&](const Dim& i) {
              e_.For(hidden_, false, [&](const Dim& j) { StoreY(length + i, j, Number(0)); });
            });
            End();
          });
    }
  }

 private:
  enum Table : int64_t { kState, kCells, kNext, kFirst, kSecond, kTables };

  Value Number(double x) const { return s_.Number(kWide, x); }
  Value Wide(size_t operand, const Place& at) const {
    return s_.Cast(w_.Operand(operand, at), kWide);
  }
  Dim At(Table table, const Dim& j) const { return (n_ * kTables + table) * hidden_ + j; }
  Value Load(Table table, const Dim& j) const { return e_.LoadFrom(work_, At(table, j)); }
  void Put(Table table, const Dim& j, Value x) const { e_.Store(work_, At(table, j), x); }
  Place StateAt(const Dim& j) const {
    return form_.batch_first ? Place{n_, direction_, j} : Place{direction_, n_, j};
  }

  void Begin() {
    e_.For(hidden_, false, [&](const Dim& j) {
      Put(kState, j, w_.Has(kH) ? Wide(kH, StateAt(j)) : Number(0));
      const bool has_cells = form_.states == 2 && w_.Has(kC);
      if (form_.states == 2) Put(kCells, j, has_cells ? Wide(kC, StateAt(j)) : Number(0));
    });
  }

  void End() {
    for (size_t result = 1; result < w_.memory.size(); ++result) {
      e_.For(hidden_, false, [&](const Dim& j) {
        const Value x = Load(result == 1 ? kState : kCells, j);
        const Dim to = e_.space().Flatten(StateAt(j), w_.ResultDims(result));
        e_.Store(w_.memory[result], to, s_.Cast(x, w_.Element(result)));
      });
    }
  }

  void StoreY(const Dim& t, const Dim& j, Value x) {
    const Place at = form_.batch_first ? Place{n_, t, direction_, j} : Place{t, direction_, n_, j};
    const Dim to = e_.space().Flatten(at, w_.ResultDims(0));
    e_.Store(w_.memory[0], to, s_.Cast(x, w_.Element(0)));
  }

  Dim Row(int64_t gate, const Dim& j) const { return hidden_ * gate + j; }
  Value Bias(const Dim& row) const { return w_.Has(kB) ? Wide(kB, {direction_, row}) : Number(0); }
  // (W x + wb) and (R h + rb) of a row of a gate.
  Value FromInput(int64_t gate, const Dim& j) {
    const Dim row = Row(gate, j);
    return e_.Reduce({features_}, Bias(row), [&](const Place& i, Value so_far) {
      const Place at = form_.batch_first ? Place{n_, t_, i[0]} : Place{t_, n_, i[0]};
      return s_.Add(so_far, s_.Mul(Wide(kW, {direction_, row, i[0]}), Wide(kX, at)));
    });
  }
  Value FromState(int64_t gate, const Dim& j, Table state = kState) {
    const Dim row = Row(gate, j);
    return e_.Reduce({hidden_}, Bias(hidden_ * form_.gates + row),
                     [&](const Place& i, Value so_far) {
                       const Value weight = Wide(kR, {direction_, row, i[0]});
                       return s_.Add(so_far, s_.Mul(weight, Load(state, i[0])));
                     });
  }
  Value Gate(int64_t gate, const Dim& j) { return s_.Add(FromInput(gate, j), FromState(gate, j)); }

  Value Apply(size_t which, Value x) {
    const size_t each = form_.functions.size() / static_cast<size_t>(form_.directions);
    return Activated(e_, form_.functions[static_cast<size_t>(direction_) * each + which], x);
  }
  Value Bounded(size_t which, Value x) {
    if (form_.clip) {
      const Value high = Number(*form_.clip), low = Number(-*form_.clip);
      x = s_.Select(s_.Less(high, x), high, x);  // NaN stays
      x = s_.Select(s_.Less(x, low), low, x);
    }
    return Apply(which, x);
  }

  void Step() {
    if (form_.gates == 1) {
      e_.For(hidden_, false, [&](const Dim& j) { Put(kNext, j, Bounded(0, Gate(0, j))); });
    } else if (form_.gates == 3) {
      GruStep();
    } else {
      e_.For(hidden_, false, [&](const Dim& j) { LstmRow(j); });
    }
    e_.For(hidden_, false, [&](const Dim& j) { Put(kState, j, Load(kNext, j)); });
  }

  // The gate z and, unless the state is multiplied before it is reset, the reset state.
  void GruStep() {
    const nn::GruOp op(w_.op);
    const bool linear = op.linear_before_reset();
    e_.For(hidden_, false, [&](const Dim& j) {
      Put(kFirst, j, Bounded(0, Gate(0, j)));
      const Value reset = Bounded(0, Gate(1, j));
      Put(kSecond, j, linear ? reset : s_.Mul(reset, Load(kState, j)));
    });
    e_.For(hidden_, false, [&](const Dim& j) {
      const Value recurrent =
          linear ? s_.Mul(Load(kSecond, j), FromState(2, j)) : FromState(2, j, kSecond);
      const Value fresh = Bounded(1, s_.Add(FromInput(2, j), recurrent));
      const Value z = Load(kFirst, j);
      Put(kNext, j, s_.Add(s_.Mul(s_.Sub(Number(1), z), fresh), s_.Mul(z, Load(kState, j))));
    });
  }

  void LstmRow(const Dim& j) {
    const nn::LstmOp op(w_.op);
    const auto peeped = [&](Value x, int64_t gate, Value cell) {
      if (!w_.Has(kP)) return x;
      return s_.Add(x, s_.Mul(Wide(kP, {direction_, hidden_ * gate + j}), cell));
    };
    const Value before = Load(kCells, j);
    const Value i = Bounded(0, peeped(Gate(0, j), 0, before));
    const Value f =
        op.input_forget() ? s_.Sub(Number(1), i) : Bounded(0, peeped(Gate(2, j), 2, before));
    const Value cell = s_.Add(s_.Mul(f, before), s_.Mul(i, Bounded(1, Gate(3, j))));
    Put(kCells, j, cell);
    const Value o = Bounded(0, peeped(Gate(1, j), 1, cell));
    Put(kNext, j, s_.Mul(o, Apply(2, cell)));
  }

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  Form form_;
  Dim steps_, batch_, features_, hidden_, n_, t_;
  int64_t direction_ = 0;
  Value work_;
};

void WriteLayer(const WholeTensorEmitter& w) { Layer(w).Write(); }

// Lengths are numbers of steps.
std::vector<IndexUse> Lengths(const ElementOf& c) {
  if (!c.Has(kLens)) return {};
  const std::vector<Dim> x = c.Dims(kX);
  const size_t axis = FormOf(*c.op).batch_first ? 1 : 0;
  const Dim extent = x[axis] + 1;
  const auto length = [extent](Elements& e, Value number) {
    const Scalars s(e);
    return s.Select(s.Less(number, e.lb().Int(0)), s.Sub(number, e.Int(extent)), number);
  };
  return {{kLens, axis, extent, {}, length}};
}

constexpr Compute kRecurrentComputes[] = {
    {nn::kGru, nullptr, Refuse, Lengths, WriteLayer, true},
    {nn::kLstm, nullptr, Refuse, Lengths, WriteLayer, true},
    {nn::kRnn, nullptr, Refuse, Lengths, WriteLayer, true},
};

}  // namespace

std::span<const Compute> RecurrentComputes() { return kRecurrentComputes; }

}  // namespace lathe::lower
