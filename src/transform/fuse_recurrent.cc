#include <algorithm>
#include <array>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/linear_form.h"
#include "src/transform/slices.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

// ---- gates ----

/// Hidden units of a state [N, H].
std::optional<int64_t> UnitsOf(Value state) {
  if (RankOf(state) != 2 || !DimsOf(state)[1].is_constant()) return std::nullopt;
  return DimsOf(state)[1].value();
}

/// What goes into the activation that `gate` is a result of, or a slice of a result of.
std::optional<LinearForm> GateForm(const Program& program, Value gate, const char* activation,
                                   int64_t units) {
  int64_t begin = 0;
  if (const std::optional<SliceOf> slice = AsSlice(program, gate)) {
    if (slice->axis != 1 || slice->step != 1) return std::nullopt;
    begin = slice->begin;
    gate = slice->whole;
  }
  const Operation* op = gate.defining_op();
  if (op == nullptr || op->name() != activation) return std::nullopt;
  return AsLinearForm(program, op->operand(0), begin, units);
}

/// The gates of a cell as sums of x W, h R and a bias, in the order of the op.
struct Cell {
  Value x, h;
  int64_t units = 0;
  std::vector<LinearForm> gates;
};

/// Every gate has the terms of x and of h and no others.
bool OfTheSame(const Cell& cell, const LinearForm& form) {
  return form.terms.size() == 2 && form.Of(cell.x) != nullptr && form.Of(cell.h) != nullptr;
}

/// Rows of the batch are those of the state, not made by broadcasting.
bool SameRows(const Cell& cell, Value state) {
  const Dim& rows = DimsOf(state)[0];
  return ProvablyEqual(DimsOf(cell.x)[0], rows) && ProvablyEqual(DimsOf(cell.h)[0], rows);
}

// ---- weights ----

/// [1, gates * H, K]: for each gate and unit the weights of the inputs.
Tensor Weights(const Cell& cell, Value of, ElementType type) {
  const int64_t gates = std::ssize(cell.gates), rows = cell.gates[0].Of(of)->rows;
  std::vector<double> all;
  for (const LinearForm& gate : cell.gates) {
    const std::vector<double>& w = gate.Of(of)->w;
    for (int64_t j = 0; j < cell.units; ++j) {
      for (int64_t i = 0; i < rows; ++i) all.push_back(w[static_cast<size_t>(i * cell.units + j)]);
    }
  }
  return Cast(Tensor::Of<double>({1, gates * cell.units, rows}, all), type);
}

/// [1, 2 * gates * H]: the biases with the input, then those with the state (of one gate, or none).
Tensor Biases(const Cell& cell, const std::vector<double>& last_of_state, ElementType type) {
  std::vector<double> all;
  for (const LinearForm& gate : cell.gates)
    all.insert(all.end(), gate.bias.begin(), gate.bias.end());
  all.resize(2 * all.size());
  std::copy(last_of_state.rbegin(), last_of_state.rend(), all.rbegin());
  const auto count = static_cast<int64_t>(all.size());
  return Cast(Tensor::Of<double>({1, count}, all), type);
}

/// Parameters made once for cells with the same weights.
class Parameters {
 public:
  Value Get(Rewriter& rewriter, const char* base, const Tensor& data, Operation* before) {
    for (const auto& [known, value] : made_) {
      const Operation* maker = value.defining_op();
      if (known == data && maker->block() == before->block() && maker->IsBefore(before)) {
        return value;
      }
    }
    made_.emplace_back(data, rewriter.Parameter(base, data));
    return made_.back().second;
  }

 private:
  std::vector<std::pair<Tensor, Value>> made_;
};

Value Apply(Rewriter& rewriter, const char* op, Value x, int64_t number) {
  const Value operands[] = {
      x, rewriter.Constant(Tensor::Of<int64_t>({1}, std::vector<int64_t>{number}))};
  return rewriter.Create(op, operands)->result(0);
}

// ---- LSTM ----

Pat Sum(const Pat& a, const Pat& b) { return Call(nn::kAdd, {a, b}); }
Pat Product(const Pat& a, const Pat& b) { return Call(nn::kMul, {a, b}); }

Pat LstmPattern() {
  const Pat cell = Sum(Product(Var("f"), Var("c0")), Product(Var("i"), Var("g"))).As("c1").Shared();
  return Product(Var("o"), Call(nn::kTanh, {cell}));
}

/// x and h of the gates: h is that of the cell before if there is one, else of the right width.
void ChooseState(Cell& cell, const LinearForm& form) {
  const auto is_state = [](Value v) {
    const Operation* squeeze = v.defining_op();
    if (squeeze == nullptr || squeeze->name() != nn::kSqueeze) return false;
    const Operation* op = squeeze->operand(0).defining_op();
    return op != nullptr && (op->name() == nn::kLstm || op->name() == nn::kGru);
  };
  const LinearTerm &a = form.terms[0], &b = form.terms[1];
  const bool first = b.rows != cell.units || (is_state(a.x) && !is_state(b.x));
  cell.h = first ? a.x : b.x;
  cell.x = first ? b.x : a.x;
}

std::optional<Cell> LstmCell(const RuleMatch& m) {
  Cell cell;
  const std::optional<int64_t> units = UnitsOf(m["c0"]);
  if (!units) return std::nullopt;
  cell.units = *units;
  for (const char* name : {"i", "o", "f", "g"}) {
    const char* activation = *name == 'g' ? nn::kTanh : nn::kSigmoid;
    std::optional<LinearForm> form = GateForm(m.program(), m[name], activation, cell.units);
    if (!form || form->terms.size() != 2) return std::nullopt;
    if (cell.gates.empty()) ChooseState(cell, *form);
    if (!OfTheSame(cell, *form)) return std::nullopt;
    cell.gates.push_back(std::move(*form));
  }
  if (cell.gates[0].Of(cell.h)->rows != cell.units || !SameRows(cell, m["c0"])) return std::nullopt;
  return cell;
}

/// Whoever reads the new state of the cell stands behind the op that will give it.
bool StateIsReadLater(const RuleMatch& m) {
  for (const OpOperand use : m["c1"].uses()) {
    const Operation* owner = use.owner();
    if (std::find(m.ops().begin(), m.ops().end(), owner) != m.ops().end()) continue;
    if (owner->block() != m.root()->block() || !m.root()->IsBefore(owner)) return false;
  }
  return true;
}

void ReplaceOutside(const RuleMatch& m, Rewriter& rewriter, Value from, Value to) {
  std::vector<OpOperand> uses;
  for (const OpOperand use : from.uses()) {
    if (std::find(m.ops().begin(), m.ops().end(), use.owner()) == m.ops().end())
      uses.push_back(use);
  }
  for (const OpOperand use : uses) {
    Operation* owner = use.owner();
    for (size_t i = 0; i < owner->num_operands(); ++i) {
      if (owner->operand(i) == from) rewriter.SetOperand(owner, i, to);
    }
  }
}

Value MakeLstm(const RuleMatch& m, Rewriter& rewriter, Parameters& parameters) {
  const Cell cell = *LstmCell(m);
  const ElementType type = cell.x.type().cast<AnyTensorType>().element();
  const auto parameter = [&](const char* base, const Tensor& data) {
    return parameters.Get(rewriter, base, data, m.root());
  };
  const Value operands[] = {Apply(rewriter, nn::kUnsqueeze, cell.x, 0),
                            parameter("lstm.w", Weights(cell, cell.x, type)),
                            parameter("lstm.r", Weights(cell, cell.h, type)),
                            parameter("lstm.b", Biases(cell, {}, type)),
                            Value(),
                            Apply(rewriter, nn::kUnsqueeze, cell.h, 0),
                            Apply(rewriter, nn::kUnsqueeze, m["c0"], 0)};
  const NamedAttribute size = rewriter.Named("hidden_size", rewriter.Attr(cell.units));
  const Operation* op = rewriter.Create(nn::kLstm, operands, {&size, 1}, 3);
  const Value h1 = Apply(rewriter, nn::kSqueeze, op->result(1), 0);
  const Value c1 = Apply(rewriter, nn::kSqueeze, op->result(2), 0);
  ReplaceOutside(m, rewriter, m["c1"], c1);
  return h1;
}

// ---- GRU ----

/// (1 - z) n + z h, also as n + z (h - n) and n - z n + z h.
Pat GruPattern() {
  const Pat z = Var("z"), h = Var("h"), n = Call(nn::kTanh, {Var("p")}).As("n");
  const Pat kept = Product(z, h);
  return Either({Sum(Product(Call(nn::kSub, {Scalar(1), z}), n), kept),
                 Sum(n, Product(z, Call(nn::kSub, {h, n}))),
                 Sum(Call(nn::kSub, {n, Product(z, n)}), kept)});
}

/// The candidate: x W + b + r (h R + b'), or x W + (r h) R + b.
struct Candidate {
  LinearForm input;
  LinearForm state;  ///< of h
  Value r;
  bool reset_after = false;
};

std::optional<Candidate> ResetAfter(const RuleMatch& m, int64_t units) {
  const Operation* sum = m["p"].defining_op();
  if (sum == nullptr || sum->name() != nn::kAdd) return std::nullopt;
  for (const size_t side : {1, 0}) {
    const Operation* product = sum->operand(side).defining_op();
    if (product == nullptr || product->name() != nn::kMul) continue;
    for (const size_t reset : {0, 1}) {
      const auto state = AsLinearForm(m.program(), product->operand(1 - reset), 0, units);
      const auto input = AsLinearForm(m.program(), sum->operand(1 - side), 0, units);
      if (!state || !input || state->terms.size() != 1 || state->terms[0].x != m["h"]) continue;
      return Candidate{*input, *state, product->operand(reset), true};
    }
  }
  return std::nullopt;
}

std::optional<Candidate> ResetBefore(const RuleMatch& m, int64_t units) {
  std::optional<LinearForm> form = AsLinearForm(m.program(), m["p"], 0, units);
  if (!form) return std::nullopt;
  for (size_t i = 0; i < form->terms.size(); ++i) {
    const Operation* product = form->terms[i].x.defining_op();
    if (product == nullptr || product->name() != nn::kMul) continue;
    for (const size_t side : {0, 1}) {
      if (product->operand(side) != m["h"]) continue;
      Candidate candidate{*form, *form, product->operand(1 - side), false};
      candidate.state.terms = {form->terms[i]};
      candidate.state.terms[0].x = m["h"];
      candidate.state.bias.assign(static_cast<size_t>(units), 0.0);
      candidate.input.terms.erase(candidate.input.terms.begin() + static_cast<std::ptrdiff_t>(i));
      return candidate;
    }
  }
  return std::nullopt;
}

struct GruParts {
  Cell cell;
  std::vector<double> state_bias;  ///< of the candidate
  bool reset_after = false;
};

std::optional<GruParts> GruCell(const RuleMatch& m) {
  const std::optional<int64_t> units = UnitsOf(m["h"]);
  if (!units) return std::nullopt;
  std::optional<Candidate> candidate = ResetAfter(m, *units);
  if (!candidate) candidate = ResetBefore(m, *units);
  if (!candidate || candidate->input.terms.size() != 1) return std::nullopt;
  GruParts parts;
  parts.cell.x = candidate->input.terms[0].x;
  parts.cell.h = m["h"];
  parts.cell.units = *units;
  for (const Value gate : {m["z"], candidate->r}) {
    std::optional<LinearForm> form = GateForm(m.program(), gate, nn::kSigmoid, *units);
    if (!form || !OfTheSame(parts.cell, *form)) return std::nullopt;
    parts.cell.gates.push_back(std::move(*form));
  }
  candidate->input.terms.push_back(candidate->state.terms[0]);
  parts.cell.gates.push_back(candidate->input);
  if (parts.cell.gates[2].Of(m["h"])->rows != *units || !SameRows(parts.cell, m["h"])) {
    return std::nullopt;
  }
  parts.state_bias = candidate->state.bias;
  parts.reset_after = candidate->reset_after;
  return parts;
}

Value MakeGru(const RuleMatch& m, Rewriter& rewriter, Parameters& parameters) {
  const GruParts parts = *GruCell(m);
  const Cell& cell = parts.cell;
  const ElementType type = cell.x.type().cast<AnyTensorType>().element();
  const auto parameter = [&](const char* base, const Tensor& data) {
    return parameters.Get(rewriter, base, data, m.root());
  };
  const Value operands[] = {Apply(rewriter, nn::kUnsqueeze, cell.x, 0),
                            parameter("gru.w", Weights(cell, cell.x, type)),
                            parameter("gru.r", Weights(cell, cell.h, type)),
                            parameter("gru.b", Biases(cell, parts.state_bias, type)),
                            Value(),
                            Apply(rewriter, nn::kUnsqueeze, cell.h, 0)};
  const NamedAttribute attributes[] = {
      rewriter.Named("hidden_size", rewriter.Attr(cell.units)),
      rewriter.Named("linear_before_reset", rewriter.Attr(parts.reset_after))};
  const Operation* op = rewriter.Create(nn::kGru, operands, attributes, 2);
  return Apply(rewriter, nn::kSqueeze, op->result(1), 0);
}

}  // namespace

/// A cell is a sequence of one step.
class FuseRecurrentPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Parameters parameters;
    std::vector<Rule> rules;
    rules.push_back(Rule("lstm-cell")
                        .Match(LstmPattern())
                        .Where([](const RuleMatch& m) { return LstmCell(m).has_value(); },
                               "each gate is an activation of x W + h R + b with constant weights")
                        .Where(StateIsReadLater, "the state is read after the output is computed")
                        .Replace([&](const RuleMatch& m, Rewriter& rewriter) {
                          return MakeLstm(m, rewriter, parameters);
                        }));
    rules.push_back(Rule("gru-cell")
                        .Match(GruPattern())
                        .Where([](const RuleMatch& m) { return GruCell(m).has_value(); },
                               "each gate is an activation of x W + h R + b with constant weights")
                        .Replace([&](const RuleMatch& m, Rewriter& rewriter) {
                          return MakeGru(m, rewriter, parameters);
                        }));
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(fuse_recurrent, FuseRecurrentPass)
    .Doc("recognizes LSTM and GRU cells written out and makes each a sequence of one step")
    .Details(
        "Whatever the gates are computed by: one product for all or one for each, inputs and state "
        "apart or concatenated, biases in any place, activations before or after the gates are cut "
        "apart; reset before or after the product with the state.");

}  // namespace lathe
