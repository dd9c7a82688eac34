#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "src/transform/slices.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

constexpr size_t kX = 0, kLengths = 4, kH = 5, kC = 6;  // operands
constexpr size_t kY = 0, kLastH = 1, kLastC = 2;        // results

Value OperandOf(const Operation* op, size_t i) {
  return i < op->num_operands() ? op->operand(i) : Value();
}

const Operation* MakerNamed(Value value, std::string_view name) {
  const Operation* maker = value ? value.defining_op() : nullptr;
  return maker != nullptr && maker->name() == name ? maker : nullptr;
}

/// The value, through an unsqueeze of its squeeze.
Value ThroughSqueeze(Value value) {
  const Operation* outer = MakerNamed(value, nn::kUnsqueeze);
  const Operation* inner = outer == nullptr ? nullptr : MakerNamed(outer->operand(0), nn::kSqueeze);
  return inner != nullptr && SameKnownType(inner->operand(0), value) ? inner->operand(0) : value;
}

bool IsLayer(const Operation* op) { return op->name() == nn::kLstm || op->name() == nn::kGru; }

/// A layer that runs forward over all of its steps, whose number is known.
bool IsPlain(const Operation* op) {
  if (!IsLayer(op)) return false;
  const auto direction = op->attribute("direction").dyn_cast<StrAttribute>();
  const auto layout = op->attribute("layout").dyn_cast<BoolAttribute>();
  const auto x = OperandOf(op, kX).type().dyn_cast<AnyTensorType>();
  return direction && direction.value() == "forward" && !(layout && layout.value()) &&
         !OperandOf(op, kLengths) && x && x.has_rank() && x.rank() == 3 &&
         x.dims()[0].is_constant() && x.dims()[0].value() > 0;
}

int64_t StepsOf(const Operation* op) {
  return op->operand(kX).type().cast<AnyTensorType>().dims()[0].value();
}

/// `op` goes on where the layer before it, which is returned, has stopped.
Operation* Predecessor(const Operation* op) {
  const Value h = ThroughSqueeze(OperandOf(op, kH));
  Operation* before = h && h.index() == kLastH ? h.defining_op() : nullptr;
  if (before == nullptr || before->info() != op->info() || before->block() != op->block() ||
      !IsPlain(before) || before->attributes() != op->attributes() || OperandOf(op, 7) ||
      OperandOf(before, 7)) {
    return nullptr;
  }
  for (const size_t weight : {1, 2, 3}) {
    if (OperandOf(op, weight) != OperandOf(before, weight)) return nullptr;
  }
  if (op->name() == nn::kLstm) {
    const Value c = ThroughSqueeze(OperandOf(op, kC));
    if (!c || c.defining_op() != before || c.index() != kLastC) return nullptr;
  }
  return before;
}

/// What is read of the state c of a step is read by the next step only.
bool StateIsInner(const Operation* op, const Operation* next) {
  if (op->num_results() <= kLastC) return true;
  std::vector<Value> forms{op->result(kLastC)};
  for (size_t i = 0; i < forms.size(); ++i) {
    for (const OpOperand use : forms[i].uses()) {
      const Operation* owner = use.owner();
      const bool reshapes = owner->name() == nn::kSqueeze || owner->name() == nn::kUnsqueeze;
      if (owner == next && use.index() == kC) continue;
      if (!reshapes || use.index() != 0 || forms.size() > 8) return false;
      forms.push_back(owner->result(0));
    }
  }
  return true;
}

using Chain = std::vector<Operation*>;

class Joiner {
 public:
  Joiner(Program& program, Pass* pass) : rewriter_(program, pass) {}

  int64_t Run(Block* block) {
    int64_t joined = 0;
    for (const Chain& whole : Chains(block)) {
      for (const Chain& chain : Independent(whole)) joined += Join(chain) ? 1 : 0;
    }
    return joined;
  }

 private:
  static std::vector<Chain> Chains(Block* block) {
    std::vector<Chain> chains;
    std::unordered_map<const Operation*, size_t> ends;  // looked up only
    for (Operation* op = block->front(); op != nullptr; op = op->next()) {
      if (!IsPlain(op)) continue;
      Operation* before = Predecessor(op);
      const auto at = before == nullptr ? ends.end() : ends.find(before);
      if (at == ends.end() || !StateIsInner(before, op)) {
        ends[op] = chains.size();
        chains.push_back({op});
      } else {
        const size_t index = at->second;
        ends.erase(at);
        ends[op] = index;
        chains[index].push_back(op);
      }
    }
    return chains;
  }

  /// Cut where the input of a step depends on a step before it.
  static std::vector<Chain> Independent(const Chain& chain) {
    std::vector<Chain> parts{{chain.front()}};
    std::unordered_set<const Operation*> dependent{chain.front()};  // looked up only
    for (size_t k = 1; k < chain.size(); ++k) {
      for (Operation* op = chain[k - 1]->next(); op != chain[k]; op = op->next()) {
        if (ReadsAny(op, dependent)) dependent.insert(op);
      }
      const Operation* maker = chain[k]->operand(kX).defining_op();
      if (maker != nullptr && dependent.count(maker) != 0) {
        parts.emplace_back();
        dependent.clear();
      }
      parts.back().push_back(chain[k]);
      dependent.insert(chain[k]);
    }
    return parts;
  }

  static bool ReadsAny(const Operation* op, const std::unordered_set<const Operation*>& makers) {
    if (op->num_regions() != 0) return true;
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Operation* maker = op->operand(i) ? op->operand(i).defining_op() : nullptr;
      if (maker != nullptr && makers.count(maker) != 0) return true;
    }
    return false;
  }

  bool Join(const Chain& chain) {
    if (chain.size() < 2 || !HoistInputs(chain)) return false;
    std::vector<Value> made;
    {
      const Rewriter::Replacing scope(rewriter_, chain);
      rewriter_.SetInsertionPoint(chain.front());
      made = MakeJoined(chain);
    }
    rewriter_.Applied(chain.front(), StrCat("joined ", chain.size(), " steps"));
    ReplaceResults(chain, made);
    return true;
  }

  /// Moves what the inputs of later steps are computed by in front of the first step.
  bool HoistInputs(const Chain& chain) {
    std::vector<Operation*> needed;
    std::unordered_set<const Operation*> seen;  // looked up only
    const auto need = [&](Value value) {
      Operation* maker = value ? value.defining_op() : nullptr;
      if (maker != nullptr && maker->block() == chain.front()->block() &&
          chain.front()->IsBefore(maker) && seen.insert(maker).second) {
        needed.push_back(maker);
      }
    };
    for (const Operation* step : chain) need(step->operand(kX));
    for (size_t i = 0; i < needed.size(); ++i) {
      if (!IsMergeable(needed[i])) return false;
      for (size_t k = 0; k < needed[i]->num_operands(); ++k) need(needed[i]->operand(k));
    }
    std::sort(needed.begin(), needed.end(),
              [](const Operation* a, const Operation* b) { return a->IsBefore(b); });
    for (Operation* op : needed) rewriter_.MoveBefore(op, chain.front());
    return true;
  }

  std::vector<Value> MakeJoined(const Chain& chain) {
    const Operation* first = chain.front();
    std::vector<Value> operands;
    for (size_t i = 0; i < first->num_operands(); ++i) operands.push_back(first->operand(i));
    operands[kX] = Sequence(chain);
    const Operation* op = rewriter_.Create(first->name(), operands, first->attributes().entries(),
                                           first->name() == nn::kLstm ? 3 : 2);
    std::vector<Value> results;
    for (size_t i = 0; i < op->num_results(); ++i) results.push_back(op->result(i));
    return results;
  }

  /// Input of all steps: the sequence that they were cut from, or the steps joined.
  Value Sequence(const Chain& chain) {
    std::vector<Value> inputs;
    for (const Operation* step : chain) inputs.push_back(step->operand(kX));
    if (const std::optional<SliceOf> whole = CutFrom(inputs)) {
      if (whole->axis == 0) return whole->whole;
      const std::vector<int64_t> order =
          whole->axis == 1 ? std::vector<int64_t>{1, 0, 2} : std::vector<int64_t>{2, 0, 1};
      const NamedAttribute perm = rewriter_.Named("perm", rewriter_.Attr(order));
      return rewriter_.Create(nn::kTranspose, {&whole->whole, 1}, {&perm, 1})->result(0);
    }
    const NamedAttribute axis = rewriter_.Named("axis", rewriter_.Attr(int64_t{0}));
    return rewriter_.Create(nn::kConcat, inputs, {&axis, 1})->result(0);
  }

  /// Whether the inputs are one after another all of one value of rank 3.
  std::optional<SliceOf> CutFrom(const std::vector<Value>& inputs) {
    std::optional<SliceOf> all;
    for (const Value input : inputs) {
      const std::optional<SliceOf> piece = PieceOf(input);
      if (!piece || piece->step != 1 || RankOf(piece->whole) != 3) return std::nullopt;
      if (!all) {
        all = SliceOf{piece->whole, piece->axis, 0, 0, 1};
      }
      if (piece->whole != all->whole || piece->axis != all->axis || piece->begin != all->count) {
        return std::nullopt;
      }
      all->count += piece->count;
    }
    const Dim& extent =
        all->whole.type().cast<AnyTensorType>().dims()[static_cast<size_t>(all->axis)];
    return extent.IsConstant(all->count) ? all : std::nullopt;
  }

  /// A step [1, N, I] cut along the first axis, or along another one that was then dropped.
  std::optional<SliceOf> PieceOf(Value input) {
    const Program& program = rewriter_.program();
    if (const auto slice = AsSlice(program, input)) {
      return slice->axis == 0 ? slice : std::nullopt;
    }
    const Operation* unsqueeze = MakerNamed(input, nn::kUnsqueeze);
    if (unsqueeze == nullptr || !IsAxes(unsqueeze, 0)) return std::nullopt;
    const Value step = unsqueeze->operand(0);
    if (const Operation* squeeze = MakerNamed(step, nn::kSqueeze)) {
      const auto slice = AsSlice(program, squeeze->operand(0));
      return slice && slice->count == 1 && IsAxes(squeeze, slice->axis) ? slice : std::nullopt;
    }
    const Operation* gather = MakerNamed(step, nn::kGather);
    if (gather == nullptr || RankOf(gather->operand(1)) != 0) return std::nullopt;
    const Tensor* index = ConstantValue(program, gather->operand(1));
    const auto attribute = gather->attribute("axis").dyn_cast<IntAttribute>();
    const auto axis = AxisFromFront(attribute ? attribute.value() : 0, gather->operand(0));
    if (index == nullptr || !axis) return std::nullopt;
    return SliceOf{gather->operand(0), *axis, ToInt64s(*index).at(0), 1, 1};
  }

  bool IsAxes(const Operation* op, int64_t axis) {
    const Tensor* axes = ConstantValue(rewriter_.program(), OperandOf(op, 1));
    if (axes == nullptr || axes->num_elements() != 1) return false;
    const Value ranked = op->name() == nn::kSqueeze ? op->operand(0) : op->result(0);
    return AxisFromFront(ToInt64s(*axes)[0], ranked) == axis;
  }

  void ReplaceResults(const Chain& chain, const std::vector<Value>& made) {
    int64_t begin = 0;
    for (Operation* step : chain) {
      const int64_t end = begin + StepsOf(step);
      rewriter_.SetInsertionPoint(step);
      rewriter_.set_location(step->location());
      if (!step->result(kY).use_empty()) {
        rewriter_.ReplaceAllUses(step->result(kY), StepsFrom(made[kY], begin, end));
      }
      const bool last = step == chain.back();
      if (step->num_results() > kLastH && !step->result(kLastH).use_empty()) {
        const Value h = last ? made[kLastH] : Squeezed(StepsFrom(made[kY], end - 1, end));
        rewriter_.ReplaceAllUses(step->result(kLastH), h);
      }
      if (last && step->num_results() > kLastC) {
        rewriter_.ReplaceAllUses(step->result(kLastC), made[kLastC]);
      }
      begin = end;
    }
    rewriter_.EraseDead(chain.back());  // and with it the steps before, which only it still read
  }

  Value Ints(int64_t number) {
    return rewriter_.Constant(Tensor::Of<int64_t>({1}, std::vector<int64_t>{number}));
  }
  Value StepsFrom(Value y, int64_t begin, int64_t end) {
    const Value operands[] = {y, Ints(begin), Ints(end), Ints(0)};
    return rewriter_.Create(nn::kSlice, operands)->result(0);
  }
  Value Squeezed(Value step) {
    const Value operands[] = {step, Ints(1)};
    return rewriter_.Create(nn::kSqueeze, operands)->result(0);
  }

  Rewriter rewriter_;
};

}  // namespace

class JoinRecurrentStepsPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Count("joined", Joiner(graph.program(), this).Run(graph.block()));
  }
};

REGISTER_PASS(join_recurrent_steps, JoinRecurrentStepsPass)
    .Doc("makes LSTM and GRU steps that follow one another one sequence")
    .Details(
        "For steps with the same weights, each of which starts from the states of the one before, "
        "and whose inputs do not depend on one another. The inputs are joined, or are the sequence "
        "that they were cut from.");

}  // namespace lathe
