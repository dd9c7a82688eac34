#include "lathe/dialect/nn/op_names.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

/// e / sum(e)
Pat Normalized(const Pat& exponential) {
  const Pat e = exponential.As("e");
  const Pat sum = Call(nn::kReduceSum, {e, Const("axes")});
  return Either({Call(nn::kDiv, {e, sum}), Call(nn::kMul, {e, Call(nn::kReciprocal, {sum})})});
}

bool OneAxis(const RuleMatch& m) {
  return m.constant("axes").num_elements() == 1 && AxisFromFront(m.ints("axes")[0], m["x"]);
}

Attribute Axis(const RuleMatch& m) { return IntAttribute::Get(m.context(), m.ints("axes")[0]); }

/// The greatest element is that along the axis of the sum.
bool SameAxis(const RuleMatch& m) {
  return m.constant("max_axes").num_elements() == 1 &&
         AxisFromFront(m.ints("max_axes")[0], m["x"]) == AxisFromFront(m.ints("axes")[0], m["x"]);
}

}  // namespace

class FuseSoftmaxPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const Pat softmax = Call(nn::kSoftmax, {Var("x")}).Set("axis", Axis);
    const Pat greatest = Call(nn::kReduceMax, {Var("x"), Const("max_axes")});
    std::vector<Rule> rules;
    rules.push_back(Rule("softmax-shifted", 2)
                        .Match(Normalized(Call(nn::kExp, {Call(nn::kSub, {Var("x"), greatest})})))
                        .Where(OneAxis, "the sum is over one axis of x")
                        .Where(SameAxis, "the maximum is along the axis of the sum")
                        .Replace(softmax));
    const Pat shifted = Call(nn::kSub, {Var("x"), greatest}).As("shifted");
    const auto log_sum = [](const Pat& v) {
      return Either({Call(nn::kLog, {Call(nn::kReduceSum, {Call(nn::kExp, {v}), Const("axes")})}),
                     Call(nn::kReduceLogSumExp, {v, Const("axes")}),
                     Call(nn::kReduceLogSum, {Call(nn::kExp, {v}), Const("axes")})});
    };
    const Pat log_softmax = Call(nn::kLogSoftmax, {Var("x")}).Set("axis", Axis);
    rules.push_back(Rule("log-softmax-shifted", 2)
                        .Match(Call(nn::kSub, {shifted, log_sum(shifted)}))
                        .Where(OneAxis, "the sum is over one axis of x")
                        .Where(SameAxis, "the maximum is along the axis of the sum")
                        .Replace(log_softmax));
    if (!option_bool("exact")) {
      // Without the maximum taken off powers overflow, and the logarithm of a power that is 0 is
      // infinite; the ops do neither.
      rules.push_back(Rule("softmax")
                          .Match(Normalized(Call(nn::kExp, {Var("x")})))
                          .Where(OneAxis, "the sum is over one axis of x")
                          .Replace(softmax));
      rules.push_back(Rule("log-softmax")
                          .Match(Call(nn::kLog, {Call(nn::kSoftmax, {Var("x")}).Carry("axis")}))
                          .Replace(Call(nn::kLogSoftmax, {Var("x")}).Carry("axis")));
      rules.push_back(Rule("log-softmax-sum")
                          .Match(Call(nn::kSub, {Var("x"), log_sum(Var("x"))}))
                          .Where(OneAxis, "the sum is over one axis of x")
                          .Replace(log_softmax));
    }
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(fuse_softmax, FuseSoftmaxPass)
    .Doc("recognizes softmax, with or without the maximum taken off, and its logarithm")
    .Option("exact", PassOption::Kind::kBool, "false",
            "only rules that are true in floating point up to rounding");

}  // namespace lathe
