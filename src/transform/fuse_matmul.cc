#include <algorithm>
#include <cmath>
#include <numeric>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

bool IsTrue(const RuleMatch& m, const char* name) {
  const auto value = m.attribute(name).dyn_cast<BoolAttribute>();
  return value && value.value();
}

// ---- rows of a tensor flattened for one product of matrices ----

/// x by an op that keeps the order of the elements.
Pat Flat() {
  const Pat x = Var("x");
  return Either({CallOneOf({nn::kReshape, nn::kSqueeze, nn::kUnsqueeze}, {x, Maybe("to_rows")})
                     .AnyAttributes()
                     .Shared(),
                 Call(nn::kFlatten, {x}).AnyAttributes().Shared()});
}

/// The result has the leading dims of x and then the columns of the product.
bool RowsAreLeadingDims(const RuleMatch& m) {
  const Value result = m.root()->result(0), product = m["product"];
  if (!RankOf(m["x"]) || !RankOf(result) || RankOf(m["w"]) != 2 || RankOf(product) != 2) {
    return false;
  }
  const auto x = DimsOf(m["x"]), y = DimsOf(result);
  if (y.size() < 3 || x.size() < y.size() || !ProvablyEqual(y.back(), DimsOf(product)[1])) {
    return false;
  }
  const size_t leading = y.size() - 1;
  if (!std::equal(y.begin(), y.begin() + static_cast<std::ptrdiff_t>(leading), x.begin(),
                  ProvablyEqual)) {
    return false;
  }
  const Dim inner = DimsOf(m["w"])[IsTrue(m, "transpose_y") ? 1 : 0];
  return inner.is_constant() && inner.value() > 0 &&
         ProvablyEqual(inner, std::accumulate(x.begin() + static_cast<std::ptrdiff_t>(leading),
                                              x.end(), Dim(1), std::multiplies<>()));
}

bool BiasIsARow(const RuleMatch& m) {
  if (!m.Has("b")) return true;
  const std::optional<int64_t> rank = RankOf(m["b"]);
  return rank && (*rank < 2 || (*rank == 2 && DimsOf(m["b"])[0].IsConstant(1)));
}

Value MakeRows(const RuleMatch& m, Rewriter& rewriter) {
  const auto rank = static_cast<size_t>(*RankOf(m.root()->result(0)));
  Value x = m["x"];
  if (static_cast<size_t>(*RankOf(x)) != rank) {
    std::vector<int64_t> shape(rank, 0);
    shape.back() = DimsOf(m["w"])[IsTrue(m, "transpose_y") ? 1 : 0].value();
    const Value operands[] = {
        x, rewriter.Constant(Tensor::Of<int64_t>({static_cast<int64_t>(rank)}, shape))};
    x = rewriter.Create(nn::kReshape, operands)->result(0);
  }
  const Value operands[] = {x, m["w"]};
  const NamedAttribute transposed =
      rewriter.Named("transpose_y", rewriter.Attr(IsTrue(m, "transpose_y")));
  const Value product = rewriter.Create(nn::kMatmul, operands, {&transposed, 1})->result(0);
  if (!m.Has("b")) return product;
  const Value sum[] = {product, m["b"]};
  return rewriter.Create(nn::kAdd, sum)->result(0);
}

void AddRows(std::vector<Rule>& rules) {
  const Pat product = Either(
      {Call(nn::kGemm, {Flat(), Var("w"), Maybe("b")}).Carry("transB", "transpose_y").As("product"),
       Call(nn::kAdd,
            {Call(nn::kMatmul, {Flat(), Var("w")}).Carry("transpose_y").As("product"), Var("b")}),
       Call(nn::kMatmul, {Flat(), Var("w")}).Carry("transpose_y").As("product")});
  rules.push_back(
      Rule("rows")
          .Match(CallOneOf({nn::kReshape, nn::kUnsqueeze}, {product, Var("from_rows")})
                     .AnyAttributes())
          .Where(BiasIsARow, "the bias is one row")
          .Where(RowsAreLeadingDims, "the rows are the leading dims of x and of the result")
          .Replace(Rule::Maker(MakeRows)));
}

// ---- transposes ----

/// The last two dims change places, the others stay.
bool SwapsLastTwo(Attribute perm) {
  const auto list = perm.dyn_cast<ArrayAttribute>();
  const std::optional<std::vector<int64_t>> order = list ? list.AsInts() : std::nullopt;
  if (!order || order->size() < 2) return false;
  const size_t n = order->size();
  for (size_t i = 0; i + 2 < n; ++i) {
    if ((*order)[i] != static_cast<int64_t>(i)) return false;
  }
  return (*order)[n - 1] == static_cast<int64_t>(n - 2);
}

Pat TransposeOf(const Pat& x) {
  const Pat matrix = x.If([](Value v) { return RankOf(v) == 2; }, "a matrix");
  return Either({Call(nn::kTranspose, {x})
                     .WithIf("perm", SwapsLastTwo, "the last two dims in each other's place")
                     .Shared(),
                 Call(nn::kTranspose, {matrix}).Shared()});
}

auto Flipped(const char* name) {
  return [name](const RuleMatch& m) { return BoolAttribute::Get(m.context(), !IsTrue(m, name)); };
}

Pat Matmul(const Pat& x, const Pat& y) { return Call(nn::kMatmul, {x, y}); }
Pat Gemm(const Pat& a, const Pat& b) {
  return Call(nn::kGemm, {a, b, Maybe("c")}).Carry("alpha").Carry("beta");
}

void AddTransposes(std::vector<Rule>& rules) {
  const Pat x = Var("x"), y = Var("y");
  rules.push_back(
      Rule("matmul-transpose-x")
          .Match(Matmul(TransposeOf(x), y).Carry("transpose_x").Carry("transpose_y"))
          .Replace(Matmul(x, y).Set("transpose_x", Flipped("transpose_x")).Carry("transpose_y")));
  rules.push_back(
      Rule("matmul-transpose-y")
          .Match(Matmul(x, TransposeOf(y)).Carry("transpose_x").Carry("transpose_y"))
          .Replace(Matmul(x, y).Carry("transpose_x").Set("transpose_y", Flipped("transpose_y"))));
  rules.push_back(Rule("gemm-transpose-a")
                      .Match(Gemm(TransposeOf(x), y).Carry("transA").Carry("transB"))
                      .Replace(Gemm(x, y).Set("transA", Flipped("transA")).Carry("transB")));
  rules.push_back(Rule("gemm-transpose-b")
                      .Match(Gemm(x, TransposeOf(y)).Carry("transA").Carry("transB"))
                      .Replace(Gemm(x, y).Carry("transA").Set("transB", Flipped("transB"))));
  const Pat product = Call(nn::kGemm, {x, y}).Carry("alpha").Carry("transA").Carry("transB");
  rules.push_back(
      Rule("transpose-of-gemm")
          .Match(Call(nn::kTranspose, {product})
                     .WithIf(
                         "perm", [](Attribute perm) { return !perm || SwapsLastTwo(perm); },
                         "the two dims in each other's place"))
          .Replace(Call(nn::kGemm, {y, x})
                       .Carry("alpha")
                       .Set("transA", Flipped("transB"))
                       .Set("transB", Flipped("transA"))));
}

// ---- scales ----

double Factor(const RuleMatch& m) {
  return m.Has("divisor") ? 1 / m.scalar("divisor") : m.scalar("factor");
}

auto Times(const char* name) {
  return [name](const RuleMatch& m) {
    return FloatAttribute::Get(m.context(),
                               m.attribute(name).cast<FloatAttribute>().value() * Factor(m));
  };
}

bool OfFloats(const RuleMatch& m) {
  return IsFloat(m["x"].type().cast<AnyTensorType>().element()) && std::isfinite(Factor(m));
}

bool IsPowerOfTwo(double value) {
  int exponent = 0;
  return std::fabs(std::frexp(value, &exponent)) == 0.5;
}

/// The product is multiplied by the factor as it was, with nothing added to it before.
bool ScalesTheSumAlone(const RuleMatch& m) {
  return !m.Has("c") && (!m.Has("divisor") || IsPowerOfTwo(m.scalar("divisor")));
}

/// Terms of the sum are multiplied instead of it, without rounding.
bool ScalesByAPowerOfTwo(const RuleMatch& m) { return IsPowerOfTwo(Factor(m)); }

void AddScales(std::vector<Rule>& rules, bool exact) {
  const auto always = [](const RuleMatch&) { return true; };
  const Rule::Condition of_sum = exact ? Rule::Condition(ScalesTheSumAlone) : always;
  const Rule::Condition of_terms = exact ? Rule::Condition(ScalesByAPowerOfTwo) : always;
  const Pat gemm = Gemm(Var("x"), Var("y")).Carry("transA").Carry("transB");
  const Pat scaled = Either({Call(nn::kMul, {Var("x"), Scalar("factor")}),
                             Call(nn::kDiv, {Var("x"), Scalar("divisor")})});
  rules.push_back(Rule("scale-of-gemm")
                      .Match(Call(nn::kMul, {gemm, Scalar("factor")}))
                      .Match(Call(nn::kDiv, {gemm, Scalar("divisor")}))
                      .Where(OfFloats, "it is of floats")
                      .Where(of_sum, "the product alone is scaled, as it would be by the gemm")
                      .Replace(Call(nn::kGemm, {Var("x"), Var("y"), Maybe("c")})
                                   .Set("alpha", Times("alpha"))
                                   .Set("beta", Times("beta"))
                                   .Carry("transA")
                                   .Carry("transB")));
  rules.push_back(Rule("gemm-of-scaled")
                      .Match(Gemm(scaled, Var("y")).Carry("transA").Carry("transB"))
                      .Match(Gemm(Var("y"), scaled).Carry("transA").Carry("transB"))
                      .Where(OfFloats, "it is of floats")
                      .Where(of_terms, "the factor is a power of two")
                      .Replace([](const RuleMatch& m, Rewriter& rewriter) {
                        const Operation* root = m.root();
                        std::vector<Value> operands{root->operand(0), root->operand(1)};
                        const bool left = operands[1] == m["y"] && operands[0] != m["y"];
                        operands[left ? 0 : 1] = m["x"];
                        if (m.Has("c")) operands.push_back(m["c"]);
                        const NamedAttribute attributes[] = {
                            rewriter.Named("alpha", Times("alpha")(m)),
                            rewriter.Named("beta", m.attribute("beta")),
                            rewriter.Named("transA", m.attribute("transA")),
                            rewriter.Named("transB", m.attribute("transB"))};
                        return rewriter.Create(nn::kGemm, operands, attributes)->result(0);
                      }));
}

}  // namespace

class FuseMatmulPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Rule> rules;
    AddRows(rules);
    AddTransposes(rules);
    AddScales(rules, option_bool("exact"));
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(fuse_matmul, FuseMatmulPass)
    .Doc("takes transposes, scales and the flattening of rows into products of matrices")
    .Details(
        "A transpose of the last two dims becomes an attribute, a factor of a gemm its alpha. Rows "
        "that are flattened for one product and restored behind it need not be: the product takes "
        "the tensor as it is, and the computed shape goes.")
    .Option("exact", PassOption::Kind::kBool, "false",
            "only rules that are true in floating point up to rounding");

}  // namespace lathe
