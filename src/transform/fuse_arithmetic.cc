#include <algorithm>
#include <cmath>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/rule_words.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

/// Axes of a reduction, from the front; nothing if they are not constant.
std::optional<std::vector<int64_t>> AxesOf(const RuleMatch& m, const std::string& name, Value of) {
  std::vector<int64_t> axes = m.ints(name);
  for (int64_t& axis : axes) {
    const std::optional<int64_t> from_front = AxisFromFront(axis, of);
    if (!from_front) return std::nullopt;
    axis = *from_front;
  }
  return axes;
}

// ---- reductions ----

Pat Reduce(const std::string& op, const Pat& x) {
  return Call("nn." + op, {x, Maybe("axes")}).Carry("keepdims").Carry("noop_with_empty_axes");
}

/// Over no axis at all the outer part would still apply; that is another thing.
bool ReducesSomething(const RuleMatch& m) {
  const auto noop = m.attribute("noop_with_empty_axes").dyn_cast<BoolAttribute>();
  return !noop || !noop.value();
}

Rule Reduction(const std::string& name, Pat source, const std::string& op) {
  return Rule(name)
      .Match(std::move(source))
      .Where(ReducesSomething, "no axes mean all axes")
      .Replace(Reduce(op, Var("x")));
}

void AddReductions(std::vector<Rule>& rules, bool exact) {
  const Pat x = Float("x");
  const Pat square = Either({Call(nn::kMul, {x, x}), Call(nn::kPow, {x, Scalar(2)})});
  const Pat exp = Call(nn::kExp, {x});
  rules.push_back(Reduction("reduce-l1", Reduce("reduce_sum", Call(nn::kAbs, {x})), "reduce_l1"));
  rules.push_back(
      Reduction("reduce-sum-square", Reduce("reduce_sum", square), "reduce_sum_square"));
  rules.push_back(
      Reduction("reduce-l2", Call(nn::kSqrt, {Reduce("reduce_sum_square", x)}), "reduce_l2"));
  rules.push_back(
      Reduction("reduce-log-sum", Call(nn::kLog, {Reduce("reduce_sum", x)}), "reduce_log_sum"));
  if (exact) return;  // nn.reduce_log_sum_exp is finite where powers overflow
  rules.push_back(Reduction(
      "reduce-log-sum-exp",
      Either({Call(nn::kLog, {Reduce("reduce_sum", exp)}), Reduce("reduce_log_sum", exp)}),
      "reduce_log_sum_exp"));
}

double Rounded(double value, ElementType type) {
  return ToDoubles(Cast(Tensor::Scalar<double>(value), type))[0];
}

/// The mean as the sum by the number of elements, or times what rounding has left of 1 by it.
bool DividesByCount(const RuleMatch& m) {
  const auto axes = AxesOf(m, "axes", m["x"]);
  if (!axes || axes->empty() || !IsFloat(m["x"].type().cast<AnyTensorType>().element())) {
    return false;
  }
  Dim count(1);
  for (const int64_t axis : *axes) count *= DimsOf(m["x"])[static_cast<size_t>(axis)];
  if (!count.is_constant() || count.value() < 1) return false;
  const auto number = static_cast<double>(count.value());
  return m.Has("count") ? m.scalar("count") == number
                        : m.scalar("part") == Rounded(1 / number, ElementOf(m["x"]));
}

/// The dims that a squeeze takes out are those that the reduction has left as 1.
bool SqueezesTheReduced(const RuleMatch& m) {
  const auto axes = AxesOf(m, "axes", m["x"]), squeezed = AxesOf(m, "squeezed", m["x"]);
  return axes && squeezed && !axes->empty() &&
         std::is_permutation(axes->begin(), axes->end(), squeezed->begin(), squeezed->end());
}

void AddAroundReductions(std::vector<Rule>& rules) {
  const auto reduce = [](const std::string& op) {
    return Call(op, {Var("x"), Const("axes")}).Carry("keepdims");
  };
  rules.push_back(Rule("reduce-mean")
                      .Match(Call(nn::kDiv, {reduce(nn::kReduceSum), Scalar("count")}))
                      .Match(Call(nn::kMul, {reduce(nn::kReduceSum), Scalar("part")}))
                      .Where(DividesByCount, "it is divided by the number of elements")
                      .Replace(reduce(nn::kReduceMean)));
  for (const char* op :
       {"sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp"}) {
    const std::string name = std::string("nn.reduce_") + op;
    const Pat kept = Call(name, {Var("x"), Const("axes")});
    rules.push_back(Rule(std::string("squeeze-of-reduce-") + op)
                        .Match(Call(nn::kSqueeze, {kept, Const("squeezed")}))
                        .Where(SqueezesTheReduced, "the dims that were reduced are taken out")
                        .Replace(kept.With("keepdims", false)));
  }
}

// ---- powers ----

/// Loops hold constants but not parameters, and some powers are products and roots.
void AddPowers(std::vector<Rule>& rules) {
  const auto is_parameter = [](const RuleMatch& m) {
    return m.Has("exponent") && m.op("exponent") != nullptr &&
           m.op("exponent")->isa<builtin::GetParameterOp>();
  };
  const auto make = [](const RuleMatch& m, Rewriter& rewriter) -> Value {
    return nn::PowOp::Create(rewriter, m["x"], rewriter.Constant(m.constant("exponent"))).c();
  };
  rules.push_back(Rule("power-of-parameter")
                      .Match(Call(nn::kPow, {Var("x"), Scalar("exponent")}))
                      .Where(is_parameter, "the exponent is a parameter")
                      .Replace(make)
                      .Quiet());
}

// ---- signs and quotients ----

void AddSigns(std::vector<Rule>& rules, bool exact) {
  const Pat x = Var("x"), y = Var("y");
  const Pat minus = Either({Call(nn::kNeg, {y}), Call(nn::kMul, {y, Scalar(-1)})});
  rules.push_back(
      Rule("add-of-negative").Match(Call(nn::kAdd, {x, minus})).Replace(Call(nn::kSub, {x, y})));
  rules.push_back(
      Rule("sub-of-negative").Match(Call(nn::kSub, {x, minus})).Replace(Call(nn::kAdd, {x, y})));
  if (exact) return;  // a reciprocal may be infinite where the quotient is not
  rules.push_back(Rule("mul-by-reciprocal")
                      .Match(Call(nn::kMul, {Float("x"), Call(nn::kReciprocal, {y})}))
                      .Replace(Call(nn::kDiv, {x, y})));
  rules.push_back(Rule("div-by-reciprocal")
                      .Match(Call(nn::kDiv, {Float("x"), Call(nn::kReciprocal, {y})}))
                      .Replace(Call(nn::kMul, {x, y})));
}

}  // namespace

class FuseArithmeticPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Rule> rules;
    AddReductions(rules, option_bool("exact"));
    AddAroundReductions(rules);
    AddPowers(rules);
    AddSigns(rules, option_bool("exact"));
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(fuse_arithmetic, FuseArithmeticPass)
    .Doc("makes one op of what is left of sums of squares, means, negatives and reciprocals")
    .Details(
        "Norms and logarithms of sums as one reduction, sums by the number of elements as a mean, "
        "dims left by a reduction and then taken out; x + (-y), x * (1 / y) and the like. A "
        "parameter that is an exponent becomes a constant of the loops.")
    .Option("exact", PassOption::Kind::kBool, "false",
            "only rules that are true in floating point up to rounding");

}  // namespace lathe
