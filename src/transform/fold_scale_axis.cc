#include <algorithm>
#include <cmath>

#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

namespace {

/// A factor per channel (axis 1 of [N, C, ...]), or one for all channels.
struct Scale {
  std::vector<double> factors;
  bool nonnegative = false;  ///< all are: only such a scale moves through relu and max-pool
  bool nonzero = false;      ///< all are: only such a one moves through a division

  double at(size_t channel) const { return factors[factors.size() == 1 ? 0 : channel]; }
  bool Fits(int64_t channels) const {
    return factors.size() == 1 || static_cast<int64_t>(factors.size()) == channels;
  }
};

AnyTensorType TensorTypeOf(Value v) { return v.type().dyn_cast<AnyTensorType>(); }

/// The constant as a scale of `data` [N, C, ...]: a scalar, or extents of one but for the channels.
std::optional<Scale> AsScale(const Tensor* t, AnyTensorType data) {
  if (t == nullptr || !IsFloat(t->element_type()) || !data || !data.has_rank() || data.rank() < 2) {
    return std::nullopt;
  }
  const Shape& shape = t->shape();
  const auto rank = static_cast<int64_t>(data.rank());
  if (t->rank() > rank) return std::nullopt;
  for (int64_t i = 0; i < t->rank(); ++i) {
    const int64_t axis = i + rank - t->rank();  // numpy aligns at the end
    if (shape[static_cast<size_t>(i)] != 1 && axis != 1) return std::nullopt;
  }
  Scale scale{ToDoubles(*t), true, true};
  for (const double f : scale.factors) {
    if (!std::isfinite(f)) return std::nullopt;
    scale.nonnegative &= f >= 0;
    scale.nonzero &= f != 0;
  }
  const Dim channels = data.dims()[1];
  const bool fits = channels.is_constant() && scale.Fits(channels.value());
  return fits ? std::optional(scale) : std::nullopt;
}

/// `t` with element i multiplied (divided) by the factor of channel `channel_of(i)`.
template <class ChannelOf>
Tensor Scaled(const Tensor& t, const Scale& scale, bool divide, ChannelOf channel_of) {
  std::vector<double> values = ToDoubles(t);
  for (size_t i = 0; i < values.size(); ++i) {
    const double f = scale.at(channel_of(i));
    values[i] = divide ? values[i] / f : values[i] * f;
  }
  return Cast(Tensor::Of<double>(t.shape(), values), t.element_type());
}

/// The channel of element i of a tensor along `axis`.
auto Along(const Tensor& t, int64_t axis) {
  size_t inner = 1;
  for (int64_t i = axis + 1; i < t.rank(); ++i) inner *= static_cast<size_t>(t.dim(i));
  const auto extent = static_cast<size_t>(t.dim(axis));
  return [inner, extent](size_t i) { return i / inner % extent; };
}

bool IsOneOf(const Operation* op, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return op->name() == n; });
}

bool PassesAnyScale(const Operation* op) {
  return IsOneOf(op, {"nn.average_pool", "nn.global_average_pool", "nn.identity", "nn.neg"});
}
bool PassesNonnegativeScale(const Operation* op) {
  return IsOneOf(op, {"nn.relu", "nn.leaky_relu", "nn.max_pool", "nn.global_max_pool"}) &&
         (op->num_results() == 1 || op->result(1).use_empty());
}

int64_t IntAttr(const Operation* op, const char* name, int64_t fallback) {
  const auto a = op->attribute(name).dyn_cast<IntAttribute>();
  return a ? a.value() : fallback;
}
bool BoolAttr(const Operation* op, const char* name) {
  const auto a = op->attribute(name).dyn_cast<BoolAttribute>();
  return a && a.value();
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
  void ApplyImpl(Graph& graph) override {
    rewriter_.emplace(graph.program(), this);
    std::vector<Operation*> multiplications;
    for (Operation& op : *graph.block()) {
      if (op.name() == "nn.mul") multiplications.push_back(&op);
    }
    if (!forward_) std::reverse(multiplications.begin(), multiplications.end());
    for (Operation* op : multiplications) TryFold(op);
  }

 private:
  static constexpr int kMaxSteps = 64;

  /// One op on the way whose operand `operand` becomes `scaled`.
  struct Step {
    Operation* op;
    size_t operand;
    Tensor scaled;
  };

  const Tensor* Constant(Value v) const {
    return v ? ConstantValue(rewriter_->program(), v) : nullptr;
  }
  void TryFold(Operation* mul);
  bool PlanBackward(Value v, const Scale& scale, std::vector<Step>& plan, int depth);
  bool PlanForward(Value v, const Scale& scale, std::vector<Step>& plan, int depth);
  bool PlanUser(Operation* user, size_t operand, const Scale& scale, std::vector<Step>& plan,
                int depth);
  bool AddWeights(Operation* op, const Scale& scale, bool outputs, std::vector<Step>& plan);
  bool AddOther(Operation* op, size_t i, const Scale& scale, bool divide, std::vector<Step>& plan);
  bool Refuse(const Operation* op, std::string why) {
    Missed(op, std::move(why));
    return false;
  }

  bool forward_;
  std::optional<Rewriter> rewriter_;
};

void FoldScaleAxisPass::TryFold(Operation* mul) {
  for (size_t side = 0; side < 2; ++side) {
    const Value data = mul->operand(1 - side);
    if (data.type() != mul->result(0).type()) continue;
    const std::optional<Scale> scale = AsScale(Constant(mul->operand(side)), TensorTypeOf(data));
    if (!scale) continue;
    std::vector<Step> plan;
    const bool works = forward_ ? PlanForward(mul->result(0), *scale, plan, 0)
                                : PlanBackward(data, *scale, plan, 0);
    if (!works) continue;
    for (Step& step : plan) {
      rewriter_->SetInsertionPoint(step.op);
      const Location both[] = {step.op->location(), mul->location()};
      step.op->set_location(Location::Fused(rewriter_->context(), both));
      rewriter_->set_location(step.op->location());
      const Operation* old = step.op->operand(step.operand).defining_op();
      const auto name = old->attribute("name").dyn_cast<StrAttribute>();
      const std::string base = name ? std::string(name.value()) : "scaled";
      rewriter_->SetOperand(step.op, step.operand,
                            rewriter_->Parameter(base, std::move(step.scaled)));
    }
    Applied(mul, StrCat("moved into ", plan.size(), " weights"));
    Count("folded");
    rewriter_->ReplaceAllUses(mul->result(0), data);
    rewriter_->EraseDead(mul);
    return;
  }
}

/// The weights (and, for outputs, the bias) of conv or gemm. Groups: output channel m of weight
/// [M, C / group, ...] is row m; input channel c is column c % (C / group) of the rows of its
/// group.
bool FoldScaleAxisPass::AddWeights(Operation* op, const Scale& scale, bool outputs,
                                   std::vector<Step>& plan) {
  const bool conv = op->name() == "nn.conv";
  const Tensor* w = Constant(op->operand(1));
  if (w == nullptr) return Refuse(op, "its weights are no constants");
  if (!conv) {
    if (!outputs && BoolAttr(op, "transA")) return Refuse(op, "its input is transposed");
    const int64_t axis = BoolAttr(op, "transB") == outputs ? 0 : 1;
    if (!scale.Fits(w->dim(axis))) return Refuse(op, "its weights have another number of channels");
    plan.push_back({op, 1, Scaled(*w, scale, false, Along(*w, axis))});
  } else if (outputs) {
    if (!scale.Fits(w->dim(0))) return Refuse(op, "its weights have another number of channels");
    plan.push_back({op, 1, Scaled(*w, scale, false, Along(*w, 0))});
  } else {
    const auto groups = static_cast<size_t>(IntAttr(op, "group", 1));
    const auto rows = static_cast<size_t>(w->dim(0)), columns = static_cast<size_t>(w->dim(1));
    if (!scale.Fits(static_cast<int64_t>(columns * groups))) {
      return Refuse(op, "its weights have another number of channels");
    }
    const auto row = Along(*w, 0), column = Along(*w, 1);
    plan.push_back({op, 1, Scaled(*w, scale, false, [&](size_t i) {
                      return row(i) / (rows / groups) * columns + column(i);
                    })});
  }
  if (!outputs || op->num_operands() < 3 || !op->operand(2)) return true;
  const Tensor* b = Constant(op->operand(2));
  if (b == nullptr) return Refuse(op, "its bias is no constant");
  if (b->rank() != 1 || (scale.factors.size() != 1 && b->dim(0) == 1))
    return Refuse(op, "its bias is no vector of channels");
  plan.push_back({op, 2, Scaled(*b, scale, false, Along(*b, 0))});
  return true;
}

/// The constant side of an addition: a scalar only under one factor, else a vector of channels.
bool FoldScaleAxisPass::AddOther(Operation* op, size_t i, const Scale& scale, bool divide,
                                 std::vector<Step>& plan) {
  const Tensor* c = Constant(op->operand(i));
  if (c == nullptr || !AsScale(c, TensorTypeOf(op->result(0)))) return false;
  if (divide && !scale.nonzero)
    return Refuse(op, "a factor is zero, and the constant would be divided by it");
  if (scale.factors.size() != 1 && c->num_elements() == 1)
    return Refuse(op, "one constant for all channels");
  plan.push_back({op, i, Scaled(*c, scale, divide, [](size_t k) { return k; })});
  return true;
}

/// `v` can be made scale * v by changing weights before it.
bool FoldScaleAxisPass::PlanBackward(Value v, const Scale& scale, std::vector<Step>& plan,
                                     int depth) {
  Operation* op = v.defining_op();
  if (op == nullptr || depth > kMaxSteps) return false;
  if (!v.has_one_use()) return Refuse(op, "its result has another reader");
  if (IsOneOf(op, {"nn.conv", "nn.gemm"})) return AddWeights(op, scale, true, plan);
  if (PassesNonnegativeScale(op) && !scale.nonnegative) return Refuse(op, "a factor is negative");
  if (PassesAnyScale(op) || PassesNonnegativeScale(op))
    return PlanBackward(op->operand(0), scale, plan, depth + 1);
  if (!IsOneOf(op, {"nn.add", "nn.sub"})) return false;
  for (size_t i = 0; i < 2; ++i) {
    const bool planned =
        AddOther(op, i, scale, false, plan) ||
        (op->operand(i).type() == v.type() && PlanBackward(op->operand(i), scale, plan, depth + 1));
    if (!planned) return false;
  }
  return true;
}

/// Every reader of `v` = scale * x can read x instead by changing weights after it.
bool FoldScaleAxisPass::PlanForward(Value v, const Scale& scale, std::vector<Step>& plan,
                                    int depth) {
  if (depth > kMaxSteps || v.use_empty()) return false;
  for (const OpOperand use : v.uses()) {
    if (!PlanUser(use.owner(), use.index(), scale, plan, depth)) {
      return Refuse(use.owner(), "it needs the scaled value itself");
    }
  }
  return true;
}

bool FoldScaleAxisPass::PlanUser(Operation* user, size_t operand, const Scale& scale,
                                 std::vector<Step>& plan, int depth) {
  if (IsOneOf(user, {"nn.conv", "nn.gemm"}))
    return operand == 0 && AddWeights(user, scale, false, plan);
  if (PassesNonnegativeScale(user) && !scale.nonnegative) return false;
  if (PassesAnyScale(user) || PassesNonnegativeScale(user))
    return PlanForward(user->result(0), scale, plan, depth + 1);
  if (!IsOneOf(user, {"nn.add", "nn.sub"}) ||
      user->operand(operand).type() != user->result(0).type())
    return false;
  return AddOther(user, 1 - operand, scale, true, plan) &&
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
