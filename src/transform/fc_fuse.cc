#include "lathe/dialect/nn/op_names.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

bool IsMatrix(Value value) { return RankOf(value) == 2; }

/// The bias of nn.gemm broadcasts to the product, never the product to the bias.
bool BiasFits(const RuleMatch& m) {
  const auto product = m["product"].type().dyn_cast<AnyTensorType>();
  const auto bias = m["b"].type().dyn_cast<AnyTensorType>();
  if (!product || !bias || !product.has_rank() || !bias.has_rank()) return false;
  if (bias.rank() > product.rank()) return false;
  for (size_t i = 1; i <= bias.rank(); ++i) {
    const Dim extent = bias.dims()[bias.rank() - i];
    if (extent.IsConstant(1)) continue;
    if (!ProvablyEqual(extent, product.dims()[product.rank() - i])) return false;
  }
  return true;
}

Attribute Transposed(const RuleMatch& m, const char* name) { return m.attribute(name); }

}  // namespace

/// A fully connected layer is nn.gemm: one product of matrices and one bias. Products of higher
/// rank stay as they are; grouping takes their additions in.
class FcFusePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const Pat product = Call(nn::kMatmul, {Var("a").If(IsMatrix, "a is a matrix"),
                                           Var("w").If(IsMatrix, "w is a matrix")})
                            .Carry("transpose_x")
                            .Carry("transpose_y")
                            .As("product");
    const Pat gemm = Call(nn::kGemm, {Var("a"), Var("w")}).As("product");
    const auto x = [](const RuleMatch& m) { return Transposed(m, "transpose_x"); };
    const auto y = [](const RuleMatch& m) { return Transposed(m, "transpose_y"); };
    std::vector<Rule> rules;
    rules.push_back(
        Rule("fc-matmul")
            .Match(Call(nn::kAdd, {product, Var("b")}))
            .Where(BiasFits, "the bias broadcasts to the product")
            .Replace(
                Call(nn::kGemm, {Var("a"), Var("w"), Var("b")}).Set("transA", x).Set("transB", y)));
    rules.push_back(
        Rule("fc-gemm")
            .Match(
                Call(nn::kAdd,
                     {gemm.Carry("alpha").Carry("transA").Carry("transB").Carry("beta"), Var("b")}))
            .Where(BiasFits, "the bias broadcasts to the product")
            .Replace(Call(nn::kGemm, {Var("a"), Var("w"), Var("b")})
                         .Carry("alpha")
                         .Carry("transA")
                         .Carry("transB")));
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(fc_fuse, FcFusePass)
    .Doc("makes a product of matrices and the addition of a bias one nn.gemm");

}  // namespace lathe
