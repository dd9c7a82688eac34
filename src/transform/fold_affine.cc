#include <algorithm>
#include <cmath>

#include "lathe/dialect/interpreter.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/conv_constants.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

/// Larger results become parameters, not constants in the text.
constexpr size_t kConstantBytes = 4096;

bool IsFinite(const Tensor& t) {
  const std::vector<double> all = ToDoubles(t);
  return std::all_of(all.begin(), all.end(), [](double v) { return std::isfinite(v); });
}

/// `a op b` as a new constant; null if it is not finite.
Value Computed(Rewriter& r, const char* name, const Tensor& a, const Tensor& b) {
  const Value operands[] = {r.Constant(a), r.Constant(b)};
  Operation* op = r.Create(name, operands);
  const RtValue inputs[] = {a, b};
  const Tensor result = EvalOp(op, inputs)[0].tensor();
  r.EraseDead(op);
  if (!IsFinite(result)) return {};
  return result.byte_size() <= kConstantBytes ? r.Constant(result) : r.Parameter("folded", result);
}

Value Call2(Rewriter& r, const char* name, Value a, Value b) {
  const Value operands[] = {a, b};
  return r.Create(name, operands)->result(0);
}

/// The constants are of floating type and leave the shape of x as it is.
bool KeepsX(const RuleMatch& m) {
  const auto type = m["x"].type().dyn_cast<AnyTensorType>();
  return type && type.has_rank() && IsFloat(type.element()) &&
         SameKnownType(m.root()->result(0), m["x"]);
}

/// outer(inner(x, c1), c2) = result(x, c): `combine` makes c of c1 and c2, or of c2 and c1.
Rule ChainRule(const char* name, const char* outer, const char* inner, const char* result,
               const char* combine, bool swap) {
  return Rule(name)
      .Match(Call(outer, {Call(inner, {Var("x"), Const("c1")}), Const("c2")}))
      .Where(KeepsX, "the constants do not enlarge it")
      .Replace([=](const RuleMatch& m, Rewriter& r) -> Value {
        const Tensor a = m.constant(swap ? "c2" : "c1"), b = m.constant(swap ? "c1" : "c2");
        const Value c = Computed(r, combine, a, b);
        return c ? Call2(r, result, m["x"], c) : Value();
      })
      .Quiet();
}

/// (x c1 + c2) c3 = x (c1 c3) + c2 c3.
Rule MulAddMulRule() {
  return Rule("mul-add-mul")
      .Match(Call(nn::kMul, {Call(nn::kAdd, {Call(nn::kMul, {Var("x"), Const("c1")}), Const("c2")}),
                             Const("c3")}))
      .Where(KeepsX, "the constants do not enlarge it")
      .Replace([](const RuleMatch& m, Rewriter& r) -> Value {
        const Value s = Computed(r, nn::kMul, m.constant("c1"), m.constant("c3"));
        const Value t = Computed(r, nn::kMul, m.constant("c2"), m.constant("c3"));
        if (!s || !t) return {};
        return Call2(r, nn::kAdd, Call2(r, nn::kMul, m["x"], s), t);
      })
      .Quiet();
}

}  // namespace

class FoldAffinePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Rule> rules;
    rules.push_back(ChainRule("add-add", nn::kAdd, nn::kAdd, nn::kAdd, nn::kAdd, false));
    rules.push_back(ChainRule("sub-add", nn::kSub, nn::kAdd, nn::kAdd, nn::kSub, false));
    rules.push_back(ChainRule("add-sub", nn::kAdd, nn::kSub, nn::kAdd, nn::kSub, true));
    rules.push_back(ChainRule("sub-sub", nn::kSub, nn::kSub, nn::kSub, nn::kAdd, false));
    rules.push_back(ChainRule("mul-mul", nn::kMul, nn::kMul, nn::kMul, nn::kMul, false));
    rules.push_back(ChainRule("div-mul", nn::kDiv, nn::kMul, nn::kMul, nn::kDiv, false));
    rules.push_back(ChainRule("mul-div", nn::kMul, nn::kDiv, nn::kMul, nn::kDiv, true));
    rules.push_back(ChainRule("div-div", nn::kDiv, nn::kDiv, nn::kDiv, nn::kMul, false));
    rules.push_back(MulAddMulRule());
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(fold_affine, FoldAffinePass)
    .Doc("makes chains of additions and multiplications by constants one of each")
    .Details(
        "(x + a) + b is x + (a + b), (x a) b is x (a b), (x a + b) c is x (a c) + b c, and so with "
        "subtraction and division: equal but for rounding, which may be all that is left of a "
        "small "
        "result. Chains with a constant that is not finite, or would become so, stay, and so do "
        "integers.");

}  // namespace lathe
