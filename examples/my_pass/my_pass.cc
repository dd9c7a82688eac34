// Passes in a library of one's own: `lathe opt --load libmine.so --passes my_pass`.
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "lathe/plugin.h"

namespace {

using namespace lathe;       // NOLINT: the words of a pass
using namespace lathe::pat;  // NOLINT: the words of a rule

/// x * clip(x + 3, 0, 6) / 6, as exporters write what MobileNetV3 calls h-swish.
Rule HardSwish() {
  const Pat shifted = Call("nn.add", {Var("x"), Scalar(3)});
  const Pat clipped = Call("nn.clip", {shifted, Scalar(0), Scalar(6)});
  return Rule("hard-swish")
      .Match(Call("nn.div", {Call("nn.mul", {Var("x"), clipped}), Scalar(6)}))
      .Replace(Call("nn.hard_swish", {Var("x")}));
}

class MyPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Rule> rules;
    rules.push_back(HardSwish());
    ApplyRules(graph.program(), this, std::move(rules));

    Rewriter rewriter(graph.program(), this);
    std::vector<Operation*> powers;
    for (OpWalker w(graph.program().module()); Operation* op = w.Next();) {
      if (op->name() == "nn.pow") powers.push_back(op);
    }
    for (Operation* op : powers) MakeProduct(op, rewriter);
  }

 private:
  /// x^3 -> x * x * x: what a declarative rule cannot say, because the result depends on a number.
  void MakeProduct(Operation* op, Rewriter& rewriter) {
    const Tensor* exponent = ConstantValue(rewriter.program(), op->operand(1));
    if (exponent == nullptr || exponent->num_elements() != 1 || exponent->rank() > 0) {
      return Missed(op, "the exponent is not one constant");
    }
    const double power = ToDoubles(*exponent)[0];
    const auto factors = static_cast<int64_t>(power);
    if (factors < 1 || power != static_cast<double>(factors)) {
      return Missed(op, StrCat("the exponent ", power, " is not a whole number above 0"));
    }
    if (factors > option_int("max_power")) {
      return Missed(op, StrCat("the exponent ", power, " is above max_power"));
    }
    const Rewriter::Replacing scope(rewriter, {&op, 1});
    const Value x = op->operand(0);
    Value product = x;
    for (int64_t i = 1; i < factors; ++i) {
      const Value operands[] = {product, x};
      product = rewriter.Create("nn.mul", operands)->result(0);
    }
    Applied(op, StrCat("written as ", factors - 1, " products"));
    Count("powers");
    rewriter.ReplaceOp(op, product);
  }
};
REGISTER_PASS(my_pass, MyPass)
    .Doc("makes h-swish one op and small powers products")
    .Details("The example of `examples/my_pass`.")
    .Option("max_power", PassOption::Kind::kInt, "3", "largest exponent to write as products");

/// Attributes are values of any C++ type that the program around the pass hands over.
class MyBudget : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const auto found = static_cast<int64_t>(graph.TopologySortOperations().size());
    const int64_t allowed = Get<int64_t>("ops");
    if (found <= allowed) return;
    throw Error(ErrorCode::kInvalidArgument, "my/budget",
                StrCat("the program has ", found, " ops, ", allowed, " are allowed"));
  }
};
REGISTER_PASS(my_budget, MyBudget)
    .Doc("fails when the program has more ops than its attribute 'ops' says")
    .RequirePassAttr("ops");

}  // namespace

/// Called when the library is loaded; a dialect of one's own would be registered here.
LATHE_PLUGIN(context) {}
