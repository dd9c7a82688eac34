#include <cmath>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/conv_constants.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

Pat ConvOf(std::vector<Pat> operands) {
  return Call(nn::kConv, std::move(operands))
      .Carry("kernel_shape")
      .Carry("strides")
      .Carry("pads")
      .Carry("dilations")
      .Carry("auto_pad")
      .Carry("group");
}

bool ChannelsAgree(const RuleMatch& m) {
  const Tensor w = m.constant("w");
  if (w.rank() < 3 || w.dim(0) == 0) return false;
  for (const char* name : {"scale", "shift", "mean", "var", "b"}) {
    if (m.Has(name) && m.constant(name).num_elements() != w.dim(0)) return false;
  }
  return true;
}

/// A variance of which the root is no number makes no filter.
bool FactorsAreFinite(const RuleMatch& m) {
  const double epsilon = m.attribute("epsilon").cast<FloatAttribute>().value();
  for (const double v : ToDoubles(m.constant("var"))) {
    if (!(v + epsilon > 0) || std::isinf(v)) return false;
  }
  return true;
}

bool BiasIsConstant(const RuleMatch& m) {
  return !m.Has("b") || ConstantValue(m.program(), m["b"]) != nullptr;
}

/// w s and (b - mean) s + shift, with s = scale / sqrt(var + epsilon): new parameters, so whoever
/// else reads the old ones sees no change.
void FoldedParameters(const RuleMatch& m, Rewriter& rewriter, Value& w, Value& b) {
  const double epsilon = m.attribute("epsilon").cast<FloatAttribute>().value();
  const std::vector<double> var = ToDoubles(m.constant("var")),
                            mean = ToDoubles(m.constant("mean"));
  std::vector<double> factor = ToDoubles(m.constant("scale"));
  std::vector<double> bias = ToDoubles(m.constant("shift"));
  const std::vector<double> old =
      m.Has("b") ? ToDoubles(m.constant("b")) : std::vector<double>(var.size());
  for (size_t i = 0; i < var.size(); ++i) {
    factor[i] /= std::sqrt(var[i] + epsilon);
    bias[i] += (old[i] - mean[i]) * factor[i];
  }
  const Tensor filter = m.constant("w");
  w = rewriter.Parameter(ParameterBase(m["w"], "conv.w"), ScaledChannels(filter, factor));
  b = rewriter.Parameter(ParameterBase(m["shift"], "conv.b"),
                         FromDoubles(filter.element_type(), bias));
}

Value MakeConv(const RuleMatch& m, Rewriter& rewriter) {
  Value operands[3] = {m["x"], Value(), Value()};
  FoldedParameters(m, rewriter, operands[1], operands[2]);
  return rewriter.Create(nn::kConv, operands, m.op("conv")->attributes().entries())->result(0);
}

}  // namespace

class ConvBnFusePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const Pat conv = ConvOf({Var("x"), Const("w"), Maybe("b")}).As("conv");
    std::vector<Rule> rules;
    rules.push_back(Rule("conv-bn")
                        .Match(Call(nn::kBatchNormalization, {conv, Const("scale"), Const("shift"),
                                                              Const("mean"), Const("var")})
                                   .Carry("epsilon")
                                   .Carry("momentum"))
                        .Where(BiasIsConstant, "the bias of the convolution is constant")
                        .Where(ChannelsAgree, "scale, shift and statistics are per channel")
                        .Where(FactorsAreFinite, "variance plus epsilon is positive")
                        .Replace(Rule::Maker(MakeConv)));
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(conv_bn_fuse, ConvBnFusePass)
    .Doc("folds batch normalization with fixed statistics into the convolution before it");

}  // namespace lathe
