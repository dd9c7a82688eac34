#include <algorithm>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/support/divide.h"
#include "src/dialect/nn/term.h"
#include "src/lower/index_math.h"
#include "src/lower/recurrent_form.h"
#include "src/lower/strategies/list.h"
#include "src/lower/tiles.h"

// Recurrent layers: what the inputs of all steps contribute is one product; then comes step after
// step the product with the state, and the gates of some neighboring units are computed while
// their sums are in registers. A panel of weights holds all gates of as many units as a vector has
// lanes.
namespace lathe::lower {
namespace {

using nn::Term;
using Form = RecurrentForm;

constexpr int64_t kPieceOfStep = 1 << 17;  // products that are worth a thread

class Recurrent {
 public:
  Recurrent(Lowering& lowering, const Form& form)
      : lowering_(lowering),
        form_(form),
        lb_(lowering.body),
        im_(lb_),
        lanes_(lowering.machine.lanes(ElementType::kF32)),
        panels_(CeilDiv(form.hidden, lanes_)) {}

  void Write();

 private:
  // Gates that are multiplied at once.
  struct Gates {
    int64_t first, count;
  };

  Value ArgumentOf(Value v) { return lowering_.body->argument(v.index()); }
  Value Memory(std::vector<Dim> shape);
  Value PanelsOf(Value weights, int64_t depth);
  void Rearrange(Value weights, int64_t depth, Value panels);
  void WriteDirection(int64_t direction);
  void Project(int64_t direction);
  void Start();
  Dim PiecesOfStep();
  void ForPanels(const std::function<void(const Dim& panel)>& body);
  void WriteStep(const Dim& step);
  void WritePanel(const Dim& panel, const Dim& step, Gates gates, bool of_reset);
  Tile TileOf(int64_t gates) const;
  Value Bias(int64_t gate, const Dim& panel, bool recurrent);
  std::vector<Value> Projected(const Dim& row, const Dim& step, const Dim& panel, int64_t gate);
  Dim TimeOf(const Dim& row, const Dim& step);
  Value Live(const Dim& panel);
  void CheckLengths();
  Value Activated(size_t which, Value v, bool clipped = true);
  Value Peephole(int64_t gate, const Dim& panel, Value cell);
  void Finish(const Dim& row, const Dim& panel, const Dim& step, const std::vector<Value>& sums);
  Value LstmState(const Dim& row, const Dim& panel, const Dim& step,
                  const std::vector<Value>& sums);
  Value GruState(const Dim& row, const Dim& panel, const Dim& step, const std::vector<Value>& sums,
                 Value old);
  void Reset(const Dim& row, const Dim& panel, const Dim& step, const std::vector<Value>& sums);
  Value IsLive(const Dim& row, const Dim& step);
  Value Kept(const Dim& row, const Dim& step, Value next, Value old);
  void GiveStates();
  void ForVectors(const std::function<void(const Dim& row, const Dim& panel)>& body);
  std::vector<Value> StateAt(const Dim& row, const Dim& panel);
  std::vector<Value> At(std::vector<Dim> dims);
  Dim Unit(const Dim& panel) const { return panel * lanes_; }
  Value LoadLanes(Value memory, const std::vector<Value>& at, const Dim& panel) {
    return lb_.Load(memory, at, lanes_, Live(panel));
  }

  Lowering& lowering_;
  const Form& form_;
  LoopBuilder lb_;
  IndexMath im_;
  int64_t lanes_, panels_;
  Dim steps_, batch_, pieces_;
  std::vector<Value> memory_;  // of the operation's results
  Value w_, r_;                // [directions, panels, depth, gates, lanes]
  Value projected_;            // [steps, batch, panels, gates, lanes], or batch first
  Value states_;               // [2, batch, hidden]: before and after a step
  Value cells_;                // [batch, hidden]
  Value update_, reset_;       // of a gru: the gate, and what the other one leaves of the state
  int64_t direction_ = 0;
};

Value Recurrent::Memory(std::vector<Dim> shape) {
  return lb_.Alloc(VTensorType::Get(lb_.context(), SymShape(std::move(shape)), ElementType::kF32));
}

std::vector<Value> Recurrent::At(std::vector<Dim> dims) {
  std::vector<Value> at;
  for (const Dim& dim : dims) at.push_back(im_.At(dim));
  return at;
}

// ---- weights ----

// Packed when the program is compiled, if they are the same in every run and fill the panels.
Value Recurrent::PanelsOf(Value weights, int64_t depth) {
  const int64_t d = form_.directions, g = form_.gates;
  if (lowering_.IsConstant(weights) && form_.hidden % lanes_ == 0) {
    return lowering_.Pack({.argument = weights.index(),
                           .padded = {d, g * form_.hidden, depth},
                           .split = {d, g, panels_, lanes_, depth},
                           .order = {0, 2, 4, 1, 3}});
  }
  const Value panels = Memory({Dim(d), Dim(panels_), Dim(depth), Dim(g), Dim(lanes_)});
  Rearrange(ArgumentOf(weights), depth, panels);
  return panels;
}

void Recurrent::Rearrange(Value weights, int64_t depth, Value panels) {
  im_.For(form_.directions * panels_, true, [&](const Dim& i) {
    const Dim d = im_.Name(FloorDiv(i, panels_)), p = im_.Name(Mod(i, panels_));
    im_.For(depth, false, [&](const Dim& k) {
      for (int64_t g = 0; g < form_.gates; ++g) {
        const Value part =
            lb_.LoadApart(weights, At({d, g * form_.hidden + Unit(p), k}), lanes_, 1, 1, Live(p));
        lb_.Store(panels, part, At({d, p, k, Dim(g), 0}));
      }
    });
  });
}

// Units of a panel; null: all lanes.
Value Recurrent::Live(const Dim& panel) {
  if (form_.hidden % lanes_ == 0) return {};
  return im_.At(Min(form_.hidden - Unit(panel), lanes_));
}

Value Recurrent::Bias(int64_t gate, const Dim& panel, bool recurrent) {
  const int64_t first = (recurrent ? form_.gates : 0) + gate;
  return LoadLanes(ArgumentOf(form_.bias),
                   At({Dim(direction_), first * form_.hidden + Unit(panel)}), panel);
}

Tile Recurrent::TileOf(int64_t gates) const {
  const int registers = lowering_.machine.vector_registers;
  return {std::max<int64_t>((registers - gates - 1) / gates, 1), gates};
}

// ---- the layer ----

void Recurrent::Write() {
  memory_.resize(3);
  std::vector<Value> given;
  for (const size_t result : form_.results) {
    memory_[result] = lb_.Alloc(form_.op->result(result).type().cast<AnyTensorType>());
    given.push_back(memory_[result]);
  }
  steps_ = im_.Extent(form_.steps);
  batch_ = im_.Extent(form_.batch);
  pieces_ = PiecesOfStep();
  if (form_.lengths) CheckLengths();
  w_ = PanelsOf(form_.w, form_.features);
  r_ = PanelsOf(form_.r, form_.hidden);
  const Dim outer = form_.batch_first ? form_.batch : form_.steps;
  const Dim inner = form_.batch_first ? form_.steps : form_.batch;
  projected_ = Memory({outer, inner, Dim(panels_), Dim(form_.gates), Dim(lanes_)});
  states_ = Memory({Dim(2), form_.batch, Dim(form_.hidden)});
  if (form_.kind == Form::Kind::kLstm) cells_ = Memory({form_.batch, Dim(form_.hidden)});
  if (form_.kind == Form::Kind::kGru) {
    update_ = Memory({form_.batch, Dim(form_.hidden)});
    reset_ = Memory({form_.batch, Dim(form_.hidden)});
  }
  for (int64_t d = 0; d < form_.directions; ++d) WriteDirection(d);
  lb_.Return(given);
}

void Recurrent::WriteDirection(int64_t direction) {
  direction_ = direction;
  Project(direction);
  Start();
  im_.For(steps_, false, [&](const Dim& step) { WriteStep(step); });
  GiveStates();
}

// What the inputs of all steps contribute to all gates, biases included.
void Recurrent::Project(int64_t direction) {
  const std::vector<int64_t> rows_of_x{-1, form_.features};
  const Value x = nn::ViewReshapeOp::Create(lb_.b(), ArgumentOf(form_.x), {.shape = rows_of_x}).y();
  const std::vector<int64_t> rows{-1, panels_, form_.gates, lanes_};
  const Value to = nn::ViewReshapeOp::Create(lb_.b(), projected_, {.shape = rows}).y();
  const bool apart = form_.kind == Form::Kind::kGru && form_.linear_first;
  im_.For(panels_, true, [&](const Dim& panel) {
    PanelProduct product(lb_, lowering_.machine, ElementType::kF32, TileOf(form_.gates));
    product.left = [&](Value row, Value k) { return lb_.Load(x, At({im_.Of(row), im_.Of(k)})); };
    product.right = [&](Value k, int64_t v) {
      return lb_.Load(w_, At({Dim(direction), panel, im_.Of(k), Dim(v), 0}), lanes_);
    };
    if (form_.bias) {
      product.start = [&](Value, int64_t v) -> Value {
        const Term input(lb_.b(), Bias(v, panel, false));
        if (apart && v == 2) return input;
        return input + Term(lb_.b(), Bias(v, panel, true));
      };
    }
    product.finish = [&](Value row, int64_t v, Value sum) {
      lb_.Store(to, sum, At({im_.Of(row), panel, Dim(v), 0}));
    };
    product.Write(im_.At(steps_ * batch_), lb_.Int(form_.features));
  });
}

void Recurrent::ForVectors(const std::function<void(const Dim& row, const Dim& panel)>& body) {
  im_.For(batch_, false, [&](const Dim& row) {
    im_.For(panels_, false, [&](const Dim& panel) { body(row, panel); });
  });
}

// In initial and last states.
std::vector<Value> Recurrent::StateAt(const Dim& row, const Dim& panel) {
  if (form_.batch_first) return At({row, Dim(direction_), Unit(panel)});
  return At({Dim(direction_), row, Unit(panel)});
}

void Recurrent::Start() {
  const auto initial = [&](Value given, const Dim& row, const Dim& panel) {
    if (!given) return lb_.Splat(ElementType::kF32, 0, lanes_);
    return LoadLanes(ArgumentOf(given), StateAt(row, panel), panel);
  };
  ForVectors([&](const Dim& row, const Dim& panel) {
    lb_.Store(states_, initial(form_.state, row, panel), At({0, row, Unit(panel)}), Live(panel));
    if (!cells_) return;
    lb_.Store(cells_, initial(form_.cell, row, panel), At({row, Unit(panel)}), Live(panel));
  });
}

void Recurrent::GiveStates() {
  ForVectors([&](const Dim& row, const Dim& panel) {
    const auto give = [&](size_t result, Value from, const std::vector<Value>& at) {
      if (!form_.IsResult(result)) return;
      lb_.Store(memory_[result], LoadLanes(from, at, panel), StateAt(row, panel), Live(panel));
    };
    give(1, states_, At({Mod(steps_, 2), row, Unit(panel)}));
    if (cells_) give(2, cells_, At({row, Unit(panel)}));
  });
}

// ---- steps ----

Dim Recurrent::PiecesOfStep() {
  const int64_t products = form_.gates * form_.hidden * form_.hidden;  // of a row
  if (products >= kPieceOfStep) return panels_;
  const int64_t rows = CeilDiv(kPieceOfStep, products);
  return im_.Name(Min(Max(FloorDiv(batch_, rows), 1), panels_));
}

// Parallel, as far as the rows of the batch are worth it.
void Recurrent::ForPanels(const std::function<void(const Dim& panel)>& body) {
  if (pieces_ == Dim(panels_)) return im_.For(panels_, true, body);
  im_.For(pieces_, true, [&](const Dim& piece) {
    const Dim first = im_.Name(FloorDiv(piece * panels_, pieces_));
    const Dim end = im_.Name(FloorDiv((piece + 1) * panels_, pieces_));
    im_.For(end - first, false, [&](const Dim& i) { body(im_.Name(first + i)); });
  });
}

void Recurrent::WriteStep(const Dim& step) {
  const bool resets = form_.kind == Form::Kind::kGru && !form_.linear_first;
  const Gates first{0, resets ? 2 : form_.gates};
  ForPanels([&](const Dim& panel) { WritePanel(panel, step, first, false); });
  if (!resets) return;
  ForPanels([&](const Dim& panel) { WritePanel(panel, step, {2, 1}, true); });
}

// The gates of a panel's units from the state before, or from what the reset gate left of it.
void Recurrent::WritePanel(const Dim& panel, const Dim& step, Gates gates, bool of_reset) {
  const bool apart = form_.kind == Form::Kind::kGru && form_.linear_first;
  std::vector<Value> sums;
  PanelProduct product(lb_, lowering_.machine, ElementType::kF32, TileOf(gates.count));
  product.left = [&](Value row, Value k) {
    if (of_reset) return lb_.Load(reset_, At({im_.Of(row), im_.Of(k)}));
    return lb_.Load(states_, At({Mod(step, 2), im_.Of(row), im_.Of(k)}));
  };
  product.right = [&](Value k, int64_t v) {
    return lb_.Load(r_, At({Dim(direction_), panel, im_.Of(k), Dim(gates.first + v), 0}), lanes_);
  };
  product.start = [&](Value row, int64_t v) {
    if (apart && v == 2) {
      return form_.bias ? Bias(2, panel, true) : lb_.Splat(ElementType::kF32, 0, lanes_);
    }
    return lb_.Load(projected_, Projected(im_.Of(row), step, panel, gates.first + v), lanes_);
  };
  product.finish = [&](Value row, int64_t v, Value sum) {
    sums.push_back(sum);
    if (v + 1 < gates.count) return;
    const std::vector<Value> all = std::move(sums);
    sums.clear();
    const bool to_reset = form_.kind == Form::Kind::kGru && gates.count == 2;
    if (to_reset) return Reset(im_.Of(row), panel, step, all);
    Finish(im_.Of(row), panel, step, all);
  };
  product.Write(im_.At(batch_), lb_.Int(form_.hidden));
}

// Lengths are numbers of steps, none of them negative.
void Recurrent::CheckLengths() {
  lb_.For(im_.At(batch_), false, [&](Value row) {
    Builder& b = lb_.b();
    const Term length(b, nn::CastOp::Create(b, lb_.Load(ArgumentOf(form_.lengths), {&row, 1}),
                                            {.to = ElementType::kI64})
                             .output());
    const Term extent(b, im_.At(steps_ + 1));
    const Term negative = length.Call(nn::kLess, {length.Number(0)});
    loop::ExpectOp::Create(b, Where(negative, length - extent, length), extent, Value(),
                           {.axis = form_.batch_first ? 1 : 0});
  });
}

// The step of the sequence that a step of the loop computes; those beyond its end are themselves.
Dim Recurrent::TimeOf(const Dim& row, const Dim& step) {
  if (!form_.Backwards(direction_)) return step;
  if (!form_.lengths) return steps_ - 1 - step;
  const Value at[] = {im_.At(row)};
  Builder& b = lb_.b();
  const Term length(
      b, nn::CastOp::Create(b, lb_.Load(ArgumentOf(form_.lengths), at), {.to = ElementType::kI64})
             .output());
  const Term number(b, im_.At(step));
  return im_.Of(Where(Term(b, IsLive(row, step)), length - 1 - number, number));
}

std::vector<Value> Recurrent::Projected(const Dim& row, const Dim& step, const Dim& panel,
                                        int64_t gate) {
  const Dim time = TimeOf(row, step);
  if (form_.batch_first) return At({row, time, panel, Dim(gate), 0});
  return At({time, row, panel, Dim(gate), 0});
}

Value Recurrent::Activated(size_t which, Value v, bool clipped) {
  Term x(lb_.b(), v);
  if (clipped && form_.clip) x = Greatest(Least(x, *form_.clip), -*form_.clip);
  switch (form_.FunctionsOf(direction_)[which]) {
    case Form::Function::kSigmoid:
      return Sigmoid(x);
    case Form::Function::kTanh:
      return x.Call(nn::kTanh);
    default:
      return x.Call(nn::kRelu);
  }
}

// Whether the row's sequence has that step; null: all have.
Value Recurrent::IsLive(const Dim& row, const Dim& step) {
  if (!form_.lengths) return {};
  const Value at[] = {im_.At(row)};
  const Term length(lb_.b(), lb_.Load(ArgumentOf(form_.lengths), at));
  const Term number(lb_.b(),
                    nn::CastOp::Create(lb_.b(), im_.At(step), {.to = length.element()}).output());
  return number.Call(nn::kLess, {length});
}

Value Recurrent::Kept(const Dim& row, const Dim& step, Value next, Value old) {
  const Value live = IsLive(row, step);
  if (!live) return next;
  return Where(Term(lb_.b(), live), Term(lb_.b(), next), Term(lb_.b(), old));
}

Value Recurrent::Peephole(int64_t gate, const Dim& panel, Value cell) {
  const Value weight = LoadLanes(ArgumentOf(form_.peepholes),
                                 At({Dim(direction_), gate * form_.hidden + Unit(panel)}), panel);
  return Term(lb_.b(), weight) * Term(lb_.b(), cell);
}

// What the reset gate leaves of the state is multiplied next; the update gate waits.
void Recurrent::Reset(const Dim& row, const Dim& panel, const Dim& step,
                      const std::vector<Value>& sums) {
  const std::vector<Value> at = At({row, Unit(panel)});
  const Term old(lb_.b(), LoadLanes(states_, At({Mod(step, 2), row, Unit(panel)}), panel));
  lb_.Store(update_, Activated(0, sums[0]), at, Live(panel));
  lb_.Store(reset_, Term(lb_.b(), Activated(0, sums[1])) * old, at, Live(panel));
}

Value Recurrent::GruState(const Dim& row, const Dim& panel, const Dim& step,
                          const std::vector<Value>& sums, Value old) {
  Builder& b = lb_.b();
  Value update, next;
  if (form_.linear_first) {
    const Term input(b, lb_.Load(projected_, Projected(row, step, panel, 2), lanes_));
    update = Activated(0, sums[0]);
    next = Activated(1, input + Term(b, Activated(0, sums[1])) * Term(b, sums[2]));
  } else {
    update = LoadLanes(update_, At({row, Unit(panel)}), panel);
    next = Activated(1, sums[0]);
  }
  const Term z(b, update);
  return (z.Number(1) - z) * Term(b, next) + z * Term(b, old);
}

Value Recurrent::LstmState(const Dim& row, const Dim& panel, const Dim& step,
                           const std::vector<Value>& sums) {
  Builder& b = lb_.b();
  const std::vector<Value> at = At({row, Unit(panel)});
  const Term old(b, LoadLanes(cells_, at, panel));
  const auto gate = [&](int64_t g, const Term& cell) {
    const Term sum(b, sums[static_cast<size_t>(g)]);
    const Value all =
        form_.peepholes ? (sum + Term(b, Peephole(g, panel, cell))).value() : sum.value();
    return Term(b, Activated(0, all));
  };
  const Term input = gate(0, old);
  const Term forget = form_.couples ? input.Number(1) - input : gate(2, old);
  const Term cell = forget * old + input * Term(b, Activated(1, sums[3]));
  const Term output = gate(1, cell);
  lb_.Store(cells_, Kept(row, step, cell, old), at, Live(panel));
  return output * Term(b, Activated(2, cell, false));
}

// The next state of a panel's units.
void Recurrent::Finish(const Dim& row, const Dim& panel, const Dim& step,
                       const std::vector<Value>& sums) {
  const Value old = LoadLanes(states_, At({Mod(step, 2), row, Unit(panel)}), panel);
  Value next;
  switch (form_.kind) {
    case Form::Kind::kLstm:
      next = LstmState(row, panel, step, sums);
      break;
    case Form::Kind::kGru:
      next = GruState(row, panel, step, sums, old);
      break;
    default:
      next = Activated(0, sums[0]);
  }
  lb_.Store(states_, Kept(row, step, next, old), At({Mod(step + 1, 2), row, Unit(panel)}),
            Live(panel));
  if (!form_.IsResult(0)) return;
  const Value zero = lb_.Splat(ElementType::kF32, 0, lanes_);
  const Dim time = TimeOf(row, step), direction(direction_);
  const std::vector<Value> at = form_.batch_first ? At({row, time, direction, Unit(panel)})
                                                  : At({time, direction, row, Unit(panel)});
  lb_.Store(memory_[0], Kept(row, step, next, zero), at, Live(panel));
}

}  // namespace

bool LowerRecurrent(Lowering& l) {
  Form form;
  l.why = form.Read(l.function);
  if (!l.why.empty()) return false;
  Recurrent(l, form).Write();
  return true;
}

}  // namespace lathe::lower
