#include "lathe/dialect/nn/op_names.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/conv_constants.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

/// The constant varies along the channels of the result only: [C, 1, ...] or [1, C, 1, ...], or it
/// is one number.
bool PerChannel(const RuleMatch& m) {
  const Tensor c = m.constant("c");
  const Tensor w = m.constant("w");
  if (w.rank() < 3 || c.rank() > w.rank() || m.op("conv")->attribute("layout")) return false;
  if (c.num_elements() == 1) return true;
  const int64_t channel = c.rank() - (w.rank() - 1);
  return channel >= 0 && c.num_elements() == w.dim(0) && c.dim(channel) == w.dim(0);
}

bool BiasIsConstant(const RuleMatch& m) {
  return !m.Has("b") || ConstantValue(m.program(), m["b"]) != nullptr;
}

Value MakeConv(const RuleMatch& m, Rewriter& rewriter) {
  const Tensor w = m.constant("w");
  std::vector<double> bias = ToDoubles(m.constant("c"));
  bias.resize(static_cast<size_t>(w.dim(0)), bias[0]);
  if (m.Has("b")) {
    const std::vector<double> old = ToDoubles(m.constant("b"));
    for (size_t i = 0; i < bias.size(); ++i) bias[i] += old[i];
  }
  const Value b =
      rewriter.Parameter(ParameterBase(m["c"], "conv.b"), FromDoubles(w.element_type(), bias));
  const Value operands[] = {m["x"], m["w"], b};
  return rewriter.Create(nn::kConv, operands, m.op("conv")->attributes().entries())->result(0);
}

}  // namespace

class ConvBiasFusePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const Pat conv = Call(nn::kConv, {Var("x"), Const("w"), Maybe("b")}).AnyAttributes().As("conv");
    std::vector<Rule> rules;
    rules.push_back(Rule("conv-bias")
                        .Match(Call(nn::kAdd, {conv, Const("c")}))
                        .Where(BiasIsConstant, "the bias of the convolution is constant")
                        .Where(PerChannel, "the constant varies along the channels only")
                        .Replace(Rule::Maker(MakeConv)));
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(conv_bias_fuse, ConvBiasFusePass)
    .Doc("makes the addition of a constant per channel the bias of the convolution before it");

}  // namespace lathe
