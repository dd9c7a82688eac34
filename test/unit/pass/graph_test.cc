#include "lathe/pass/graph.h"

#include <algorithm>

#include "lathe/pass/pass.h"
#include "test/unit/dialect/program_util.h"

namespace lathe {
namespace {

class GraphTest : public testing::ProgramTest {
 protected:
  static std::vector<std::string> NamesOf(const std::vector<Operation*>& ops) {
    std::vector<std::string> names;
    for (const Operation* op : ops) names.emplace_back(op->location().name());
    return names;
  }
  Operation* Named(const Program& p, std::string_view name) {
    for (Operation& op : *p.block()) {
      if (op.location().is_name() && op.location().name() == name) return &op;
    }
    return nullptr;
  }
  Type F32() { return ParseType(context_, "v_tensor<[2], f32>"); }
};

constexpr const char* kDiamond = R"(
  %0 = nn.feed() {name = "x"} : () -> v_tensor<[2], f32> loc("x")
  %1 = nn.relu(%0) : (v_tensor<[2], f32>) -> v_tensor<[2], f32> loc("op2")
  %2 = nn.exp(%1) : (v_tensor<[2], f32>) -> v_tensor<[2], f32> loc("op3")
  %3 = nn.neg(%1) : (v_tensor<[2], f32>) -> v_tensor<[2], f32> loc("op4")
  %4 = nn.add(%2, %3) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32> loc("op5")
  nn.fetch(%4) {name = "y"} : (v_tensor<[2], f32>) -> () loc("out"))";

// An op of three variables, which nothing makes, and its result, which nothing reads: five nodes.
TEST_F(GraphTest, OpsAndVariablesAreNodes) {
  Program p(context_);
  Graph graph(p);
  std::vector<Value> in;
  for (int i = 0; i < 3; ++i) in.push_back(p.block()->AddArgument(F32()));
  const Node sum = graph.CreateOpNode("nn.sum", in);
  const std::vector<Node> nodes = graph.Nodes();
  ASSERT_EQ(nodes.size(), 5u);
  EXPECT_EQ(sum.inputs().size(), 3u);
  EXPECT_EQ(sum.outputs().size(), 1u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(nodes[i].inputs().size(), 0u);
    EXPECT_EQ(nodes[i].outputs(), std::vector<Node>{sum});
  }
  const Node out = sum.outputs()[0];
  EXPECT_EQ(out.inputs(), std::vector<Node>{sum});
  EXPECT_TRUE(out.outputs().empty());
  EXPECT_EQ(out.value().type(), F32()) << "the type follows from the inputs";
}

TEST_F(GraphTest, MisuseLeavesTheGraphAsItIs) {
  Program p = Parse(kDiamond);
  Graph graph(p);
  const std::string before = Print(p);
  const auto id = [&](auto&& fn) { return ErrorOf(fn).id(); };
  Program other = Parse(kDiamond);
  const Node foreign(other.block()->front());
  EXPECT_EQ(id([&] { graph.Erase("nothing"); }), "attr/missing");
  EXPECT_EQ(id([&] { graph.CreateVarNode("v", Type()); }), "graph/variable-type");
  EXPECT_EQ(id([&] { graph.CreateVarNode("v", ParseType(context_, "v_tensor<[N], f32>")); }),
            "graph/variable-type");
  EXPECT_EQ(id([&] { graph.CreateOpNode("nn.rellu", {}); }), "ir/unknown-op");
  EXPECT_EQ(id([&] { graph.RemoveNodes(std::vector<Node>{Node()}); }), "graph/no-node");
  EXPECT_EQ(id([&] { graph.RemoveNodes(std::vector<Node>{foreign}); }), "graph/no-node");
  EXPECT_EQ(id([&] { graph.RemoveNodes(std::vector<Node>{Node(Named(p, "op2"))}); }),
            "graph/remove-used");
  EXPECT_EQ(id([&] { graph.CreateControlDepVar(Node(Named(p, "op3")), foreign); }),
            "graph/control-dep");
  EXPECT_EQ(id([&] { IndexedGraph(graph).node_id(foreign); }), "graph/no-node");
  graph.CreateVarNode("w", F32());
  EXPECT_EQ(id([&] { graph.CreateVarNode("w", F32()); }), "ir/duplicate-parameter");
  p.parameters().Erase(StrAttribute::Get(context_, "w"));
  p.block()->front()->Erase();
  EXPECT_EQ(Print(p), before);
  graph.Set<int>("a", 1);
  EXPECT_EQ(id([&] { graph.Set<int>("a", 2); }), "attr/duplicate");
  EXPECT_EQ(graph.Get<int>("a"), 1);
}

// The value moves out of the last reference to it, is copied from a shared one; the name goes.
TEST_F(GraphTest, MoveCopyAttrErasesTheName) {
  Program p = Parse(kDiamond);
  Graph graph(p);
  graph.Set("shape", std::vector<int>{1, 2, 3});
  const int* held = graph.Get<std::vector<int>>("shape").data();
  const auto moved = graph.MoveCopyAttr<std::vector<int>>("shape");
  EXPECT_EQ(moved.data(), held) << "moved";
  EXPECT_FALSE(graph.Has("shape"));

  graph.Set("shape", moved);
  Graph copy = graph;
  const int* shared = copy.Get<std::vector<int>>("shape").data();
  const auto copied = graph.MoveCopyAttr<std::vector<int>>("shape");
  EXPECT_NE(copied.data(), shared) << "the other graph still has it";
  EXPECT_EQ(copied, moved);
  EXPECT_FALSE(graph.Has("shape"));
  EXPECT_EQ(copy.Get<std::vector<int>>("shape"), moved);

  std::vector<int> mine{7};
  graph.SetNotOwned("shape", &mine);
  EXPECT_EQ(graph.MoveCopyAttr<std::vector<int>>("shape"), mine);
  EXPECT_EQ(mine, std::vector<int>{7}) << "what is borrowed is copied";
  EXPECT_EQ(ErrorOf([&] { graph.MoveCopyAttr<std::vector<int>>("shape"); }).id(), "attr/missing");
  graph.Set<int>("n", 1);
  const Error error = ErrorOf([&] { graph.MoveCopyAttr<double>("n"); });
  EXPECT_NE(error.message().find("is a int, not a double"), std::string::npos) << error.message();
  EXPECT_TRUE(graph.Has("n"));
}

TEST_F(GraphTest, NodesAreReleasedInOrder) {
  Program p = Parse(kDiamond);
  Graph graph(p);
  std::vector<OwningOp> ops = graph.ReleaseNodes();
  EXPECT_EQ(ops.size(), 6u);
  EXPECT_TRUE(p.block()->empty());
  EXPECT_TRUE(graph.Nodes().empty());
  EXPECT_EQ(ops[1]->operand(0), ops[0]->result(0)) << "they still read one another";
  for (OwningOp& op : ops) p.block()->PushBack(op.release());
  VerifyOrThrow(p);
}

// ---- circles, order, parts ----

TEST_F(GraphTest, CirclesAreFound) {
  Program p = Parse(kDiamond);
  Graph graph(p);
  EXPECT_FALSE(graph.HasCircle());
  Operation* op2 = Named(p, "op2");
  op2->set_operand(0, op2->result(0));
  EXPECT_EQ(NamesOf(graph.FindCircle()), std::vector<std::string>{"op2"}) << "a loop on itself";
  op2->set_operand(0, Named(p, "op3")->result(0));
  EXPECT_EQ(NamesOf(graph.FindCircle()), (std::vector<std::string>{"op2", "op3"}));
  const Error error = ErrorOf([&] { graph.TopologySortOperations(); });
  EXPECT_EQ(error.id(), "graph/cycle");
  EXPECT_EQ(error.notes().size(), 2u);
  op2->set_operand(0, Named(p, "x")->result(0));
  EXPECT_FALSE(graph.HasCircle());
}

class TestTouchPass : public Pass {
 protected:
  void ApplyImpl(Graph&) override { MarkChanged(); }
};
REGISTER_PASS(test_touch, TestTouchPass).Doc("says that it changed something");

TEST_F(GraphTest, APassThatLeavesACircleFails) {
  Program p = Parse(kDiamond);
  Named(p, "op2")->set_operand(0, Named(p, "op5")->result(0));
  const Error error = ErrorOf([&] { PassRegistry::Global().Make("test_touch")->Apply(p); });
  EXPECT_EQ(error.code(), ErrorCode::kVerify);
  EXPECT_NE(error.Render().find("test_touch"), std::string::npos) << "the pass is named";
}

TEST_F(GraphTest, TopologicalOrderIsThatOfTheProgramWhereItCan) {
  Program p = Parse(kDiamond);
  Graph graph(p);
  EXPECT_EQ(NamesOf(graph.TopologySortOperations()),
            (std::vector<std::string>{"x", "op2", "op3", "op4", "op5", "out"}));
  // Any order of a block becomes a valid one, with every op once.
  std::vector<OwningOp> ops = graph.ReleaseNodes();
  std::reverse(ops.begin(), ops.end());
  for (OwningOp& op : ops) p.block()->PushBack(op.release());
  EXPECT_FALSE(Verify(p).empty());
  graph.SortTopologically();
  VerifyOrThrow(p);
  EXPECT_EQ(NamesOf(graph.TopologySortOperations()),
            (std::vector<std::string>{"x", "op2", "op4", "op3", "op5", "out"}))
      << "op4 stood before op3";
}

TEST_F(GraphTest, WhatARegionReadsComesBeforeItsOp) {
  Program p = Parse(R"(
    %c = nn.feed() {name = "c"} : () -> v_tensor<[], bool> loc("c")
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32> loc("x")
    %y = nn.exp(%x) : (v_tensor<[2], f32>) -> v_tensor<[2], f32> loc("y")
    %r = cf.if(%c) ({
      cf.yield(%y) : (v_tensor<[2], f32>) -> ()
    }, {
      cf.yield(%x) : (v_tensor<[2], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[2], f32> loc("if")
    nn.fetch(%r) {name = "r"} : (v_tensor<[2], f32>) -> () loc("out"))");
  Graph graph(p);
  Named(p, "y")->MoveToEnd(p.block());
  graph.SortTopologically();
  VerifyOrThrow(p);
  EXPECT_EQ(NamesOf(graph.TopologySortOperations()),
            (std::vector<std::string>{"c", "x", "y", "if", "out"}));
}

TEST_F(GraphTest, PartsAreCounted) {
  Program empty(context_);
  EXPECT_EQ(Graph(empty).GraphNum(), 0u);
  Program one = Parse(kDiamond);
  EXPECT_EQ(Graph(one).GraphNum(), 1u);
  Program two = Parse(StrCat(kDiamond, R"(
    %8 = nn.feed() {name = "z"} : () -> v_tensor<[2], f32>
    nn.fetch(%8) {name = "z"} : (v_tensor<[2], f32>) -> ())"));
  EXPECT_EQ(Graph(two).GraphNum(), 2u);
}

TEST_F(GraphTest, ControlDependenciesNeedAResultToWaitFor) {
  Program p = Parse(StrCat(kDiamond, R"(
    %8 = nn.exp(%4) : (v_tensor<[2], f32>) -> v_tensor<[2], f32> loc("late"))"));
  Graph graph(p);
  EXPECT_EQ(ErrorOf([&] {
              graph.CreateControlDepVar(Node(Named(p, "out")), Node(Named(p, "late")));
            }).id(),
            "graph/control-dep");
  const Node token = graph.CreateControlDepVar(Node(Named(p, "op3")), Node(Named(p, "op4")));
  EXPECT_TRUE(token.IsCtrlVar());
  EXPECT_EQ(token.outputs().size(), 1u);
  VerifyOrThrow(p);
  const IndexedGraph indexed(graph);
  const uint32_t waiting = indexed.node_id(token.outputs()[0]);
  EXPECT_EQ(indexed.control_deps(waiting).size(), 1u);
  EXPECT_EQ(indexed.inputs(waiting).size(), 1u) << "a token is no input";
}

TEST_F(GraphTest, IndexedNodesComeAfterWhatTheyRead) {
  Program p = Parse(R"(
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[2], f32>
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
    %d, %m = nn.dropout(%x) : (v_tensor<[2], f32>) -> (v_tensor<[2], f32>, v_tensor<[2], bool>)
    %a = nn.add(%d, %w) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
    builtin.set_parameter(%a) {name = "w"} : (v_tensor<[2], f32>) -> ()
    nn.fetch(%a) {name = "a"} : (v_tensor<[2], f32>) -> ())");
  p.parameters().Insert(StrAttribute::Get(context_, "w"), {Tensor(ElementType::kF32, {2}), false});
  p.RefreshMutability();
  Graph graph(p);
  const IndexedGraph indexed(graph);
  EXPECT_EQ(indexed.num_nodes(), 6u);
  EXPECT_EQ(indexed.num_entries(), 5u);
  for (uint32_t i = 0; i < indexed.num_nodes(); ++i) {
    EXPECT_EQ(indexed.node_id(indexed[i]), i);
    for (const IndexedGraph::Entry& e : indexed.inputs(i)) EXPECT_LT(e.node, i);
  }
  EXPECT_EQ(indexed.input_nodes().size(), 2u);
  ASSERT_EQ(indexed.mutable_input_nodes().size(), 1u);
  EXPECT_EQ(indexed[indexed.mutable_input_nodes()[0]].op()->name(), "builtin.get_parameter");
  ASSERT_EQ(indexed.outputs().size(), 1u);
  EXPECT_EQ(indexed[indexed.outputs()[0].node].op()->name(), "nn.add");
  const uint32_t drop = indexed.node_id(Node(p.block()->front()->next()->next()));
  EXPECT_EQ(indexed.entry_id(drop, 1), indexed.entry_id(drop, 0) + 1);
  EXPECT_EQ(indexed.node_id(Node(indexed[drop].op()->result(1))), drop) << "a value is its maker's";
}

TEST_F(GraphTest, AnOldIndexIsNotGivenAgain) {
  Program p = Parse(kDiamond);
  Graph graph(p);
  const IndexedGraph before(graph);
  const IndexedGraph* cached = &graph.indexed_graph();
  EXPECT_EQ(&graph.indexed_graph(), cached) << "nothing has changed";

  Operation* op4 = Named(p, "op4");
  const Value read = op4->operand(0);
  op4->set_operand(0, Named(p, "x")->result(0));  // an operand
  EXPECT_FALSE(before.is_current());
  EXPECT_EQ(graph.indexed_graph().inputs(graph.indexed_graph().node_id(Node(op4)))[0],
            (IndexedGraph::Entry{0, 0}));
  op4->set_operand(0, read);
  EXPECT_TRUE(before.is_current()) << "as it was";

  op4->MoveBefore(Named(p, "op3"));  // the order
  EXPECT_FALSE(before.is_current());
  EXPECT_TRUE(graph.indexed_graph().is_current());
  graph.CreateEmptyNode("here");  // an operation more
  EXPECT_FALSE(before.is_current());
  EXPECT_EQ(graph.indexed_graph().num_nodes(), before.num_nodes() + 1);
  p.block()->AddArgument(F32());  // an argument more
  EXPECT_EQ(graph.indexed_graph().num_nodes(), before.num_nodes() + 2);
}

}  // namespace
}  // namespace lathe
