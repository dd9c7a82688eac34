#include "lathe/pass/rule.h"

#include <gtest/gtest.h>

#include "lathe/dialect/all.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/pass/pass_manager.h"

namespace lathe {
namespace {

using namespace pat;  // NOLINT: the words of a rule

class RuleTest : public ::testing::Test {
 protected:
  RuleTest() { LoadAllDialects(context); }

  /// A program of `body` on feeds x, y, z : f32[4]; `%T` stands for that type.
  Program Parse(const std::string& body) {
    std::string text = "program {\n";
    for (const char* name : {"x", "y", "z"}) {
      text += StrCat("  %", name, " = nn.feed() {name = \"", name, "\"} : () -> %T\n");
    }
    text += body + "\n}";
    for (size_t at; (at = text.find("%T")) != std::string::npos;) {
      text.replace(at, 2, "v_tensor<[4], f32>");
    }
    return ParseProgram(context, text);
  }
  int64_t Apply(Program& p, Rule rule) {
    std::vector<Rule> rules;
    rules.push_back(std::move(rule));
    const int64_t count = ApplyRules(p, nullptr, std::move(rules));
    VerifyOrThrow(p);
    return count;
  }
  static int Count(const Program& p, std::string_view name) {
    int n = 0;
    for (const Operation& op : *p.block()) n += op.name() == name ? 1 : 0;
    return n;
  }
  static std::string IdOf(const std::function<void()>& run) {
    try {
      run();
    } catch (const Error& e) {
      return e.id();
    }
    return "none";
  }
  IrContext context;
};

constexpr const char* kExpNeg = R"(
  %e = nn.exp(%x) : (%T) -> %T
  %n = nn.neg(%y) : (%T) -> %T
)";

// A commutative operand stands on either side; a non-commutative one does not.
TEST_F(RuleTest, CommutativeOperandsMatchBothWays) {
  for (const char* add :
       {"%s = nn.add(%e, %n) : (%T, %T) -> %T", "%s = nn.add(%n, %e) : (%T, %T) -> %T"}) {
    Program p = Parse(std::string(kExpNeg) + add + "\n nn.fetch(%s) {name = \"s\"} : (%T) -> ()");
    EXPECT_EQ(Apply(p, Rule("r")
                           .Match(Call("nn.add",
                                       {Call("nn.exp", {Var("a")}), Call("nn.neg", {Var("b")})}))
                           .Replace(Call("nn.sub", {Var("a"), Var("b")}))),
              1);
    const Operation* sub = p.block()->back()->prev();
    EXPECT_EQ(sub->name(), "nn.sub");
    EXPECT_EQ(sub->operand(0), p.block()->front()->result(0));
  }
  Program p =
      Parse(std::string(kExpNeg) +
            "%s = nn.sub(%n, %e) : (%T, %T) -> %T\n nn.fetch(%s) {name = \"s\"} : (%T) -> ()");
  EXPECT_EQ(
      Apply(p, Rule("r")
                   .Match(Call("nn.sub", {Call("nn.exp", {Var("a")}), Call("nn.neg", {Var("b")})}))
                   .Replace(Var("a"))),
      0);
}

// mul(x, y) + mul(y, z) with the shared factor bound first: the first binding of `c` (x) fails at
// the second product, the second (y) holds.
TEST_F(RuleTest, BacktracksIntoCommutativeOperands) {
  Program p = Parse(R"(
    %a = nn.mul(%x, %y) : (%T, %T) -> %T
    %b = nn.mul(%z, %y) : (%T, %T) -> %T
    %s = nn.add(%a, %b) : (%T, %T) -> %T
    nn.fetch(%s) {name = "s"} : (%T) -> ())");
  EXPECT_EQ(
      Apply(p, Rule("distribute")
                   .Match(Call("nn.add", {Call("nn.mul", {Var("c"), Var("u")}),
                                          Call("nn.mul", {Var("c"), Var("v")})}))
                   .Replace(Call("nn.mul", {Var("c"), Call("nn.add", {Var("u"), Var("v")})}))),
      1);
  EXPECT_EQ(Count(p, "nn.mul"), 1);
  EXPECT_EQ(p.block()->back()->prev()->operand(0), p.block()->front()->next()->result(0));  // y
}

// A constraint that fails sends the matcher back as well.
TEST_F(RuleTest, BacktracksWhenAConstraintFails) {
  Program p = Parse(R"(
    %s = nn.add(%x, %y) : (%T, %T) -> %T
    nn.fetch(%s) {name = "s"} : (%T) -> ())");
  const Value y = p.block()->front()->next()->result(0);
  EXPECT_EQ(Apply(p, Rule("pick")
                         .Match(Call("nn.add", {Var("a"), Var("b")}))
                         .Where([y](const RuleMatch& m) { return m["a"] == y; }, "a is y")
                         .Replace(Call("nn.neg", {Var("a")}))),
            1);
  EXPECT_EQ(p.block()->back()->prev()->operand(0), y);
}

TEST_F(RuleTest, OptionalAndAlternativeOps) {
  const auto rule = [] {
    const Pat inner = Optional([](const Pat& x) { return Call("nn.neg", {x}); }, Var("a"));
    return Rule("r")
        .Match(Call("nn.exp", {Either({Call("nn.abs", {inner}), Call("nn.relu", {inner})})}))
        .Replace(Call("nn.sqrt", {Var("a")}));
  };
  for (const char* inner : {"%i = nn.identity(%x) : (%T) -> %T\n %r = nn.relu(%x) : (%T) -> %T",
                            "%i = nn.neg(%x) : (%T) -> %T\n %r = nn.abs(%i) : (%T) -> %T"}) {
    Program p = Parse(std::string(inner) +
                      "\n %e = nn.exp(%r) : (%T) -> %T\n nn.fetch(%e) {name = \"e\"} : (%T) -> ()");
    EXPECT_EQ(Apply(p, rule()), 1);
    EXPECT_EQ(p.block()->back()->prev()->operand(0), p.block()->front()->result(0));
    EXPECT_EQ(Count(p, "nn.neg"), 0);
  }
  Program p = Parse(R"(
    %r = nn.sin(%x) : (%T) -> %T
    %e = nn.exp(%r) : (%T) -> %T
    nn.fetch(%e) {name = "e"} : (%T) -> ())");
  EXPECT_EQ(Apply(p, rule()), 0);
}

// A chain is taken at its longest, once, also when it is long.
TEST_F(RuleTest, ChainsAreTakenAtTheirLongest) {
  constexpr int kLength = 2000;
  std::string body = "%v0 = nn.neg(%x) : (%T) -> %T\n";
  for (int i = 1; i <= kLength; ++i) {
    body += StrCat("%v", i, " = nn.relu(%v", i - 1, ") : (%T) -> %T\n");
  }
  body +=
      StrCat("%e = nn.exp(%v", kLength, ") : (%T) -> %T\nnn.fetch(%e) {name = \"e\"} : (%T) -> ()");
  Program p = Parse(body);
  size_t links = 0;
  const Pat link = Call("nn.relu", {Next()}).As("link");
  EXPECT_EQ(Apply(p, Rule("chain")
                         .Match(Call("nn.exp", {Chain(link, Var("from"), 2)}))
                         .Replace([&](const RuleMatch& m, Rewriter& rewriter) {
                           links = m.values("link").size();
                           const Value from = m["from"];
                           return rewriter.Create("nn.exp", {&from, 1})->result(0);
                         })),
            1);
  EXPECT_EQ(links, static_cast<size_t>(kLength));
  EXPECT_EQ(Count(p, "nn.relu"), 0);
  // What is left has fewer links than asked for.
  Program q = Parse(R"(
    %r = nn.relu(%x) : (%T) -> %T
    %e = nn.exp(%r) : (%T) -> %T
    nn.fetch(%e) {name = "e"} : (%T) -> ())");
  EXPECT_EQ(
      Apply(
          q,
          Rule("chain").Match(Call("nn.exp", {Chain(link, Var("from"), 2)})).Replace(Var("from"))),
      0);
}

// fc(relu) n times and a last fc: one chain over all but the last, however long (the predecessor
// stopped at ten).
TEST_F(RuleTest, RepeatedLayersAreOneChain) {
  for (const int n : {3, 9, 12}) {
    std::string text = R"(program {
      %w = nn.feed() {name = "w"} : () -> v_tensor<[2, 2], f32>
      %b = nn.feed() {name = "b"} : () -> v_tensor<[2], f32>
      %x0 = nn.feed() {name = "x"} : () -> v_tensor<[2, 2], f32>
)";
    const std::string t = "v_tensor<[2, 2], f32>";
    for (int i = 0; i < n; ++i) {
      text += StrCat("%g", i, " = nn.gemm(%x", i, ", %w, %b) : (", t, ", ", t,
                     ", v_tensor<[2], f32>) -> ", t, "\n");
      const char* act = i + 1 < n ? "nn.relu" : "nn.identity";
      text += StrCat("%x", i + 1, " = ", act, "(%g", i, ") : (", t, ") -> ", t, "\n");
    }
    text += StrCat("nn.fetch(%x", n, ") {name = \"y\"} : (", t, ") -> ()\n}");
    Program p = ParseProgram(context, text);
    const Pat link = Call("nn.relu", {Call("nn.gemm", {Next(), Var("ws"), Var("bs")})});
    const Pat last = Call("nn.gemm", {Chain(link, Var("x"), 1), Var("w"), Var("b")}).As("last");
    size_t layers = 0;
    Apply(p, Rule("repeated")
                 .Match(Call("nn.identity", {last}))
                 .Replace([&](const RuleMatch& m, Rewriter&) {
                   layers = m.values("ws").size();
                   EXPECT_EQ(m.values("bs").size(), layers);
                   EXPECT_EQ(m.ops().size(), 2 * layers + 2);
                   return Value();
                 }));
    EXPECT_EQ(layers, static_cast<size_t>(n - 1));
  }
}

// The chain must end in neg: the last link that is a neg itself is given back.
TEST_F(RuleTest, ChainsGiveLinksBack) {
  Program p = Parse(R"(
    %a = nn.neg(%x) : (%T) -> %T
    %b = nn.neg(%a) : (%T) -> %T
    %c = nn.neg(%b) : (%T) -> %T
    %e = nn.exp(%c) : (%T) -> %T
    nn.fetch(%e) {name = "e"} : (%T) -> ())");
  size_t links = 0;
  EXPECT_EQ(Apply(p, Rule("chain")
                         .Match(Call("nn.exp", {Chain(Call("nn.neg", {Next()}).As("link"),
                                                      Call("nn.neg", {Var("from")}))}))
                         .Replace([&](const RuleMatch& m, Rewriter&) {
                           links = m.values("link").size();
                           return m["from"];
                         })),
            1);
  EXPECT_EQ(links, 2u);
}

// A name stands for one value within a link, also on the other side of the rest of the chain.
TEST_F(RuleTest, NamesOfALinkAroundTheChain) {
  const auto links = [&](const char* last) {
    Program p = Parse(StrCat(R"(
      %a = nn.sub(%y, %x) : (%T, %T) -> %T
      %b = nn.pow(%a, )",
                             last, R"() : (%T, %T) -> %T
      %e = nn.exp(%b) : (%T) -> %T
      nn.fetch(%e) {name = "e"} : (%T) -> ())"));
    const Pat link = Call("nn.pow", {Call("nn.sub", {Var("c"), Next()}), Var("c")});
    size_t count = 0;
    Apply(p, Rule("chain")
                 .Match(Call("nn.exp", {Chain(link, Var("from"))}))
                 .Replace([&](const RuleMatch& m, Rewriter&) {
                   count = m.values("c").size();
                   return Value();
                 }));
    return count;
  };
  EXPECT_EQ(links("%y"), 1u);
  EXPECT_EQ(links("%z"), 0u);
}

TEST_F(RuleTest, VariadicOperands) {
  const auto program = [&](const char* last) {
    return Parse(StrCat(R"(
      %a = nn.relu(%x) : (%T) -> %T
      %b = nn.relu(%y) : (%T) -> %T
      %c = )",
                        last, R"( : (%T) -> %T
      %s = nn.concat(%a, %b, %c) {axis = 0} : (%T, %T, %T) -> v_tensor<[12], f32>
      nn.fetch(%s) {name = "s"} : (v_tensor<[12], f32>) -> ())"));
  };
  const auto rule = [] {
    return Rule("hoist")
        .Match(Call("nn.concat", {Rest(Call("nn.relu", {Var("xs")}), 2)}).Carry("axis"))
        .Replace(Call("nn.relu", {Call("nn.concat", {Rest(Var("xs"))}).Carry("axis")}));
  };
  Program p = program("nn.relu(%z)");
  EXPECT_EQ(Apply(p, rule()), 1);
  EXPECT_EQ(Count(p, "nn.relu"), 1);
  EXPECT_EQ(p.block()->back()->prev()->prev()->num_operands(), 3u);
  Program q = program("nn.neg(%z)");
  EXPECT_EQ(Apply(q, rule()), 0);
}

TEST_F(RuleTest, AbsentAndPresentOperands) {
  const char* text = R"(program {
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 2, 5], f32>
    %w = nn.feed() {name = "w"} : () -> v_tensor<[3, 2, 3], f32>
    %b = nn.feed() {name = "b"} : () -> v_tensor<[3], f32>
    %0 = nn.conv(%x, %w, %b) : (v_tensor<[1, 2, 5], f32>, v_tensor<[3, 2, 3], f32>, v_tensor<[3], f32>) -> v_tensor<[1, 3, 3], f32>
    nn.fetch(%0) {name = "y"} : (v_tensor<[1, 3, 3], f32>) -> ()
  })";
  const auto matches = [&](std::vector<Pat> operands) {
    Program p = ParseProgram(context, text);
    bool found = false;
    Apply(p, Rule("r")
                 .Match(Call("nn.conv", std::move(operands)))
                 .Replace([&](const RuleMatch& m, Rewriter&) {
                   found = m.Has("x");
                   return Value();  // after all not
                 }));
    return found;
  };
  EXPECT_FALSE(matches({Var("x"), Var("w")}));  // a further operand is there
  EXPECT_FALSE(matches({Var("x"), Var("w"), Absent()}));
  EXPECT_TRUE(matches({Var("x"), Var("w"), Maybe("b")}));
  EXPECT_TRUE(matches({Var("x"), Var("w"), Var("b"), Absent()}));
  EXPECT_FALSE(matches({Var("x"), Var("w"), Maybe("b"), Var("more")}));
}

// An op that is read elsewhere refuses the match unless the pattern says that it may.
TEST_F(RuleTest, SharedOpsStay) {
  const char* body = R"(
    %e = nn.exp(%x) : (%T) -> %T
    %n = nn.neg(%e) : (%T) -> %T
    nn.fetch(%e) {name = "e"} : (%T) -> ()
    nn.fetch(%n) {name = "n"} : (%T) -> ())";
  Program p = Parse(body);
  const Pat exp = Call("nn.exp", {Var("a")});
  EXPECT_EQ(Apply(p, Rule("r").Match(Call("nn.neg", {exp})).Replace(Call("nn.abs", {Var("a")}))),
            0);
  EXPECT_EQ(
      Apply(p, Rule("r").Match(Call("nn.neg", {exp.Shared()})).Replace(Call("nn.abs", {Var("a")}))),
      1);
  EXPECT_EQ(Count(p, "nn.exp"), 1);
  EXPECT_EQ(Count(p, "nn.neg"), 0);
}

TEST_F(RuleTest, AttributesMustHaveTheirDefaults) {
  const char* body = R"(
    %r = nn.leaky_relu(%x) {alpha = 0.5} : (%T) -> %T
    nn.fetch(%r) {name = "r"} : (%T) -> ())";
  const auto count = [&](const Pat& source) {
    Program p = Parse(body);
    return Apply(p, Rule("r").Match(source).Replace(Call("nn.relu", {Var("a")})));
  };
  const Pat leaky = Call("nn.leaky_relu", {Var("a")});
  EXPECT_EQ(count(leaky), 0);
  EXPECT_EQ(count(leaky.With("alpha", AttrLiteral(0.5))), 1);
  EXPECT_EQ(count(leaky.With("alpha", AttrLiteral(0.25))), 0);
  EXPECT_EQ(
      count(leaky.WithIf(
          "alpha", [](Attribute a) { return a.cast<FloatAttribute>().value() > 0; }, "positive")),
      1);
  EXPECT_EQ(count(leaky.AnyAttributes()), 1);
  Program p = Parse(body);
  EXPECT_EQ(Apply(p, Rule("carry")
                         .Match(leaky.Carry("alpha", "slope"))
                         .Replace(Call("nn.elu", {Var("a")}).Carry("alpha", "slope"))),
            1);
  EXPECT_EQ(p.block()->back()->prev()->attribute("alpha"), FloatAttribute::Get(context, 0.5));
}

TEST_F(RuleTest, MisspeltNamesAreErrors) {
  Program p = Parse("nn.fetch(%x) {name = \"x\"} : (%T) -> ()");
  EXPECT_EQ(
      IdOf([&] {
        Apply(
            p,
            Rule("r").Match(Call("nn.leaky_relu", {Var("a")}).With("alhpa", 1)).Replace(Var("a")));
      }),
      "rule/attribute");
  EXPECT_NE(IdOf([&] { Apply(p, Rule("r").Match(Call("nn.rleu", {Var("a")})).Replace(Var("a"))); }),
            "none");
}

// The result does not have the type: refused, and nothing of it is left.
TEST_F(RuleTest, ResultsOfAnotherTypeAreRefused) {
  Program p = Parse(R"(
    %e = nn.exp(%x) : (%T) -> %T
    nn.fetch(%e) {name = "e"} : (%T) -> ())");
  const std::string before = Print(p);
  EXPECT_EQ(Apply(p, Rule("r")
                         .Match(Call("nn.exp", {Var("a")}))
                         .Replace(Call("nn.concat", {Var("a"), Var("a")}).With("axis", 0))),
            0);
  EXPECT_EQ(Print(p), before);
}

// At one root the greater benefit wins, whatever the order in which rules were given.
TEST_F(RuleTest, BenefitDecidesAtOneRoot) {
  Program p = Parse(R"(
    %a = nn.neg(%x) : (%T) -> %T
    %e = nn.exp(%a) : (%T) -> %T
    nn.fetch(%e) {name = "e"} : (%T) -> ())");
  std::vector<Rule> rules;
  rules.push_back(
      Rule("small").Match(Call("nn.exp", {Var("a")})).Replace(Call("nn.sqrt", {Var("a")})));
  rules.push_back(Rule("large", 2)
                      .Match(Call("nn.exp", {Call("nn.neg", {Var("a")})}))
                      .Replace(Call("nn.abs", {Var("a")})));
  EXPECT_EQ(ApplyRules(p, nullptr, std::move(rules)), 1);
  EXPECT_EQ(Count(p, "nn.abs"), 1);
}

// Tensors that may be written to are left alone.
TEST_F(RuleTest, MutableTensorsDoNotMatch) {
  Program p = ParseProgram(context, R"(program {
    %x = nn.feed() {name = "x"} : () -> tensor<[4], f32>
    %a = nn.neg(%x) : (tensor<[4], f32>) -> tensor<[4], f32>
    nn.fetch(%a) {name = "a"} : (tensor<[4], f32>) -> ()
  })");
  EXPECT_EQ(Apply(p, Rule("r").Match(Call("nn.neg", {Var("a")})).Replace(Var("a"))), 0);
}

// A parameter that the program writes is no constant: training programs keep their weights.
TEST_F(RuleTest, MutableParametersAreNoConstants) {
  for (const bool training : {false, true}) {
    Program p = Parse(R"(
      %w = builtin.get_parameter() {name = "w"} : () -> %T
      %m = nn.mul(%x, %w) : (%T, %T) -> %T
      nn.fetch(%m) {name = "m"} : (%T) -> ())");
    p.parameters().Set(StrAttribute::Get(context, "w"),
                       {Tensor::Of<float>({4}, {1, 1, 1, 1}), training});
    const int64_t count = Apply(
        p, Rule("times-one")
               .Match(Call("nn.mul", {Var("a"), Const("w")}))
               .Where([](const RuleMatch& m) { return m.constant("w").data<float>()[0] == 1; },
                      "w is 1")
               .Replace(Var("a")));
    EXPECT_EQ(count, training ? 0 : 1);
  }
}

// A fused convolution of a shared filter leaves the filter of the other one as it was.
TEST_F(RuleTest, SharedWeightsAreNotOverwritten) {
  Program p = ParseProgram(context, R"(program {
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 1, 4], f32>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[1, 1, 2], f32>
    %c = builtin.constant() {value = tensor<[1], f32> [4.0]} : () -> v_tensor<[1], f32>
    %0 = nn.conv(%x, %w) : (v_tensor<[1, 1, 4], f32>, v_tensor<[1, 1, 2], f32>) -> v_tensor<[1, 1, 3], f32>
    %1 = nn.batch_normalization(%0, %c, %c, %c, %c) : (v_tensor<[1, 1, 3], f32>, v_tensor<[1], f32>, v_tensor<[1], f32>, v_tensor<[1], f32>, v_tensor<[1], f32>) -> v_tensor<[1, 1, 3], f32>
    %2 = nn.conv(%x, %w) : (v_tensor<[1, 1, 4], f32>, v_tensor<[1, 1, 2], f32>) -> v_tensor<[1, 1, 3], f32>
    nn.fetch(%1) {name = "a"} : (v_tensor<[1, 1, 3], f32>) -> ()
    nn.fetch(%2) {name = "b"} : (v_tensor<[1, 1, 3], f32>) -> ()
  })");
  const Tensor filter = Tensor::Of<float>({1, 1, 2}, {1, -1});
  p.parameters().Set(StrAttribute::Get(context, "w"), {filter, false});
  PassManager manager({.verify_each = true});
  manager.Add("conv_bn_fuse");
  manager.Run(p);
  EXPECT_EQ(Count(p, "nn.batch_normalization"), 0);
  EXPECT_EQ(p.parameters().Find("w")->data, filter);
  EXPECT_EQ(Count(p, "nn.conv"), 2);
  EXPECT_NE(p.parameters().Find("w.1"), nullptr);
}

}  // namespace
}  // namespace lathe
