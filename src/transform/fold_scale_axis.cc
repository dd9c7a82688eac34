#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/shared_chunks.h"
#include "src/transform/scale.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

int64_t KnownRank(Value v) { return static_cast<int64_t>(TensorOrNull(v).rank()); }

bool IsOneOf(const Operation* op, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return op->name() == n; });
}

bool IsWindow(const Operation* op) {
  return IsOneOf(op, {nn::kAveragePool, nn::kGlobalAveragePool, nn::kMaxPool, nn::kGlobalMaxPool});
}
bool PassesAnyScale(const Operation* op) {
  return IsOneOf(op, {nn::kAveragePool, nn::kGlobalAveragePool, nn::kIdentity, nn::kNeg});
}
bool PassesNonnegativeScale(const Operation* op) {
  return IsOneOf(op, {nn::kRelu, nn::kLeakyRelu, nn::kMaxPool, nn::kGlobalMaxPool}) &&
         (op->num_results() == 1 || op->result(1).use_empty());
}
bool HasWeights(const Operation* op) {
  return IsOneOf(op, {nn::kConv, nn::kConvTranspose, nn::kGemm, nn::kMatmul});
}

int64_t IntAttr(const Operation* op, const char* name, int64_t fallback) {
  const auto a = op->attribute(name).dyn_cast<IntAttribute>();
  return a ? a.value() : fallback;
}
bool BoolAttr(const Operation* op, const char* name) {
  const auto a = op->attribute(name).dyn_cast<BoolAttribute>();
  return a && a.value();
}

/// 1 / s; the factors must not be zero.
Scale Inverse(Scale scale) {
  for (double& f : scale.factors) f = 1 / f;
  return scale;
}

/// The permutation of a transpose that says one.
std::optional<std::vector<int64_t>> PermOf(const Operation* op) {
  const auto list = op->attribute("perm").dyn_cast<ArrayAttribute>();
  std::optional<std::vector<int64_t>> perm = list ? list.AsInts() : std::nullopt;
  if (!perm) return std::nullopt;
  for (int64_t& axis : *perm) axis += axis < 0 ? static_cast<int64_t>(perm->size()) : 0;
  return perm;
}

/// How the channels of a layer lie in its weights, and how many they know.
struct WeightChannels {
  int64_t count;
  ChannelLayout layout;
};

/// Channel c of group g is row or column c of that group's part: `outer` runs over the groups.
WeightChannels Grouped(const Tensor& w, int64_t groups, int64_t axis) {
  WeightChannels channels{w.dim(axis) * groups, ChannelLayout::Along(w, axis)};
  channels.layout.per_group = static_cast<size_t>(w.dim(1 - axis) / groups);
  return channels;
}
WeightChannels Plain(const Tensor& w, int64_t axis) {
  return {w.dim(axis), ChannelLayout::Along(w, axis)};
}

/// For the output channels, or those of the input, of a layer with constant weights `w`. A conv has
/// [M, C / group, ...], a transposed one [C, M / group, ...], dense layers [C, M] or turned round.
std::optional<WeightChannels> ChannelsOf(const Operation* op, const Tensor& w, bool outputs) {
  if (IsOneOf(op, {nn::kConv, nn::kConvTranspose})) {
    const int64_t groups = IntAttr(op, "group", 1);
    if (w.rank() < 2 || w.dim(0) % groups != 0) return std::nullopt;
    const bool first = (op->name() == nn::kConv) == outputs;
    return first ? Plain(w, 0) : Grouped(w, groups, 1);
  }
  const bool gemm = op->name() == nn::kGemm;
  if (w.rank() < 2 || BoolAttr(op, gemm ? "transA" : "transpose_x")) return std::nullopt;
  const bool turned = BoolAttr(op, gemm ? "transB" : "transpose_y");
  return Plain(w, turned == outputs ? w.rank() - 2 : w.rank() - 1);
}

/// The axis of the channels in what the layer or pool reads or gives.
int64_t ChannelAxis(const Operation* op, Value data) {
  const auto layout = op->attribute("layout").dyn_cast<StrAttribute>();
  const bool last = op->name() == nn::kMatmul || (layout && layout.value() == "NHWC");
  return last ? KnownRank(data) - 1 : 1;
}

}  // namespace

/// Moves a multiplication by constants per channel into the weights of the convolution or dense
/// layer before it (backward) or after it (forward). A plan is made for the whole way first; only
/// when every path ends in weights is anything changed. Source: NNVM's FoldScaleAxis; spec 16.1
/// and 16.2 for what may not be moved.
class FoldScaleAxisPass : public Pass {
 public:
  explicit FoldScaleAxisPass(bool forward) : forward_(forward) {}

 protected:
  /// Scales one after the other move one after the other, the one nearest to the weights first.
  void ApplyImpl(Graph& graph) override {
    rewriter_.emplace(graph.program(), this);
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
  bool PlanSum(Operation* op, const Scale& scale, Plan& plan, int depth);
  bool PlanConcat(Operation* op, const Scale& scale, Plan& plan, int depth);
  bool PlanForward(Value v, const Scale& scale, Plan& plan, int depth);
  bool PlanUser(Operation* user, size_t operand, const Scale& scale, Plan& plan, int depth);
  bool AddWeights(Operation* op, const Scale& scale, bool outputs, Plan& plan);
  bool AddBias(Operation* op, const Scale& scale, Plan& plan);
  bool AddOther(Operation* op, size_t i, const Scale& scale, Plan& plan);
  bool CanPass(const Operation* op, const Scale& scale);
  bool IsConstantFactor(Operation* op, size_t data) const;
  bool Refuse(const Operation* op, std::string why) {
    Missed(op, std::move(why));
    return false;
  }

  bool forward_;
  std::optional<Rewriter> rewriter_;
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
  const Scale inverse = Inverse(*scale);
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

/// The weights and, for outputs, the bias of a layer.
bool FoldScaleAxisPass::AddWeights(Operation* op, const Scale& scale, bool outputs, Plan& plan) {
  const Value data = outputs ? op->result(0) : op->operand(0);
  if (!scale.is_scalar() && scale.axis != ChannelAxis(op, data)) {
    return Refuse(op, "the scale is not one of its channels");
  }
  const Tensor* w = Constant(op->operand(1));
  if (w == nullptr) return Refuse(op, "its weights are not constants");
  const std::optional<WeightChannels> channels = ChannelsOf(op, *w, outputs);
  if (!channels) return Refuse(op, "its input is transposed or its weights are a vector");
  if (!scale.Fits(channels->count)) {
    return Refuse(op, "its weights have another number of channels");
  }
  plan.push_back({op, 1, Tensor(), scale, channels->layout});
  return !outputs || AddBias(op, scale, plan);
}

bool FoldScaleAxisPass::AddBias(Operation* op, const Scale& scale, Plan& plan) {
  if (op->num_operands() < 3 || !op->operand(2)) return true;
  const Tensor* b = Constant(op->operand(2));
  if (b == nullptr) return Refuse(op, "its bias is not a constant");
  if (b->rank() != 1 || (!scale.is_scalar() && b->dim(0) == 1)) {
    return Refuse(op, "its bias is not a vector of channels");
  }
  std::optional<Tensor> scaled = ScaledAlong(*b, scale, 0);
  if (!scaled) return Refuse(op, "its bias would leave the range of its type");
  plan.push_back({op, 2, std::move(*scaled)});
  return true;
}

/// The constant side of an addition.
bool FoldScaleAxisPass::AddOther(Operation* op, size_t i, const Scale& scale, Plan& plan) {
  const Tensor* c = Constant(op->operand(i));
  if (c == nullptr || !SameKnownType(op->operand(1 - i), op->result(0))) return false;
  std::optional<Tensor> scaled = ScaledAddend(*c, scale, KnownRank(op->result(0)));
  if (!scaled)
    return Refuse(
        op, "its constant varies in another way than the scale, or leaves the range of its type");
  plan.push_back({op, i, std::move(*scaled)});
  return true;
}

/// The op multiplies operand `data`, or divides it, by something else: the order does not matter.
bool FoldScaleAxisPass::IsConstantFactor(Operation* op, size_t data) const {
  return (op->name() == nn::kMul || (op->name() == nn::kDiv && data == 0)) &&
         SameKnownType(op->operand(data), op->result(0)) &&
         Constant(op->operand(1 - data)) != nullptr;
}

/// f(scale x) = scale f(x).
bool FoldScaleAxisPass::CanPass(const Operation* op, const Scale& scale) {
  if (!PassesAnyScale(op) && !PassesNonnegativeScale(op)) return false;
  if (IsWindow(op) && !scale.is_scalar() && scale.axis != 0 &&
      scale.axis != ChannelAxis(op, op->operand(0))) {
    return Refuse(op, "the scale varies within a window");
  }
  if (!PassesAnyScale(op) && !scale.nonnegative) return Refuse(op, "a factor is negative");
  return true;
}

/// `v` can be made scale * v by changing weights before it.
bool FoldScaleAxisPass::PlanBackward(Value v, const Scale& scale, Plan& plan, int depth) {
  Operation* op = v.defining_op();
  if (op == nullptr || depth > kMaxSteps || op->num_operands() == 0) return false;
  if (!v.has_one_use()) return Refuse(op, "its result has another reader");
  if (HasWeights(op)) return AddWeights(op, scale, true, plan);
  if (CanPass(op, scale)) return PlanBackward(op->operand(0), scale, plan, depth + 1);
  if (op->name() == nn::kConcat) return PlanConcat(op, scale, plan, depth);
  if (IsOneOf(op, {nn::kAdd, nn::kSub})) return PlanSum(op, scale, plan, depth);
  if (op->name() == nn::kTranspose) {
    const auto perm = PermOf(op);
    if (!perm) return false;
    const int64_t axis = scale.is_scalar() ? 0 : (*perm)[static_cast<size_t>(scale.axis)];
    return PlanBackward(op->operand(0), scale.OnAxis(axis), plan, depth + 1);
  }
  for (size_t data = 0; data < 2 && IsOneOf(op, {nn::kMul, nn::kDiv}); ++data) {
    if (IsConstantFactor(op, data)) {
      return PlanBackward(op->operand(data), scale, plan, depth + 1);
    }
  }
  return false;
}

/// Both sides must take the scale.
bool FoldScaleAxisPass::PlanSum(Operation* op, const Scale& scale, Plan& plan, int depth) {
  for (size_t i = 0; i < 2; ++i) {
    const bool planned = Constant(op->operand(i)) != nullptr
                             ? AddOther(op, i, scale, plan)
                             : SameKnownType(op->operand(i), op->result(0)) &&
                                   PlanBackward(op->operand(i), scale, plan, depth + 1);
    if (!planned) return false;
  }
  return true;
}

/// Each operand takes its part of the factors.
bool FoldScaleAxisPass::PlanConcat(Operation* op, const Scale& scale, Plan& plan, int depth) {
  int64_t axis = IntAttr(op, "axis", 0);
  if (axis < 0) axis += KnownRank(op->result(0));
  int64_t begin = 0;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    Scale piece = scale;
    if (!scale.is_scalar() && scale.axis == axis) {
      const AnyTensorType type = TensorOrNull(op->operand(i));
      const Dim extent = type && type.has_rank() ? type.dims()[static_cast<size_t>(axis)] : Dim();
      if (!extent.is_constant()) return Refuse(op, "the extent of an operand is not known");
      piece = scale.Piece(begin, extent.value());
      begin += extent.value();
    }
    if (!PlanBackward(op->operand(i), piece, plan, depth + 1)) return false;
  }
  return true;
}

/// Every reader of `v` = scale * x can read x instead by changing weights after it.
bool FoldScaleAxisPass::PlanForward(Value v, const Scale& scale, Plan& plan, int depth) {
  if (depth > kMaxSteps || v.use_empty()) return false;
  for (const OpOperand use : v.uses()) {
    if (!PlanUser(use.owner(), use.index(), scale, plan, depth)) {
      return Refuse(use.owner(), "it needs the scaled value itself");
    }
  }
  return true;
}

bool FoldScaleAxisPass::PlanUser(Operation* user, size_t operand, const Scale& scale, Plan& plan,
                                 int depth) {
  if (HasWeights(user)) return operand == 0 && AddWeights(user, scale, false, plan);
  if (CanPass(user, scale)) return PlanForward(user->result(0), scale, plan, depth + 1);
  if (user->name() == nn::kTranspose) {
    const auto perm = PermOf(user);
    if (!perm) return false;
    const auto at = std::find(perm->begin(), perm->end(), scale.axis);
    const int64_t axis = scale.is_scalar() ? 0 : at - perm->begin();
    return PlanForward(user->result(0), scale.OnAxis(axis), plan, depth + 1);
  }
  if (IsOneOf(user, {nn::kMul, nn::kDiv})) {
    return IsConstantFactor(user, operand) && PlanForward(user->result(0), scale, plan, depth + 1);
  }
  if (!IsOneOf(user, {nn::kAdd, nn::kSub})) return false;
  if (!scale.divides) {
    return Refuse(user, "a factor is (nearly) zero, and the constant would be divided by it");
  }
  const Scale inverse = Inverse(scale);
  return inverse.IsFinite() && AddOther(user, 1 - operand, inverse, plan) &&
         PlanForward(user->result(0), scale, plan, depth + 1);
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
