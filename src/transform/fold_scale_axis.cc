#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/scale_axis_interface.h"
#include "lathe/ir/context.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/fold.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/shared_chunks.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

bool IsOneOf(const Operation* op, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return op->name() == n; });
}

}  // namespace

/// Moves a multiplication by constants per channel into the weights of the convolution or dense
/// layer before it (backward) or after it (forward). A plan is made for the whole way first, by
/// asking each op (ScaleAxisInterface); only when every path ends in weights is anything changed.
/// Source: NNVM's FoldScaleAxis; spec 16.1 and 16.2 for what may not be moved.
class FoldScaleAxisPass : public Pass {
 public:
  explicit FoldScaleAxisPass(bool forward) : forward_(forward) {}

 protected:
  /// Scales one after the other move one after the other, the one nearest to the weights first.
  void ApplyImpl(Graph& graph) override {
    rewriter_.emplace(graph.program(), this);
    constants_.emplace(graph.program());
    CountReaders(graph.program());
    std::vector<Operation*> multiplications;
    for (Operation& op : *graph.block()) {
      if (IsOneOf(&op, {nn::kMul, nn::kDiv})) multiplications.push_back(&op);
    }
    if (forward_) std::reverse(multiplications.begin(), multiplications.end());
    for (Operation* op : multiplications) TryFold(op);
    DropParameters(graph.program());
  }

 private:
  static constexpr int kMaxSteps = 64;

  /// One op on the way whose operand `operand` becomes `scaled`. Weights, which are large, are not
  /// scaled before the whole way is known.
  struct Step {
    Operation* op;
    size_t operand;
    Tensor scaled;
    std::optional<Scale> scale = {};  ///< of weights
    ChannelLayout channels = {};
  };
  using Plan = std::vector<Step>;

  const Tensor* Constant(Value v) const {
    return v ? ConstantValue(rewriter_->program(), v) : nullptr;
  }
  std::optional<Scale> ScaleOf(Operation* op, size_t side) const;
  void TryFold(Operation* op);
  bool ScaleWeights(Plan& plan);
  void CountReaders(const Program& program);
  void Forget(Operation* source);
  void DropParameters(Program& program);
  void Apply(Operation* op, Value data, Plan& plan);
  bool PlanBackward(Value v, const Scale& scale, Plan& plan, int depth);
  bool PlanForward(Value v, const Scale& scale, Plan& plan, int depth);
  bool Ask(ScaleAxisContext& c, Plan& plan);
  bool Refuse(const Operation* op, std::string why) {
    Missed(op, std::move(why));
    return false;
  }

  bool forward_;
  std::optional<Rewriter> rewriter_;
  std::optional<ProgramConstants> constants_;
  std::unordered_map<std::string_view, size_t> readers_;  ///< of parameters; looked up only
  std::unordered_set<std::string_view> unread_;           ///< looked up only
};

/// What the op multiplies its other operand by, operand `side` being the constant.
std::optional<Scale> FoldScaleAxisPass::ScaleOf(Operation* op, size_t side) const {
  const Value data = op->operand(1 - side);
  const bool divides = op->name() == nn::kDiv;
  if (!SameKnownType(data, op->result(0)) || (divides && side == 0)) return std::nullopt;
  const std::optional<Scale> scale = AsScale(Constant(op->operand(side)), TensorOrNull(data));
  if (!scale || !divides) return scale;
  const Scale inverse = scale->Reciprocal();
  return inverse.IsFinite() ? std::optional(inverse) : std::nullopt;
}

void FoldScaleAxisPass::TryFold(Operation* op) {
  for (size_t side = 0; side < 2; ++side) {
    const std::optional<Scale> scale = ScaleOf(op, side);
    if (!scale) continue;
    const Value data = op->operand(1 - side);
    Plan plan;
    const bool works = forward_ ? PlanForward(op->result(0), *scale, plan, 0)
                                : PlanBackward(data, *scale, plan, 0);
    if (works && ScaleWeights(plan)) return Apply(op, data, plan);
  }
}

bool FoldScaleAxisPass::ScaleWeights(Plan& plan) {
  for (Step& step : plan) {
    if (!step.scale) continue;
    const Tensor& weights = *Constant(step.op->operand(step.operand));
    auto scaled = Scaled(weights, *step.scale, step.channels);
    ReleaseFilePages(weights.bytes());
    if (!scaled) return Refuse(step.op, "its weights would leave the range of their type");
    step.scaled = std::move(*scaled);
  }
  return true;
}

void FoldScaleAxisPass::CountReaders(const Program& program) {
  readers_.clear();
  unread_.clear();
  for (OpWalker w(program.module()); const Operation* op = w.Next();) {
    if (!IsOneOf(op, {builtin::kGetParameter, builtin::kSetParameter})) continue;
    if (const auto name = op->attribute("name").dyn_cast<StrAttribute>()) ++readers_[name.value()];
  }
}

/// Weights in their old form go at once where nobody reads them any more: they may be most of the
/// model, and may be scaled again.
void FoldScaleAxisPass::Forget(Operation* source) {
  if (!source->use_empty() || source->name() != builtin::kGetParameter) return;
  const auto name = source->attribute("name").cast<StrAttribute>();
  rewriter_->Erase(source);
  if (--readers_[name.value()] != 0) return;
  rewriter_->program().parameters().Find(name)->data = Tensor();
  unread_.insert(name.value());
}

void FoldScaleAxisPass::DropParameters(Program& program) {
  if (unread_.empty()) return;
  ParameterMap kept;
  for (const auto& [name, variable] : program.parameters()) {
    if (unread_.count(name.value()) == 0) kept.Insert(name, variable);
  }
  program.parameters() = std::move(kept);
}

void FoldScaleAxisPass::Apply(Operation* op, Value data, Plan& plan) {
  for (Step& step : plan) {
    rewriter_->SetInsertionPoint(step.op);
    const Location both[] = {step.op->location(), op->location()};
    step.op->set_location(Location::Fused(rewriter_->context(), both));
    rewriter_->set_location(step.op->location());
    Operation* old = step.op->operand(step.operand).defining_op();
    const auto name = old->attribute("name").dyn_cast<StrAttribute>();
    const std::string base = name ? std::string(name.value()) : "scaled";
    const Value made = rewriter_->Parameter(base, std::move(step.scaled));
    ++readers_[made.defining_op()->attribute("name").cast<StrAttribute>().value()];
    rewriter_->SetOperand(step.op, step.operand, made);
    Forget(old);
  }
  Applied(op, StrCat("moved into ", plan.size(), " weights"));
  Count("folded");
  rewriter_->ReplaceAllUses(op->result(0), data);
  rewriter_->EraseDead(op);
}

/// What the op answers becomes part of the plan; what it refuses is a remark.
bool FoldScaleAxisPass::Ask(ScaleAxisContext& c, Plan& plan) {
  const auto op = c.op()->dyn_cast<ScaleAxisInterface>();
  if (!op) return false;
  if (!op.ScaleAxis(c)) return !c.refusal().empty() && Refuse(c.op(), c.refusal());
  for (const auto& [operand, scale, channels] : c.scaled_constants()) {
    plan.push_back({c.op(), operand, Tensor(), scale, channels});
  }
  for (const auto& [operand, value] : c.constants()) plan.push_back({c.op(), operand, value});
  return true;
}

/// `v` can be made scale * v by changing weights before it.
bool FoldScaleAxisPass::PlanBackward(Value v, const Scale& scale, Plan& plan, int depth) {
  Operation* op = v.defining_op();
  if (op == nullptr || depth > kMaxSteps || op->num_operands() == 0) return false;
  if (!v.has_one_use()) return Refuse(op, "its result has another reader");
  ScaleAxisContext c(op, v.index(), scale, ScaleAxisContext::Direction::kBackward, *constants_);
  return Ask(c, plan) && std::ranges::all_of(c.operands(), [&](const auto& operand) {
           return PlanBackward(op->operand(operand.first), operand.second, plan, depth + 1);
         });
}

/// Every reader of `v` = scale * x can read x instead by changing weights after it.
bool FoldScaleAxisPass::PlanForward(Value v, const Scale& scale, Plan& plan, int depth) {
  if (depth > kMaxSteps || v.use_empty()) return false;
  for (const OpOperand use : v.uses()) {
    Operation* user = use.owner();
    ScaleAxisContext c(user, use.index(), scale, ScaleAxisContext::Direction::kForward,
                       *constants_);
    const bool planned =
        Ask(c, plan) && std::ranges::all_of(c.results(), [&](const auto& result) {
          return PlanForward(user->result(result.first), result.second, plan, depth + 1);
        });
    if (!planned) return Refuse(user, "it needs the scaled value itself");
  }
  return true;
}

class BackwardFoldScaleAxisPass : public FoldScaleAxisPass {
 public:
  BackwardFoldScaleAxisPass() : FoldScaleAxisPass(false) {}
};
class ForwardFoldScaleAxisPass : public FoldScaleAxisPass {
 public:
  ForwardFoldScaleAxisPass() : FoldScaleAxisPass(true) {}
};

REGISTER_PASS(fold_scale_axis_backward, BackwardFoldScaleAxisPass)
    .Doc("moves a scale per channel into the weights of the conv or dense layer before it");
REGISTER_PASS(fold_scale_axis_forward, ForwardFoldScaleAxisPass)
    .Doc("moves a scale per channel into the weights of the conv or dense layers after it");

}  // namespace lathe
