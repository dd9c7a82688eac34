// Gradients of recurrent layers: through their steps, unrolled, which then are the layer.
#include <string_view>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/rnn.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/context.h"
#include "src/dialect/nn/grad_parts.h"
#include "src/dialect/nn/grad_util.h"
#include "src/dialect/nn/rnn_activation.h"

namespace lathe::nn {
namespace {

enum Operand : size_t { kX, kW, kR, kB, kLens, kH, kC, kP };

// What the three layers have in common.
struct Layer {
  int64_t gates;
  size_t directions, per_direction;
  bool reverse, batch_first;
  std::optional<double> clip;
  std::vector<ActivationName> activations;
};

template <class OpT>
Layer LayerOf(const OpT& op, int64_t gates, const std::vector<std::string>& usual) {
  const size_t directions = op.direction() == "bidirectional" ? 2 : 1;
  std::vector<std::string> names = op.activations().value_or(std::vector<std::string>{});
  const size_t count = usual.size() * directions;
  while (names.size() < count) names.insert(names.end(), usual.begin(), usual.end());
  names.resize(count);
  return {gates,
          directions,
          usual.size(),
          op.direction() == "reverse",
          op.layout(),
          op.clip(),
          ActivationNamesOf(names, op.activation_alpha().value_or(std::vector<double>{}),
                            op.activation_beta().value_or(std::vector<double>{}))};
}

Term Activate(const ActivationName& f, const Term& x) {
  const std::string_view name = f.name;
  if (name == "Sigmoid") return Sigmoid(x);
  if (name == "Tanh") return Tanh(x);
  if (name == "Relu") return Greatest(x, 0);
  if (name == "Affine") return x * f.alpha + f.beta;
  if (name == "ScaledTanh") return Tanh(x * f.beta) * f.alpha;
  if (name == "HardSigmoid") return Greatest(Least(x * f.alpha + f.beta, 1), 0);
  if (name == "Softsign") return x / (Abs(x) + 1);
  if (name == "Softplus") return Softplus(x);
  if (name == "ThresholdedRelu") {
    return Select(Less(x.Number(f.alpha), x), x, x.Number(0));
  }
  const Term below = name == "Elu" ? Expm1(Least(x, 0)) * f.alpha : x * f.alpha;  // or LeakyRelu
  return Select(Less(x, x.Number(0)), below, x);
}

Value Row(Builder& b, Value x, int64_t i) {
  return GatherOp::Create(b, x, IntConstant(b, i)).output();
}

// Equal parts along an axis.
std::vector<Term> Parts(Builder& b, Value x, size_t count, int64_t axis) {
  const auto split = SplitOp::Create(b, x, Value(), count,
                                     {.axis = axis, .num_outputs = static_cast<int64_t>(count)});
  std::vector<Term> parts;
  for (size_t i = 0; i < count; ++i) parts.emplace_back(b, split->result(i));
  return parts;
}

Value Permuted(Builder& b, Value x, std::vector<int64_t> perm) {
  return TransposeOp::Create(b, x, {.perm = std::move(perm)}).transposed();
}

Value Stacked(Builder& b, const std::vector<Value>& pieces, int64_t axis) {
  const int64_t axes[] = {axis};
  std::vector<Value> all;
  for (const Value piece : pieces) {
    all.push_back(UnsqueezeOp::Create(b, piece, IntsConstant(b, axes)).expanded());
  }
  return ConcatOp::Create(b, all, {.axis = axis}).concat_result();
}

// One direction of a layer: its weights, and its state [N, H] while it runs.
struct Direction {
  Builder& b;
  const Layer& layer;
  std::span<const ActivationName> f;
  std::vector<Term> r;   // [G * H, H]; of gru: those of both gates, and the rest
  std::vector<Term> rb;  // of gru what belongs to r, [G * H], or nothing; else it is in x
  std::vector<Term> p;   // [H] each, or nothing
  Term h, c;

  Term Clipped(const Term& x) const {
    return layer.clip ? Greatest(Least(x, *layer.clip), -*layer.clip) : x;
  }
  Term Activated(size_t which, const Term& x) const { return Activate(f[which], Clipped(x)); }
  // [N, G * H] from the state, by weights number i.
  Term Recurrent(const Term& state, size_t i) const {
    return {b, MatmulOp::Create(b, state, r[i], {.transpose_y = true}).z()};
  }
  Term Biased(const Term& sum, size_t i) const { return rb.empty() ? sum : sum + rb[i]; }
};

using Step = void (*)(Operation* op, Direction& d, const Term& x);

void RnnStep(Operation*, Direction& d, const Term& x) {
  d.h = d.Activated(0, x + d.Recurrent(d.h, 0));
}

void GruStep(Operation* op, Direction& d, const Term& x) {
  const std::vector<Term> own = Parts(d.b, x, 3, 1);
  const std::vector<Term> gates = Parts(d.b, d.Biased(d.Recurrent(d.h, 0), 0), 2, 1);
  const Term z = d.Activated(0, own[0] + gates[0]), r = d.Activated(0, own[1] + gates[1]);
  const Term recurrent = GruOp(op).linear_before_reset() ? r * d.Biased(d.Recurrent(d.h, 1), 1)
                                                         : d.Biased(d.Recurrent(r * d.h, 1), 1);
  const Term n = d.Activated(1, own[2] + recurrent);
  d.h = (1 - z) * n + z * d.h;
}

void LstmStep(Operation* op, Direction& d, const Term& x) {
  const std::vector<Term> sums = Parts(d.b, x + d.Recurrent(d.h, 0), 4, 1);
  const auto gate = [&](size_t g, size_t peephole, const Term& cell) {
    return d.p.empty() ? sums[g] : sums[g] + d.p[peephole] * cell;
  };
  const Term i = d.Activated(0, gate(0, 0, d.c));
  const Term f = LstmOp(op).input_forget() ? 1 - i : d.Activated(0, gate(2, 2, d.c));
  d.c = f * d.c + i * d.Activated(1, sums[3]);
  d.h = d.Activated(0, gate(1, 1, d.c)) * Activate(d.f[2], d.c);
}

// A layer as the operations of all its steps.
class Unrolled {
 public:
  Unrolled(Operation* op, const Layer& layer, Step step, Builder& b,
           std::span<const Value> operands)
      : op_(op), layer_(layer), step_(step), b_(b), operands_(operands) {
    steps_ = KnownExtent(op->operand(kX), layer.batch_first ? 1 : 0);
    hidden_ = KnownShape(op->operand(kR))[2];
    lens_ = Get(kLens);
  }

  std::vector<Value> Results() {
    if (steps_ == 0) FailGradient(op_, "has no gradient over no steps");
    const Value x = layer_.batch_first ? Permuted(b_, Get(kX), {1, 0, 2}) : Get(kX);
    std::vector<Value> y, h, c;
    for (size_t i = 0; i < layer_.directions; ++i) {
      Direction d = Start(static_cast<int64_t>(i));
      y.push_back(Run(d, static_cast<int64_t>(i), x));
      h.push_back(d.h);
      c.push_back(d.c);
    }
    const Value all = Stacked(b_, y, 1);  // [S, D, N, H]
    return {layer_.batch_first ? Permuted(b_, all, {2, 0, 1, 3}) : all, States(h), States(c)};
  }

 private:
  Value Get(size_t i) const { return i < operands_.size() ? operands_[i] : Value(); }

  // Slice `i` of an operand with a dim for directions, or null.
  Value Own(size_t operand, int64_t i) { return Get(operand) ? Row(b_, Get(operand), i) : Value(); }

  Term StateOf(size_t operand, int64_t i) {
    const Value given = Get(operand);
    if (!given) {
      const ElementType type = Get(kX).type().cast<AnyTensorType>().element();
      const Tensor zero = Cast(Tensor::Of<double>({1}, {0}), type);
      const int64_t shape[] = {1, hidden_};  // of all sequences
      return {b_, ConstantOfShapeOp::Create(b_, IntsConstant(b_, shape), {.value = zero}).output()};
    }
    return {b_, Row(b_, layer_.batch_first ? Permuted(b_, given, {1, 0, 2}) : given, i)};
  }

  // Of `count` parts of the first axis the first two and the others, if `apart`.
  std::vector<Term> Weights(Value all, int64_t count, bool apart) {
    if (!apart) return {Term(b_, all)};
    const int64_t sizes[] = {2 * hidden_, (count - 2) * hidden_};
    const auto split = SplitOp::Create(b_, all, IntsConstant(b_, sizes), 2, {.axis = 0});
    return {Term(b_, split->result(0)), Term(b_, split->result(1))};
  }

  Direction Start(int64_t i) {
    const std::span<const ActivationName> f(layer_.activations);
    const bool apart = op_->isa<GruOp>();
    Direction d{b_,
                layer_,
                f.subspan(static_cast<size_t>(i) * layer_.per_direction, layer_.per_direction),
                Weights(Own(kR, i), layer_.gates, apart),
                {},
                {},
                StateOf(kH, i),
                StateOf(kC, i)};
    if (Own(kB, i) && apart) d.rb = Weights(Parts(b_, Own(kB, i), 2, 0)[1], layer_.gates, apart);
    if (Own(kP, i)) d.p = Parts(b_, Own(kP, i), 3, 0);
    return d;
  }

  // The outputs [S, N, H] of a direction. A sequence that has ended, or that has not begun from
  // behind, keeps its state and gives zeros.
  Value Run(Direction& d, int64_t i, Value x) {
    Term all(b_, MatmulOp::Create(b_, x, Own(kW, i), {.transpose_y = true}).z());
    if (Own(kB, i)) {
      const std::vector<Term> halves = Parts(b_, Own(kB, i), 2, 0);
      all = all + (d.rb.empty() ? halves[0] + halves[1] : halves[0]);
    }
    const int64_t first[] = {0};
    const std::vector<Term> steps = Parts(b_, all, static_cast<size_t>(steps_), 0);
    const bool backwards = layer_.reverse || i == 1;
    std::vector<Value> y(static_cast<size_t>(steps_));
    for (int64_t k = 0; k < steps_; ++k) {
      const int64_t t = backwards ? steps_ - 1 - k : k;
      const Term h = d.h, c = d.c;
      const Value x_t =
          SqueezeOp::Create(b_, steps[static_cast<size_t>(t)], IntsConstant(b_, first)).squeezed();
      step_(op_, d, Term(b_, x_t));
      Term out = d.h;
      if (lens_) {
        const Value active = IsActive(t);
        out = Select(active, d.h, d.h.Number(0));
        d.h = Select(active, d.h, h);
        d.c = Select(active, d.c, c);
      }
      y[static_cast<size_t>(t)] = out;
    }
    return Stacked(b_, y, 0);
  }

  // [N, 1]: whether a sequence has a step t.
  Value IsActive(int64_t t) {
    const Term lens(b_, lens_);
    const Value active = Less(lens.Number(static_cast<double>(t)), lens);
    const int64_t axes[] = {1};
    return UnsqueezeOp::Create(b_, active, IntsConstant(b_, axes)).expanded();
  }

  Value States(const std::vector<Value>& of_directions) {
    return Stacked(b_, of_directions, layer_.batch_first ? 1 : 0);
  }

  Operation* op_;
  const Layer& layer_;
  Step step_;
  Builder& b_;
  std::span<const Value> operands_;
  int64_t steps_ = 0, hidden_ = 0;
  Value lens_;
};

Operation* LastBefore(const Builder& b) {
  return b.insertion_point() != nullptr ? b.insertion_point()->prev() : b.block()->back();
}

// Moves what stands behind `before`, or behind nothing, up to `last` to before `op`.
void MoveBefore(Operation* op, Operation* before, const Operation* last, const Block* block) {
  Operation* part = before == nullptr ? block->front() : before->next();
  for (bool more = true; more;) {
    Operation* const next = part->next();
    more = part != last;
    part->MoveBefore(op);
    part = next;
  }
}

// The steps take the place of the layer: nothing is computed twice.
std::vector<Value> GradOfLayer(Operation* op, const Layer& layer, Step step,
                               std::span<const Value> grads, Builder& b) {
  Operation* const before = LastBefore(b);
  const Operation* last = nullptr;
  std::vector<Value> results;
  std::vector<Value> gradients =
      GradByParts(op, grads, b, [&](Builder& inner, std::span<const Value> operands) {
        results = Unrolled(op, layer, step, inner, operands).Results();
        last = LastBefore(inner);
        return results;
      });
  MoveBefore(op, before, last, b.block());
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (!op->result(i).use_empty()) {
      op->result(i).ReplaceAllUsesWith(Typed(results[i], op->result(i)));
    }
  }
  return gradients;
}

}  // namespace

std::vector<Value> RnnOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return GradOfLayer(o, LayerOf(RnnOp(o), 1, {"Tanh"}), RnnStep, g, b);
}

std::vector<Value> GruOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return GradOfLayer(o, LayerOf(GruOp(o), 3, {"Sigmoid", "Tanh"}), GruStep, g, b);
}

std::vector<Value> LstmOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return GradOfLayer(o, LayerOf(LstmOp(o), 4, {"Sigmoid", "Tanh", "Tanh"}), LstmStep, g, b);
}

}  // namespace lathe::nn
