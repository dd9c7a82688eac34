#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rule.h"
#include "src/transform/rule_words.h"

namespace lathe {

namespace {

using namespace pat;  // NOLINT: the words of a rule

Pat Integer(const std::string& name) {
  return Var(name).If([](Value v) { return IsInteger(ElementOf(v)); }, "it is of integers");
}

Attribute TypeOfLike(const RuleMatch& m) {
  return TypeAttribute::Get(ElemType::Get(m.context(), ElementOf(m["like"])));
}

/// a > b or a == b, and with <.
Rule OrEqual(const std::string& strict, const std::string& result) {
  const std::vector<Pat> sides{Var("a"), Var("b")};
  return Rule(result)
      .Match(Call(nn::kOr, {Call("nn." + strict, sides), Call(nn::kEqual, sides)}))
      .Replace(Call("nn." + result, sides));
}

/// Not of a comparison of integers: those have no NaN, which is neither less nor not less.
Rule NotOf(const std::string& op, const std::string& opposite) {
  return Rule("not-" + op)
      .Match(Call(nn::kNot, {Call("nn." + op, {Integer("a"), Var("b")})}))
      .Replace(Call("nn." + opposite, {Var("a"), Var("b")}));
}

/// f of one operand is that operand.
Rule Alone(const std::string& op) {
  return Rule(op + "-of-one").Match(Call("nn." + op, {Var("x")})).Replace(Var("x"));
}

}  // namespace

class OneSpellingPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Rule> rules;
    rules.push_back(
        Rule("cast-like")
            .Match(
                Call(nn::kCastLike, {Var("x"), Var("like")}).Carry("saturate").Carry("round_mode"))
            .Replace(Call(nn::kCast, {Var("x")})
                         .Set("to", TypeOfLike)
                         .Carry("saturate")
                         .Carry("round_mode")));
    rules.push_back(Rule("sum-of-two")
                        .Match(Call(nn::kSum, {Var("a"), Var("b")}))
                        .Replace(Call(nn::kAdd, {Var("a"), Var("b")})));
    for (const char* op : {"sum", "mean", "max", "min"}) rules.push_back(Alone(op));
    rules.push_back(OrEqual("greater", "greater_or_equal"));
    rules.push_back(OrEqual("less", "less_or_equal"));
    rules.push_back(NotOf("less", "greater_or_equal"));
    rules.push_back(NotOf("greater", "less_or_equal"));
    rules.push_back(NotOf("less_or_equal", "greater"));
    rules.push_back(NotOf("greater_or_equal", "less"));
    rules.push_back(Rule("where-not")
                        .Match(Call(nn::kWhere, {Call(nn::kNot, {Var("c")}), Var("a"), Var("b")}))
                        .Replace(Call(nn::kWhere, {Var("c"), Var("b"), Var("a")})));
    rules.push_back(Rule("one-by")
                        .Match(Call(nn::kDiv, {Scalar(1), Float("x")}))
                        .Replace(Call(nn::kReciprocal, {Var("x")})));
    ApplyRules(graph.program(), this, std::move(rules));
  }
};

REGISTER_PASS(one_spelling, OneSpellingPass)
    .Doc("writes what has several spellings in one, so that patterns need to know only that")
    .Details(
        "CastLike becomes a cast, a sum of two an addition, \"greater or equal\" one comparison, a "
        "where of a negated condition a where with its sides changed, 1 / x a reciprocal.");

}  // namespace lathe
