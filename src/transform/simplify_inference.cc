#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/size_condition.h"
#include "src/dialect/nn/layout.h"
#include "src/transform/aliases.h"

namespace lathe {

namespace {

/// Whether a result that vanishes with its op has a reader; then the op stays, or it is an error.
bool StaysFor(const Operation* op, size_t i, const char* name, bool keep_used) {
  if (i >= op->num_results() || op->result(i).use_empty()) return false;
  if (keep_used) return true;
  throw Error(
      ErrorCode::kUnsupported, "pass/vanishing-result",
      StrCat("result '", name, "' of ", op->name(), " is used, but inference has no such value"))
      .At(op->Describe())
      .Hint("leave simplify_inference out for training, or drop the output");
}

/// True if scalar `value` is known and not zero, or not known.
bool MayBeTrue(const Program& program, Value value) {
  if (!value) return false;
  const Tensor* constant = ConstantValue(program, value);
  return constant == nullptr || constant->num_elements() != 1 || ToDoubles(*constant)[0] != 0;
}

/// Writes to a copy of a mutable tensor must not reach what it was copied from.
class DropoutIsIdentity : public RewritePattern {
 public:
  DropoutIsIdentity(const Program& program, bool keep_used)
      : RewritePattern("dropout", nn::kDropout), program_(program), keep_used_(keep_used) {}
  bool MatchAndRewrite(Operation* op, Rewriter& rewriter) const override {
    if (IsMutable(op->operand(0))) return false;
    if (op->num_operands() > 2 && MayBeTrue(program_, op->operand(2))) return false;
    if (StaysFor(op, 1, "mask", keep_used_)) return false;
    rewriter.ReplaceAllUses(op->result(0), op->operand(0));
    rewriter.Erase(op);
    return true;
  }

 private:
  const Program& program_;
  bool keep_used_;
};

class IdentityIsNothing : public RewritePattern {
 public:
  IdentityIsNothing() : RewritePattern("identity", nn::kIdentity) {}
  bool MatchAndRewrite(Operation* op, Rewriter& rewriter) const override {
    if (IsMutable(op->operand(0))) return false;
    rewriter.ReplaceAllUses(op->result(0), op->operand(0));
    rewriter.Erase(op);
    return true;
  }
};

/// Whether x is known to have as many channels as the other operands have entries.
bool ChannelsAgree(const Operation* op, AnyTensorType type) {
  const size_t axis = nn::ChannelsLast(op) ? type.rank() - 1 : 1;
  const Dim channels = type.rank() > 1 ? type.dims()[axis] : Dim(1);
  for (size_t i = 1; i < 5; ++i) {
    const auto t = op->operand(i).type().cast<AnyTensorType>();
    if (!t.has_rank() || t.rank() != 1) return false;
    if (SizeCondition::Equal(t.dims()[0], channels).Decide() != true) return false;
  }
  return true;
}

/// y = x * s + t with s = scale / sqrt(var + eps), t = b - mean * s, each [C, 1, ..., 1].
class BatchNormIsScaleAndShift : public RewritePattern {
 public:
  BatchNormIsScaleAndShift(const Program& program, bool keep_used)
      : RewritePattern("batch_norm", nn::kBatchNormalization),
        program_(program),
        keep_used_(keep_used) {}

  bool MatchAndRewrite(Operation* op, Rewriter& rewriter) const override {
    if (op->attribute("training_mode").cast<BoolAttribute>().value()) return false;
    const auto type = op->operand(0).type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank() || type.rank() < 1) return false;
    for (size_t i = 1; i < 5; ++i) {  // other element types would round elsewhere
      const auto t = op->operand(i).type().dyn_cast<AnyTensorType>();
      if (!t || t.element() != type.element()) return false;
    }
    // Broadcasts accept one entry for all channels. The sizes of the program's block are looked at
    // before passes change it, those of regions after.
    if (op->block() != program_.block() && !ChannelsAgree(op, type)) return false;
    if (StaysFor(op, 1, "running_mean", keep_used_)) return false;
    if (StaysFor(op, 2, "running_var", keep_used_)) return false;
    Operation* const replaced[] = {op};
    const Rewriter::Replacing scope(rewriter, replaced);
    Rewrite(op, type, rewriter);
    return true;
  }

 private:
  static Value Call(Rewriter& r, const char* name, std::initializer_list<Value> operands) {
    return r.Create(name, std::span<const Value>(operands.begin(), operands.size()))->result(0);
  }

  static Value As(Rewriter& r, Value v, ElementType element) {
    if (v.type().cast<AnyTensorType>().element() == element) return v;
    const NamedAttribute to[] = {
        r.Named("to", TypeAttribute::Get(ElemType::Get(r.context(), element)))};
    return r.Create(nn::kCast, {&v, 1}, to)->result(0);
  }

  // Halves are rounded at the end only: s and t of halves would be off by more than y is.
  static void Rewrite(Operation* op, AnyTensorType type, Rewriter& r) {
    const ElementType element = type.element();
    const ElementType wide = BitWidth(element) == 16 ? ElementType::kF32 : element;
    const auto operand = [&](size_t i) { return As(r, op->operand(i), wide); };
    const Value scale = operand(1), b = operand(2), mean = operand(3), var = operand(4);
    const double epsilon = op->attribute("epsilon").cast<FloatAttribute>().value();
    const Value eps = r.Constant(Cast(Tensor::Scalar<double>(epsilon), wide));
    const Value deviation = Call(r, nn::kSqrt, {Call(r, nn::kAdd, {var, eps})});
    Value s = Call(r, nn::kDiv, {scale, deviation});
    Value t = Call(r, nn::kSub, {b, Call(r, nn::kMul, {mean, s})});
    if (type.rank() > 2 && !nn::ChannelsLast(op)) {
      s = OverChannels(r, s, type.rank());
      t = OverChannels(r, t, type.rank());
    }
    const Value y = Call(r, nn::kAdd, {Call(r, nn::kMul, {operand(0), s}), t});
    r.ReplaceAllUses(op->result(0), As(r, y, element));
    r.Erase(op);
  }

  // [C, 1, ..., 1], which broadcasts to [N, C, ...].
  static Value OverChannels(Rewriter& r, Value v, size_t rank) {
    std::vector<int64_t> shape(rank - 1, 1);
    shape[0] = -1;
    const Value target =
        r.Constant(Tensor::Of<int64_t>({static_cast<int64_t>(shape.size())}, shape));
    return Call(r, nn::kReshape, {v, target});
  }

  const Program& program_;
  bool keep_used_;
};

}  // namespace

/// Batch norm with given statistics becomes a multiplication and an addition, dropout and identity
/// vanish. Source: NNVM's SimplifyInference.
class SimplifyInferencePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const bool keep_used = option_bool("keep_used");
    PatternSet patterns;
    patterns.push_back(std::make_unique<DropoutIsIdentity>(graph.program(), keep_used));
    patterns.push_back(std::make_unique<IdentityIsNothing>());
    patterns.push_back(std::make_unique<BatchNormIsScaleAndShift>(graph.program(), keep_used));
    ApplyPatternsGreedily(graph.program(), this, patterns);
  }
};

REGISTER_PASS(simplify_inference, SimplifyInferencePass)
    .Doc(
        "turns batch norm into a scale and a shift and removes dropout and identity, for "
        "inference")
    .Option("keep_used", PassOption::Kind::kBool, "false",
            "an op stays if results are read that inference does not have; false: an error");

}  // namespace lathe
