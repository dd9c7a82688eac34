#include "lathe/dialect/nn/op_names.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/conv_constants.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

/// Output channels: those of a group, times the groups.
std::optional<int64_t> ChannelsOf(const RuleMatch& m) {
  const Tensor w = m.constant("w");
  const auto group = m.op("conv")->attribute("group").dyn_cast<IntAttribute>();
  if (w.rank() < 3) return std::nullopt;
  return w.dim(1) * (group ? group.value() : 1);
}

/// [C, 1, ...], [1, C, 1, ...] or one number.
bool PerChannel(const RuleMatch& m) {
  const Tensor c = m.constant("c");
  const std::optional<int64_t> channels = ChannelsOf(m);
  const int64_t rank = m.constant("w").rank();
  if (!channels || c.rank() > rank) return false;
  if (c.num_elements() == 1) return true;
  const int64_t channel = c.rank() - (rank - 1);
  return channel >= 0 && c.num_elements() == *channels && c.dim(channel) == *channels;
}

bool BiasIsConstant(const RuleMatch& m) {
  return !m.Has("b") || ConstantValue(m.program(), m["b"]) != nullptr;
}

Value MakeConv(const RuleMatch& m, Rewriter& rewriter) {
  std::vector<double> bias = ToDoubles(m.constant("c"));
  bias.resize(static_cast<size_t>(*ChannelsOf(m)), bias[0]);
  if (m.Has("b")) {
    const std::vector<double> old = ToDoubles(m.constant("b"));
    for (size_t i = 0; i < bias.size(); ++i) bias[i] += old[i];
  }
  const Value b = rewriter.Parameter(ParameterBase(m["c"], "conv.b"),
                                     FromDoubles(m.constant("w").element_type(), bias));
  const Value operands[] = {m["x"], m["w"], b};
  return rewriter.Create(nn::kConvTranspose, operands, m.op("conv")->attributes().entries())
      ->result(0);
}

}  // namespace

class ConvTransposeBiasFusePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const Pat conv =
        Call(nn::kConvTranspose, {Var("x"), Const("w"), Maybe("b")}).AnyAttributes().As("conv");
    std::vector<Rule> rules;
    rules.push_back(Rule("conv-transpose-bias")
                        .Match(Call(nn::kAdd, {conv, Const("c")}))
                        .Where(BiasIsConstant, "the bias of the convolution is constant")
                        .Where(PerChannel, "the constant varies along the channels only")
                        .Replace(Rule::Maker(MakeConv)));
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(conv_transpose_bias_fuse, ConvTransposeBiasFusePass)
    .Doc("makes the addition of a constant per channel the bias of the transposed convolution")
    .Details(
        "With simplify_inference and fold_scale_axis_backward before it, batch normalization "
        "behind "
        "a transposed convolution disappears in weights and bias.");

}  // namespace lathe
