#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

namespace {

/// A result that vanishes with its op must have no reader.
void RefuseUse(const Operation* op, size_t i, const char* name) {
  if (i >= op->num_results() || op->result(i).use_empty()) return;
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

class DropoutIsIdentity : public RewritePattern {
 public:
  explicit DropoutIsIdentity(const Program& program)
      : RewritePattern("dropout", "nn.dropout"), program_(program) {}
  bool MatchAndRewrite(Operation* op, Rewriter& rewriter) const override {
    if (op->num_operands() > 2 && MayBeTrue(program_, op->operand(2))) return false;
    RefuseUse(op, 1, "mask");
    rewriter.ReplaceAllUses(op->result(0), op->operand(0));
    rewriter.Erase(op);
    return true;
  }

 private:
  const Program& program_;
};

class IdentityIsNothing : public RewritePattern {
 public:
  IdentityIsNothing() : RewritePattern("identity", "nn.identity") {}
  bool MatchAndRewrite(Operation* op, Rewriter& rewriter) const override {
    if (op->operand(0).type().isa<TensorType>()) return false;
    rewriter.ReplaceAllUses(op->result(0), op->operand(0));
    rewriter.Erase(op);
    return true;
  }
};

/// y = x * s + t with s = scale / sqrt(var + eps), t = b - mean * s, each [C, 1, ..., 1].
class BatchNormIsScaleAndShift : public RewritePattern {
 public:
  BatchNormIsScaleAndShift() : RewritePattern("batch_norm", "nn.batch_normalization") {}

  bool MatchAndRewrite(Operation* op, Rewriter& rewriter) const override {
    if (op->attribute("training_mode").cast<BoolAttribute>().value()) return false;
    const auto type = op->operand(0).type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank() || type.rank() < 1) return false;
    for (size_t i = 1; i < 5; ++i) {  // other element types would round elsewhere
      const auto t = op->operand(i).type().dyn_cast<AnyTensorType>();
      if (!t || t.element() != type.element()) return false;
    }
    RefuseUse(op, 1, "running_mean");
    RefuseUse(op, 2, "running_var");
    Operation* const replaced[] = {op};
    const Rewriter::Replacing scope(rewriter, replaced);
    Rewrite(op, type, rewriter);
    return true;
  }

 private:
  static Value Call(Rewriter& r, const char* name, std::initializer_list<Value> operands) {
    return r.Create(name, std::span<const Value>(operands.begin(), operands.size()))->result(0);
  }

  static bool ChannelsLast(const Operation* op) {
    const auto layout = op->attribute("layout").dyn_cast<StrAttribute>();
    return layout && layout.value() == "NHWC";
  }

  static void Rewrite(Operation* op, AnyTensorType type, Rewriter& r) {
    const Value scale = op->operand(1), b = op->operand(2), mean = op->operand(3),
                var = op->operand(4);
    const double epsilon = op->attribute("epsilon").cast<FloatAttribute>().value();
    const Value eps = r.Constant(Cast(Tensor::Scalar<double>(epsilon), type.element()));
    const Value deviation = Call(r, "nn.sqrt", {Call(r, "nn.add", {var, eps})});
    Value s = Call(r, "nn.div", {scale, deviation});
    Value t = Call(r, "nn.sub", {b, Call(r, "nn.mul", {mean, s})});
    if (type.rank() > 2 && !ChannelsLast(op)) {
      std::vector<int64_t> shape(type.rank() - 1, 1);
      shape[0] = -1;
      const Value target =
          r.Constant(Tensor::Of<int64_t>({static_cast<int64_t>(shape.size())}, shape));
      s = Call(r, "nn.reshape", {s, target});
      t = Call(r, "nn.reshape", {t, target});
    }
    r.ReplaceAllUses(op->result(0), Call(r, "nn.add", {Call(r, "nn.mul", {op->operand(0), s}), t}));
    r.Erase(op);
  }
};

}  // namespace

/// Batch norm with given statistics becomes a multiplication and an addition, dropout and identity
/// vanish. Source: NNVM's SimplifyInference.
class SimplifyInferencePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    PatternSet patterns;
    patterns.push_back(std::make_unique<DropoutIsIdentity>(graph.program()));
    patterns.push_back(std::make_unique<IdentityIsNothing>());
    patterns.push_back(std::make_unique<BatchNormIsScaleAndShift>());
    ApplyPatternsGreedily(graph.program(), this, patterns);
  }
};

REGISTER_PASS(simplify_inference, SimplifyInferencePass)
    .Doc(
        "turns batch norm into a scale and a shift and removes dropout and identity, for "
        "inference");

}  // namespace lathe
