#include <gtest/gtest.h>

#include "lathe/dialect/all.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/pass/rewriter.h"

namespace lathe {
namespace {

constexpr const char* kProgram = R"(program {
  %0 = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
  %1 = nn.relu(%0) : (v_tensor<[2], f32>) -> v_tensor<[2], f32> loc("first")
  %2 = nn.relu(%1) {mark = 7} : (v_tensor<[2], f32>) -> v_tensor<[2], f32> loc("second")
  %3 = nn.neg(%2) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
  nn.fetch(%3) {name = "y"} : (v_tensor<[2], f32>) -> ()
})";

/// relu(relu(x)) -> relu(x)
class ReluOfRelu : public RewritePattern {
 public:
  ReluOfRelu() : RewritePattern("relu-of-relu", "nn.relu") {}
  bool MatchAndRewrite(Operation* op, Rewriter& rewriter) const override {
    Operation* inner = op->operand(0).defining_op();
    if (inner == nullptr || inner->name() != "nn.relu") return false;
    const Rewriter::Replacing scope(rewriter, std::vector<Operation*>{inner, op});
    const Value x = inner->operand(0);
    const Value y = rewriter.Create("nn.relu", {&x, 1})->result(0);
    rewriter.ReplaceOp(op, y);
    rewriter.EraseDead(inner);
    return true;
  }
};

class TestReluPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    PatternSet patterns;
    patterns.push_back(std::make_unique<ReluOfRelu>());
    Count("rewrites", ApplyPatternsGreedily(graph.program(), this, patterns));
  }
};
REGISTER_PASS(test_relu, TestReluPass)
    .Doc("relu of relu")
    .Option("level", PassOption::Kind::kInt, "1", "how much")
    .DefaultPassAttr<int>("limit", 3);

class TestNeedyPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override { Count("places", graph.Get<int>("places")); }
};
REGISTER_PASS(test_needy, TestNeedyPass)
    .RequirePassAttr("where")
    .RequireGraphAttr("places")
    .RequirePass("test_relu");

class PassTest : public ::testing::Test {
 protected:
  PassTest() { LoadAllDialects(context); }
  Program Parse(const char* text = kProgram) { return ParseProgram(context, text); }
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

TEST_F(PassTest, AttributesKnowTheirTypeAndOwner) {
  AnyAttrs attrs("graph");
  attrs.Set<int>("n", 3);
  EXPECT_EQ(attrs.Get<int>("n"), 3);
  EXPECT_EQ(IdOf([&] { attrs.Set<int>("n", 4); }), "attr/duplicate");
  EXPECT_EQ(IdOf([&] { (void)attrs.Get<double>("n"); }), "attr/type");
  EXPECT_EQ(IdOf([&] { (void)attrs.Get<int>("m"); }), "attr/missing");
  EXPECT_EQ(IdOf([&] { attrs.Erase("m"); }), "attr/missing");
  try {
    (void)attrs.Get<double>("n");
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "attribute 'n' is a int, not a double");
  }
  int borrowed = 5;
  attrs.SetNotOwned<int>("b", &borrowed);
  attrs.Get<int>("b") = 6;
  EXPECT_EQ(borrowed, 6);
  attrs.SetDefault<int>("d", 1);
  attrs.Set<int>("d", 2);
  EXPECT_EQ(attrs.Get<int>("d"), 2);
}

TEST_F(PassTest, MoveCopyMovesTheLastReferenceAndAlwaysErases) {
  AnyAttrs attrs("graph");
  attrs.Set<std::vector<int>>("v", std::vector<int>{1, 2});
  const int* data = attrs.Get<std::vector<int>>("v").data();
  const auto moved = attrs.MoveCopyAttr<std::vector<int>>("v");
  EXPECT_EQ(moved.data(), data);
  EXPECT_FALSE(attrs.Has("v"));
  std::vector<int> borrowed{3};
  attrs.SetNotOwned("w", &borrowed);
  EXPECT_EQ(attrs.MoveCopyAttr<std::vector<int>>("w"), borrowed);
  EXPECT_EQ(borrowed.size(), 1u);
  EXPECT_FALSE(attrs.Has("w"));
}

TEST_F(PassTest, RewritesCarryLocationsAndRuntimeAttributes) {
  Program p = Parse();
  PassManager manager({.verify_each = true});
  manager.Add("test_relu");
  manager.Run(p);
  ASSERT_EQ(manager.timings().size(), 1u);
  EXPECT_TRUE(manager.timings()[0].changed);
  EXPECT_EQ(manager.timings()[0].ops_before - manager.timings()[0].ops_after, 1);
  const Operation* relu = p.block()->front()->next();
  EXPECT_EQ(relu->location().ToString(context), "fused('first', 'second')");
  EXPECT_EQ(relu->attribute("mark"), IntAttribute::Get(context, 7));
  const NamedValues out = Interpreter(p).Run({{"x", Tensor::Of<float>({2}, {-1, 2})}});
  EXPECT_EQ(out[0].second.tensor(), Tensor::Of<float>({2}, {-0.0F, -2}));
}

TEST_F(PassTest, RequirementsAreChecked) {
  Program p = Parse();
  Graph graph(p);
  const auto relu = PassRegistry::Global().Make("test_relu");
  const auto needy = PassRegistry::Global().Make("test_needy");
  EXPECT_EQ(relu->Get<int>("limit"), 3);
  EXPECT_EQ(IdOf([&] { needy->Apply(graph); }), "pass/missing-attr");
  needy->Set<int>("where", 1);
  EXPECT_EQ(IdOf([&] { needy->Apply(graph); }), "pass/missing-graph-attr");
  graph.Set<int>("places", 4);
  EXPECT_EQ(IdOf([&] { needy->Apply(graph); }), "pass/missing-pass");
  relu->Apply(graph);
  needy->Apply(graph);
  EXPECT_EQ(needy->statistics().at("places"), 4);
}

TEST_F(PassTest, PipelinesAreText) {
  const char* text = "a,b{x=1,y=[p, q]},cf.if(c,d{z=\"k\"})";
  EXPECT_EQ(PipelineToText(ParsePipeline(text)), "a,b{x=1,y=[p, q]},cf.if(c,d{z=k})");
  EXPECT_EQ(IdOf([] { (void)ParsePipeline("a,,b"); }), "pipeline/syntax");
  EXPECT_EQ(IdOf([] { (void)ParsePipeline("a{x}"); }), "pipeline/syntax");
  EXPECT_EQ(IdOf([] { (void)ParsePipeline("a(b"); }), "pipeline/syntax");
  PassManager manager;
  EXPECT_EQ(IdOf([&] { manager.Add("test_rleu"); }), "pass/unknown");
  EXPECT_EQ(IdOf([&] { manager.Add("test_relu{level=x}"); }), "pass/option");
  EXPECT_EQ(IdOf([&] { manager.Add("test_relu{levle=1}"); }), "pass/option");
  manager.Add("test_relu{level=2},test_relu");
  EXPECT_EQ(manager.ToText(), "test_relu{level=2},test_relu");
}

struct CountOpsAnalysis {
  explicit CountOpsAnalysis(const Program&) { ++made; }
  static inline int made = 0;
};

TEST_F(PassTest, AnalysesLiveUntilSomethingChanges) {
  Program p = Parse();
  AnalysisManager analyses(p);
  CountOpsAnalysis::made = 0;
  (void)analyses.Get<CountOpsAnalysis>();
  (void)analyses.Get<CountOpsAnalysis>();
  EXPECT_EQ(CountOpsAnalysis::made, 1);
  analyses.Invalidate(PreservedAnalyses::All());
  EXPECT_NE(analyses.GetCached<CountOpsAnalysis>(), nullptr);
  analyses.Invalidate(PreservedAnalyses().Preserve<CountOpsAnalysis>());
  EXPECT_NE(analyses.GetCached<CountOpsAnalysis>(), nullptr);
  analyses.Invalidate(PreservedAnalyses::None());
  EXPECT_EQ(analyses.GetCached<CountOpsAnalysis>(), nullptr);
}

TEST_F(PassTest, GraphIsAViewOfTheBlock) {
  Program p = Parse();
  Graph graph(p);
  const std::vector<Node> nodes = graph.Nodes();
  ASSERT_EQ(nodes.size(), 9u);  // five ops, four values
  EXPECT_TRUE(nodes[0].IsOp());
  EXPECT_TRUE(nodes[1].IsVar());
  EXPECT_EQ(nodes[1].Name(), "x");
  EXPECT_EQ(nodes[1].outputs()[0], nodes[2]);
  EXPECT_EQ(nodes[2].inputs()[0], nodes[1]);
  const Node first = nodes[2], third = nodes[6];
  const Node token = graph.CreateControlDepVar(first, third);
  EXPECT_TRUE(token.IsCtrlVar());
  VerifyOrThrow(p);
  EXPECT_EQ(IdOf([&] { graph.CreateControlDepVar(third, first); }), "graph/control-dep");
  EXPECT_EQ(IdOf([&] { graph.RemoveNodes(std::vector<Node>{first}); }), "graph/remove-used");
  const NamedValues out = Interpreter(p).Run({{"x", Tensor::Of<float>({2}, {-1, 2})}});
  EXPECT_EQ(out[0].second.tensor(), Tensor::Of<float>({2}, {-0.0F, -2}));
}

TEST_F(PassTest, IndexedGraphNumbersInPostOrder) {
  Program p = Parse();
  const Graph graph(p);
  const IndexedGraph indexed(graph);
  ASSERT_EQ(indexed.num_nodes(), 5u);
  EXPECT_EQ(indexed.num_entries(), 4u);
  EXPECT_EQ(indexed.input_nodes(), std::vector<uint32_t>{0});
  for (uint32_t i = 1; i < 5; ++i) {
    ASSERT_EQ(indexed.inputs(i).size(), 1u);
    EXPECT_EQ(indexed.inputs(i)[0].node, i - 1);
    EXPECT_EQ(indexed.node_id(indexed[i]), i);
  }
  ASSERT_EQ(indexed.outputs().size(), 1u);
  EXPECT_EQ(indexed.outputs()[0], (IndexedGraph::Entry{3, 0}));
}

TEST_F(PassTest, IndexedGraphNumbersWhatNoOutputNeedsLast) {
  Program p = ParseProgram(context, R"(
program {
  %u = nn.feed() {name = "unused"} : () -> v_tensor<[2], f32>
  %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
  %d = nn.exp(%x) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
  %e = nn.neg(%d) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
  %y = nn.relu(%x) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
  nn.fetch(%y) {name = "y"} : (v_tensor<[2], f32>) -> ()
})");
  const Graph graph(p);
  const IndexedGraph indexed(graph);
  std::vector<std::string> names;
  for (uint32_t i = 0; i < indexed.num_nodes(); ++i) {
    names.emplace_back(indexed[i].op()->name());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"nn.feed", "nn.relu", "nn.fetch", "nn.feed", "nn.exp",
                                             "nn.neg"}));
  EXPECT_EQ(indexed[3].op(), p.feeds()[0]);
}

}  // namespace
}  // namespace lathe
