#include "lathe/pass/pattern_detector.h"

#include <gtest/gtest.h>

#include "lathe/dialect/all.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {
namespace {

using subgraph_t = GraphPatternDetector::subgraph_t;

/// o1 -> v1 -> o2 -> v2 -> {o3, o4}; o2 -> v3 -> o5; o3 -> v4 -> o5, with an op type for each.
constexpr const char* kBase = R"(program {
  %v1 = t.o1() : () -> f32
  %v2, %v3 = t.o2(%v1) : (f32) -> (f32, f32)
  %v4 = t.o3(%v2) : (f32) -> f32
  %v5 = t.o4(%v2) : (f32) -> f32
  %v6 = t.o5(%v3, %v4) : (f32, f32) -> f32
  t.keep(%v5, %v6) : (f32, f32) -> ()
})";

constexpr const char* kTwoFc = R"(program {
  %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 4], f32>
  %w = nn.feed() {name = "w"} : () -> v_tensor<[4, 4], f32>
  %b = nn.feed() {name = "b"} : () -> v_tensor<[4], f32>
  %0 = nn.matmul(%x, %w) : (v_tensor<[2, 4], f32>, v_tensor<[4, 4], f32>) -> v_tensor<[2, 4], f32>
  %1 = nn.add(%0, %b) : (v_tensor<[2, 4], f32>, v_tensor<[4], f32>) -> v_tensor<[2, 4], f32>
  %2 = nn.matmul(%1, %w) : (v_tensor<[2, 4], f32>, v_tensor<[4, 4], f32>) -> v_tensor<[2, 4], f32>
  %3 = nn.add(%b, %2) : (v_tensor<[4], f32>, v_tensor<[2, 4], f32>) -> v_tensor<[2, 4], f32>
  nn.fetch(%3) {name = "y"} : (v_tensor<[2, 4], f32>) -> ()
})";

class PatternDetectorTest : public ::testing::Test {
 protected:
  PatternDetectorTest() {
    LoadAllDialects(context);
    context.allow_unregistered_ops(true);
  }
  Program Parse(const char* text) { return ParseProgram(context, text); }
  static std::string IdOf(const std::function<void()>& run) {
    try {
      run();
    } catch (const Error& e) {
      return e.id();
    }
    return "none";
  }
  /// Names of the nodes of each match, in the order of the pattern.
  std::vector<std::string> Matches(GraphPatternDetector& detector, Program& program) {
    std::vector<std::string> found;
    Graph graph(program);
    const int count = detector(&graph, [&](const subgraph_t& subgraph, Graph*) {
      std::string text;
      for (const auto& node : detector.pattern().nodes())
        text += subgraph.at(node.get()).Name() + " ";
      found.push_back(text);
    });
    EXPECT_EQ(static_cast<size_t>(count), found.size());
    return found;
  }
  IrContext context;
};

/// Seed 2's FC example: mul, its output and the addition are all intermediate.
void SeedFc(PDPattern* pattern, const std::string& multiply, const std::string& add) {
  auto* mul = pattern->NewNode("mul")->assert_is_op(multiply)->AsIntermediate();
  auto* elementwise_add = pattern->NewNode("elementwise_add")->assert_is_op(add)->AsIntermediate();
  auto* mul_out = pattern->NewNode("mul_out")->assert_is_op_output(multiply)->AsIntermediate();
  mul_out->LinksFrom({mul})->LinksTo({elementwise_add});
}

// An op, its result, an op that reads it: one match.
TEST_F(PatternDetectorTest, FindsAPath) {
  Program p = Parse(kBase);
  GraphPatternDetector detector;
  PDPattern* pattern = detector.mutable_pattern();
  auto* a = pattern->NewNode("a")->assert_is_op("t.o2");
  auto* v = pattern->NewNode("v")->assert_is_var();
  auto* b = pattern->NewNode("b")->assert_is_op("t.o3");
  v->LinksFrom({a}).LinksTo({b});
  EXPECT_EQ(Matches(detector, p), (std::vector<std::string>{"t.o2 t.o2#0 t.o3 "}));
}

// op2 or op3, an intermediate variable, any op: the variable with two readers is refused, and the
// two matches that end in op5 overlap there, so the first in program order stands.
TEST_F(PatternDetectorTest, OverlapsGoToTheFirstInProgramOrder) {
  Program p = Parse(kBase);
  GraphPatternDetector detector;
  PDPattern* pattern = detector.mutable_pattern();
  auto* a = pattern->NewNode("a")->assert_is_ops({"t.o2", "t.o3"});
  auto* v = pattern->NewNode("v")->assert_is_var()->AsIntermediate();
  auto* b = pattern->NewNode("b")->assert_is_op();
  v->LinksFrom({a}).LinksTo({b});
  EXPECT_EQ(Matches(detector, p), (std::vector<std::string>{"t.o2 t.o2#1 t.o5 "}));
  b->AsInput();  // now both may end there
  EXPECT_EQ(Matches(detector, p),
            (std::vector<std::string>{"t.o2 t.o2#1 t.o5 ", "t.o3 t.o3#0 t.o5 "}));
}

// An intermediate variable that another op reads as well: no match, and the reason is told. As an
// input it matches.
TEST_F(PatternDetectorTest, IntermediateHasNoConsumerOutside) {
  Program p = Parse(kBase);
  GraphPatternDetector detector;
  PDPattern* pattern = detector.mutable_pattern();
  auto* a = pattern->NewNode("a")->assert_is_op("t.o2");
  auto* v = pattern->NewNode("v")->assert_is_var()->AsIntermediate();
  auto* b = pattern->NewNode("b")->assert_is_op("t.o3");
  v->LinksFrom({a}).LinksTo({b});
  detector.set_explain(true);
  EXPECT_TRUE(Matches(detector, p).empty());
  ASSERT_EQ(detector.explanations().size(), 1u);
  EXPECT_NE(detector.explanations()[0].find("'v' is also read by t.o4"), std::string::npos);
  v->AsInput();
  EXPECT_EQ(Matches(detector, p).size(), 1u);
}

TEST_F(PatternDetectorTest, AdjacentIntermediatesMatch) {
  Program p = Parse(kTwoFc);
  GraphPatternDetector detector;
  SeedFc(detector.mutable_pattern(), "nn.matmul", "nn.add");
  EXPECT_EQ(Matches(detector, p).size(), 2u);
}

// add(conv1, conv2) with conv -> add: one match, the add cannot be fused twice.
TEST_F(PatternDetectorTest, TwoProducersOfOneAddGiveOneMatch) {
  Program p = Parse(R"(program {
    %x = t.x() : () -> f32
    %c1 = t.conv(%x) : (f32) -> f32
    %c2 = t.conv(%x) : (f32) -> f32
    %s = t.add(%c1, %c2) : (f32, f32) -> f32
    t.keep(%s) : (f32) -> ()
  })");
  GraphPatternDetector detector;
  PDPattern* pattern = detector.mutable_pattern();
  auto* conv = pattern->NewNode("conv")->assert_is_op("t.conv");
  auto* out = pattern->NewNode("out")->assert_is_op_output("t.conv")->AsIntermediate();
  auto* add = pattern->NewNode("add")->assert_is_op("t.add");
  out->LinksFrom({conv}).LinksTo({add});
  EXPECT_EQ(Matches(detector, p).size(), 1u);
}

// A value that is fetched has a consumer outside of the match.
TEST_F(PatternDetectorTest, FetchedIntermediateIsRefused) {
  Program p = Parse(R"(program {
    %x = t.x() : () -> f32
    %m = t.mul(%x) : (f32) -> f32
    nn.fetch(%m) {name = "m"} : (f32) -> ()
    %s = t.add(%m) : (f32) -> f32
    t.keep(%s) : (f32) -> ()
  })");
  GraphPatternDetector detector;
  SeedFc(detector.mutable_pattern(), "t.mul", "t.add");
  EXPECT_TRUE(Matches(detector, p).empty());
}

// The second result of an intermediate op that goes on is read outside.
TEST_F(PatternDetectorTest, OtherResultsOfAnIntermediateOpCount) {
  Program p = Parse(R"(program {
    %m, %n = t.mul() : () -> (f32, f32)
    %s = t.add(%m) : (f32) -> f32
    t.keep(%s, %n) : (f32, f32) -> ()
  })");
  GraphPatternDetector detector;
  SeedFc(detector.mutable_pattern(), "t.mul", "t.add");
  EXPECT_TRUE(Matches(detector, p).empty());
}

// The first reader of the shared variable fits, but what follows it does not; the second does.
TEST_F(PatternDetectorTest, BacktracksWhenTheFirstBindingFails) {
  Program p = Parse(R"(program {
    %a = t.a() : () -> f32
    %b1 = t.b(%a) : (f32) -> f32
    %b2 = t.b(%a) : (f32) -> f32
    %c = t.c(%b1) : (f32) -> f32
    %d = t.d(%b2) : (f32) -> f32
    t.keep(%c, %d) : (f32, f32) -> ()
  })");
  GraphPatternDetector detector;
  PDPattern* pattern = detector.mutable_pattern();
  auto* a = pattern->NewNode("a")->assert_is_op("t.a")->AsIntermediate();
  auto* va = pattern->NewNode("va");
  auto* b = pattern->NewNode("b")->assert_is_op("t.b");
  auto* vb = pattern->NewNode("vb");
  // Rooted at t.a: every op of the pattern is as rare as the others but t.b, and t.a comes first.
  auto* d = pattern->NewNode("d")->assert_is_ops({"t.d", "t.none"});
  va->LinksFrom({a}).LinksTo({b});
  vb->LinksFrom({b}).LinksTo({d});
  a->AsInput();
  EXPECT_EQ(Matches(detector, p), (std::vector<std::string>{"t.a t.a#0 t.b t.b#0 t.d "}));
}

// Same-named ops of which the assignment is only settled at the end.
TEST_F(PatternDetectorTest, SettlesEqualOpsByWhatFollows) {
  Program p = Parse(R"(program {
    %x = t.x() : () -> f32
    %t1 = t.t(%x) : (f32) -> f32
    %t2 = t.t(%x) : (f32) -> f32
    %t3 = t.t(%x) : (f32) -> f32
    %m = t.m(%t3, %t1) : (f32, f32) -> f32
    %y = t.y(%m, %t2) : (f32, f32) -> f32
    t.keep(%y) : (f32) -> ()
  })");
  GraphPatternDetector detector;
  PDPattern* pattern = detector.mutable_pattern();
  auto* x = pattern->NewNode("x")->assert_is_op("t.x");
  auto* vx = pattern->NewNode("vx");
  vx->LinksFrom({x});
  PDNode* values[3];
  for (int i = 0; i < 3; ++i) {
    auto* t = pattern->NewNode(StrCat("t", i + 1))->assert_is_op("t.t");
    values[i] = pattern->NewNode(StrCat("v", i + 1))->assert_is_op_output("t.t");
    t->LinksFrom({vx}).LinksTo({values[i]});
  }
  auto* m = pattern->NewNode("m")->assert_is_op("t.m");
  auto* y = pattern->NewNode("y")->assert_is_op("t.y");
  m->LinksFrom({values[0], values[2]});
  y->LinksFrom({values[1]});
  Graph graph(p);
  const Value t2 = p.block()->front()->next()->next()->result(0);
  const int count = detector(&graph, [&](const subgraph_t& subgraph, Graph*) {
    EXPECT_EQ(subgraph.at(values[1]).value(), t2);
  });
  EXPECT_EQ(count, 1);
}

// Argument names tell the operands of one op apart.
TEST_F(PatternDetectorTest, ArgumentNamesSelectTheOperand) {
  Program p = Parse(kTwoFc);
  GraphPatternDetector detector;
  PDPattern* pattern = detector.mutable_pattern();
  auto* x = pattern->NewNode("x")->assert_is_op_input("nn.matmul", "x")->AsInput();
  auto* w = pattern->NewNode("w")->assert_is_op_input("nn.matmul", "y")->AsInput();
  auto* mul = pattern->NewNode("mul")->assert_is_op("nn.matmul");
  auto* out = pattern->NewNode("out")->assert_is_op_output("nn.matmul", "z");
  mul->LinksFrom({w, x}).LinksTo({out});
  const std::vector<std::string> found = Matches(detector, p);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0], "x w nn.matmul nn.matmul#0 ");
  EXPECT_EQ(found[1], "nn.add#0 w nn.matmul nn.matmul#0 ");
}

// The handler erases the first FC, whose output the second reads: the second match is that of the
// new graph, and no erased node is handed out.
TEST_F(PatternDetectorTest, MatchesFollowTheRewrites) {
  Program p = Parse(kTwoFc);
  GraphPatternDetector detector;
  PDPattern* pattern = detector.mutable_pattern();
  auto* x = pattern->NewNode("x")->assert_is_op_input("nn.matmul", "x")->AsInput();
  auto* w = pattern->NewNode("w")->assert_is_op_input("nn.matmul", "y")->AsInput();
  auto* b = pattern->NewNode("b")->assert_is_op_input("nn.add")->AsInput();
  SeedFc(pattern, "nn.matmul", "nn.add");
  auto* out = pattern->NewNode("out")->assert_is_op_output("nn.add")->AsOutput();
  auto* add = pattern->RetrieveNode("elementwise_add");
  pattern->RetrieveNode("mul")->LinksFrom({x, w});
  add->LinksFrom({b}).LinksTo({out});
  Graph graph(p);
  const int count = detector(&graph, [&](const subgraph_t& s, Graph* g) {
    Rewriter rewriter(g->program(), nullptr);
    Operation* ops[] = {s.at(pattern->RetrieveNode("mul")).op(), s.at(add).op()};
    const Rewriter::Replacing scope(rewriter, ops);
    const Value operands[] = {s.at(x).value(), s.at(w).value(), s.at(b).value()};
    rewriter.ReplaceOp(ops[1], rewriter.Create("nn.gemm", operands)->result(0));
    rewriter.Erase(ops[0]);
  });
  EXPECT_EQ(count, 2);
  VerifyOrThrow(p);
  const Operation* first = p.block()->front()->next()->next()->next();
  EXPECT_EQ(first->name(), "nn.gemm");
  EXPECT_EQ(first->next()->name(), "nn.gemm");
  EXPECT_EQ(first->next()->operand(0), first->result(0));
}

// A handler that erases the ops of a later match: that one is not handed out.
TEST_F(PatternDetectorTest, GoneMatchesAreNotHandedOut) {
  Program p = Parse(R"(program {
    %a = t.a() : () -> f32
    %b = t.a() : () -> f32
    %c = t.a() : () -> f32
    t.keep(%a) : (f32) -> ()
  })");
  GraphPatternDetector detector;
  detector.mutable_pattern()->NewNode("a")->assert_is_op("t.a");
  Graph graph(p);
  const int count = detector(&graph, [&](const subgraph_t&, Graph* g) {
    Operation* second = g->block()->front()->next();
    if (second->name() == "t.a") second->Erase();
    // A new op, which may well lie where the old one lay.
    const Type type = g->block()->front()->result(0).type();
    (void)g->CreateOpNode("t.a", {}, {}, {&type, 1});
  });
  EXPECT_EQ(count, 2);
}

TEST_F(PatternDetectorTest, PatternMistakesAreErrors) {
  PDPattern pattern;
  auto* a = pattern.NewNode("a")->assert_is_op();
  auto* b = pattern.NewNode("b")->assert_is_op();
  auto* v = pattern.NewNode()->assert_is_var();
  EXPECT_EQ(IdOf([&] { pattern.NewNode("a"); }), "pattern/duplicate-node");
  EXPECT_EQ(IdOf([&] { a->LinksTo({b}); }), "pattern/edge");
  EXPECT_EQ(IdOf([&] { a->LinksTo({a}); }), "pattern/edge");
  EXPECT_EQ(IdOf([&] { v->assert_is_op(); }), "pattern/kind");
  EXPECT_EQ(pattern.RetrieveNode("c"), nullptr);
  EXPECT_EQ(pattern.RetrieveNode(v->name()), v);
}

// Names that no declaration knows would never match; they are errors when the pattern meets its
// context.
TEST_F(PatternDetectorTest, MisspeltNamesAreErrors) {
  Program p = Parse(kTwoFc);
  const auto id = [&](const std::function<void(PDNode*)>& build) {
    GraphPatternDetector detector;
    build(detector.mutable_pattern()->NewNode("n"));
    return IdOf([&] { Matches(detector, p); });
  };
  EXPECT_EQ(id([](PDNode* n) { n->assert_is_op_input("nn.matmul", "z"); }), "pattern/argument");
  EXPECT_EQ(id([](PDNode* n) { n->assert_is_op_output("nn.matmul", "x"); }), "pattern/argument");
  EXPECT_EQ(id([](PDNode* n) { n->assert_is_op_nth_input("nn.concat", "input", 0); }),
            "pattern/argument");
  EXPECT_EQ(id([](PDNode* n) { n->assert_is_op("nn.conv")->assert_is_not_op_input("bias"); }),
            "pattern/argument");
  EXPECT_EQ(id([](PDNode* n) { n->assert_is_op("nn.softmax")->assert_op_attr("axes", 1); }),
            "pattern/attribute");
  EXPECT_EQ(id([](PDNode* n) { n->assert_op_attr("axes", 1); }), "none");  // of any op
  context.allow_unregistered_ops(false);
  EXPECT_NE(id([](PDNode* n) { n->assert_is_op("nn.softmaxx"); }), "none");
  EXPECT_NE(id([](PDNode* n) { n->assert_is_op_output("nn.softmaxx"); }), "none");
}

TEST_F(PatternDetectorTest, AssertionsHoldAndFail) {
  Program p = Parse(R"(program {
    %w = builtin.constant() {value = tensor<[2], f32> [1.0, 2.0]} : () -> v_tensor<[2], f32>
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
    %y = nn.softmax(%x) {axis = 0} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %c = nn.concat(%w, %y) {axis = 0} : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[4], f32>
    nn.fetch(%c) {name = "c"} : (v_tensor<[4], f32>) -> ()
  })");
  const auto count = [&](const std::function<void(PDNode*)>& build) {
    GraphPatternDetector detector;
    build(detector.mutable_pattern()->NewNode("n"));
    return Matches(detector, p).size();
  };
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op(); }), 5u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_not_op_type("nn.fetch"); }), 4u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_var(); }), 4u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_var_dtype(ElementType::kF32); }), 4u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_var_dtype(ElementType::kF64); }), 0u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_constant_var(); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_persistable_var(); }), 0u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_var_not_persistable()->assert_is_not_ctrl_var(); }),
            4u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op_input("nn.concat", "inputs"); }), 2u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op_nth_input("nn.concat", "inputs", 1); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op_nth_input("nn.concat", "inputs", 2); }), 0u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op_input("nn.softmax", "x"); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op_input("nn.concat", "inputs"); }), 2u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_only_input_of_op("nn.softmax"); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_only_input_of_op("nn.concat"); }), 0u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_only_output_of_op("nn.concat"); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_ops_output({"nn.concat", "nn.feed"}); }), 2u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_op_has_n_inputs("nn.concat", 2); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_op_has_n_inputs("nn.concat", 1); }), 0u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_op_has_n_outputs("nn.softmax", 1); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op("nn.softmax")->assert_op_attr("axis", 0); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op("nn.softmax")->assert_op_attr("axis", 1); }), 0u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op("nn.softmax")->assert_op_attrs_default(); }), 0u);
  EXPECT_EQ(
      count([](PDNode* n) { n->assert_is_op("nn.softmax")->assert_op_attrs_default({"axis"}); }),
      1u);
  EXPECT_EQ(
      count([](PDNode* n) { n->assert_more([](const Node& node) { return node.Name() == "x"; }); }),
      1u);
}

// The rest of the assertions: parameters, control dependencies, parts of variadic arguments,
// numbers of neighbors, attributes of each kind.
TEST_F(PatternDetectorTest, AssertionsOnParametersTokensAndParts) {
  Program p = Parse(R"(program {
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[4], f32>
    %a, %b = nn.split(%w) {num_outputs = 2} : (v_tensor<[4], f32>) -> (v_tensor<[2], f32>, v_tensor<[2], f32>)
    %l = nn.leaky_relu(%a) {alpha = 0.5} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %s = nn.sub(%l, %b) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %t = nn.transpose(%s) {perm = [0]} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %c = nn.cast(%t) {to = f32, round_mode = "down"} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    nn.fetch(%c) {name = "c"} : (v_tensor<[2], f32>) -> ()
  })");
  p.parameters().Set(StrAttribute::Get(context, "w"),
                     {Tensor::Of<float>({4}, {1, 2, 3, 4}), false});
  Graph graph(p);
  const std::vector<Operation*> ops = graph.TopologySortOperations();
  graph.CreateControlDepVar(Node(ops[2]), Node(ops[4]));  // a token and a depend
  const auto count = [&](const std::function<void(PDNode*)>& build) {
    GraphPatternDetector detector;
    build(detector.mutable_pattern()->NewNode("n"));
    return Matches(detector, p).size();
  };
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_var(); }), 9u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_not_ctrl_var(); }), 8u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_persistable_var(); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_var_not_persistable(); }), 8u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_constant_var(); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op("nn.sub"); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_ops({"nn.sub", "nn.split"}); }), 2u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op_output("nn.split"); }), 2u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op_output("nn.split", "outputs"); }), 2u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op_nth_output("nn.split", "outputs", 1); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op_nth_output("nn.split", "outputs", 2); }), 0u);
  EXPECT_EQ(
      count([](PDNode* n) { n->assert_is_ops_nth_output({"nn.top_k", "nn.split"}, "outputs", 0); }),
      1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_ops_input({"nn.sub", "nn.leaky_relu"}); }), 3u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_ops_input({"nn.sub", "nn.add"}, "b"); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_ops_nth_input({"nn.sub", "nn.add"}, "a", 0); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_ops_nth_input({"nn.sub", "nn.add"}, "a", 1); }), 0u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_only_input_of_ops({"nn.sub", "nn.split"}); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_only_output_of_ops({"nn.sub", "nn.split"}); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_var()->assert_has_n_inputs(1); }), 9u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_var()->assert_has_n_outputs(2); }), 1u);  // %l
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op()->assert_has_n_inputs(2); }), 2u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_op_has_n_outputs("nn.split", 2); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_op_has_n_outputs("nn.split", 1); }), 0u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op()->assert_op_attr("alpha", 0.5); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op()->assert_op_attr("alpha", 0.25F); }), 0u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op()->assert_op_attr("saturate", true); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op()->assert_op_attr("saturate", false); }), 0u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op()->assert_op_attr("round_mode", "down"); }), 1u);
  EXPECT_EQ(count([](PDNode* n) { n->assert_is_op()->assert_op_attr("round_mode", "up"); }), 0u);
  const std::vector<int64_t> identity = {0};
  EXPECT_EQ(count([&](PDNode* n) { n->assert_is_op()->assert_op_attr("perm", identity); }), 1u);
  const auto positive = [](Attribute a) {
    const auto number = a.dyn_cast<FloatAttribute>();
    return number && number.value() > 0;
  };
  EXPECT_EQ(count([&](PDNode* n) { n->assert_op_attr("alpha", positive, "alpha > 0"); }), 1u);
}

TEST_F(PatternDetectorTest, OptionalOperandsMayBeAssertedAbsent) {
  Program p = Parse(R"(program {
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 2, 5], f32>
    %w = nn.feed() {name = "w"} : () -> v_tensor<[3, 2, 3], f32>
    %b = nn.feed() {name = "b"} : () -> v_tensor<[3], f32>
    %0 = nn.conv(%x, %w) : (v_tensor<[1, 2, 5], f32>, v_tensor<[3, 2, 3], f32>) -> v_tensor<[1, 3, 3], f32>
    %1 = nn.conv(%x, %w, %b) : (v_tensor<[1, 2, 5], f32>, v_tensor<[3, 2, 3], f32>, v_tensor<[3], f32>) -> v_tensor<[1, 3, 3], f32>
    nn.fetch(%0) {name = "a"} : (v_tensor<[1, 3, 3], f32>) -> ()
    nn.fetch(%1) {name = "c"} : (v_tensor<[1, 3, 3], f32>) -> ()
  })");
  GraphPatternDetector detector;
  auto* conv = detector.mutable_pattern()->NewNode("conv")->assert_is_op("nn.conv");
  EXPECT_EQ(Matches(detector, p).size(), 2u);
  conv->assert_is_not_op_input("b");
  EXPECT_EQ(Matches(detector, p).size(), 1u);
}

TEST_F(PatternDetectorTest, TwoRunsGiveTheSameMatchesAndText) {
  std::string first;
  for (int run = 0; run < 2; ++run) {
    Program p = Parse(kBase);
    GraphPatternDetector detector;
    PDPattern* pattern = detector.mutable_pattern();
    auto* a = pattern->NewNode("a")->assert_is_op()->AsInput();
    auto* v = pattern->NewNode("v")->assert_is_var();
    auto* b = pattern->NewNode("b")->assert_is_op()->AsOutput();
    v->LinksFrom({a}).LinksTo({b});
    std::string text = pattern->DotString();
    for (const std::string& m : Matches(detector, p)) text += m + "\n";
    if (run == 0) first = text;
    EXPECT_EQ(text, first);
    EXPECT_NE(text.find("n0 [label=\"a\\nis an op\", shape=box"), std::string::npos) << text;
    EXPECT_NE(text.find("n1 -> n2;"), std::string::npos);
  }
}

// A variable that everything reads, such as a shared weight, does not make the search quadratic; a
// run over many matches ends soon. (Linear growth is measured by bench/pass.)
TEST_F(PatternDetectorTest, ManyMatchesWithASharedWeight) {
  Program p(context);
  Builder b = Builder::AtEnd(p.block());
  const Type type = Type(ParseType(context, "f32"));
  const Value w = b.Create("t.w", {}, {}, {&type, 1})->result(0);
  Value x = w;
  constexpr int kCount = 5000;
  for (int i = 0; i < kCount; ++i) {
    const Value m = b.Create("t.mul", std::vector<Value>{x, w}, {}, {&type, 1})->result(0);
    x = b.Create("t.add", std::vector<Value>{m, w}, {}, {&type, 1})->result(0);
  }
  b.Create("t.keep", std::vector<Value>{x}, {}, {});
  GraphPatternDetector detector;
  SeedFc(detector.mutable_pattern(), "t.mul", "t.add");
  auto* weight = detector.mutable_pattern()->NewNode("w")->assert_is_op_input("t.mul")->AsInput();
  weight->LinksTo({detector.mutable_pattern()->RetrieveNode("mul")});
  EXPECT_EQ(Matches(detector, p).size(), static_cast<size_t>(kCount));
}

/// `first` -> a value -> `second`, the ops and the value for this match alone.
void Pair(PDPattern* pattern, const std::string& first, const std::string& second) {
  auto* a = pattern->NewNode("a")->assert_is_op(first);
  auto* v = pattern->NewNode("v")->assert_is_op_output(first)->AsIntermediate();
  v->LinksFrom({a}).LinksTo({pattern->NewNode("b")->assert_is_op(second)});
}

// Between several patterns: who begins first wins, then the greater benefit, then who was added
// first, whichever op the search is rooted at.
TEST_F(PatternDetectorTest, OverlapsOfPatternsGoByOrderThenBenefit) {
  Program p = Parse(R"(program {
    %x = t.x() : () -> f32
    %m = t.mul(%x) : (f32) -> f32
    %a = t.add(%m) : (f32) -> f32
    %r = t.relu(%a) : (f32) -> f32
    %n = t.mul(%r) : (f32) -> f32
    %b = t.add(%n) : (f32) -> f32
    t.keep(%b) : (f32) -> ()
  })");
  const auto winners = [&](int fused_benefit, int relu_benefit) {
    std::string text;
    PatternGroup group;
    const auto tell = [&](const char* name) {
      return [&text, name](const subgraph_t&, Graph*) { text += name; };
    };
    Pair(group.Add("mul-add", tell("mul-add ")), "t.mul", "t.add");
    PDPattern* three = group.Add("mul-add-relu", tell("mul-add-relu "), fused_benefit);
    Pair(three, "t.mul", "t.add");
    auto* out = three->NewNode("w")->assert_is_op_output("t.add")->AsIntermediate();
    out->LinksFrom({three->RetrieveNode("b")})
        .LinksTo({three->NewNode("c")->assert_is_op("t.relu")});
    Pair(group.Add("add-relu", tell("add-relu "), relu_benefit), "t.add", "t.relu");
    Graph graph(p);
    group(&graph);
    return text;
  };
  EXPECT_EQ(winners(2, 1), "mul-add-relu mul-add ");
  EXPECT_EQ(winners(2, 9), "mul-add-relu mul-add ");  // it begins later
  EXPECT_EQ(winners(1, 1), "mul-add mul-add ");       // added first
  EXPECT_EQ(winners(0, 9), "mul-add mul-add ");
}

// A handler of one pattern takes away what another would have matched.
TEST_F(PatternDetectorTest, GroupsFollowTheRewrites) {
  Program p = Parse(R"(program {
    %x = t.x() : () -> f32
    %a = t.a(%x) : (f32) -> f32
    %b = t.b(%a) : (f32) -> f32
    t.keep(%x) : (f32) -> ()
  })");
  PatternGroup group;
  int others = 0;
  group.Add("a", [](const subgraph_t&, Graph* graph) { graph->block()->back()->prev()->Erase(); })
      ->NewNode("a")
      ->assert_is_op("t.a");
  group.Add("b", [&](const subgraph_t&, Graph*) { ++others; })->NewNode("b")->assert_is_op("t.b");
  Graph graph(p);
  EXPECT_EQ(group(&graph), 1);
  EXPECT_EQ(others, 0);
  group.Add("none", nullptr);
  EXPECT_EQ(IdOf([&] { group(&graph); }), "pattern/empty");
}

}  // namespace
}  // namespace lathe
