#include "lathe/ir/structure.h"
#include "test/unit/lower/fusion_util.h"

namespace lathe::testing {
namespace {

class GraphFuseCompile : public NetTest {
 protected:
  // Of the group that ends a program.
  std::string Structure(const std::string& text) {
    const Program program = ParseProgram(context_, StrCat("program {\n", text, "\n}"));
    VerifyOrThrow(program);
    return StructureText(program.block()->back()->region(0));
  }

  std::string Relu(std::string_view shape, std::string_view note = "") {
    const std::string t = StrCat("v_tensor<", shape, ", f32>");
    return Structure(StrCat("%x = nn.feed() {name = \"x\"} : () -> ", t,
                            "\n%r = builtin.group(%x) ({\n^(%a: ", t, "):\n%b = nn.relu(%a) ", note,
                            " : (", t, ") -> ", t, "\ncf.yield(%b) : (", t, ") -> ()\n}) : (", t,
                            ") -> ", t));
  }
};

TEST_F(GraphFuseCompile, NotesAreNoStructure) {
  EXPECT_EQ(Relu("[2]", "{note = 1}"), Relu("[2]"));
  EXPECT_NE(Relu("[3]"), Relu("[2]"));
}

TEST_F(GraphFuseCompile, ArgumentsPassedStraightToTheResult) {
  const std::string t = "v_tensor<[2], f32>";
  const auto giving = [&](std::string_view results) {
    return Structure(StrCat("%x = nn.feed() {name = \"x\"} : () -> ", t,
                            "\n%r, %s = builtin.group(%x, %x) ({\n^(%a: ", t, ", %b: ", t,
                            "):\n%c = nn.relu(%a) : (", t, ") -> ", t, "\ncf.yield(", results,
                            ") : (", t, ", ", t, ") -> ()\n}) : (", t, ", ", t, ") -> (", t, ", ",
                            t, ")"));
  };
  EXPECT_NE(giving("%c, %b"), giving("%c, %c"));
  EXPECT_NE(giving("%c, %b"), giving("%b, %c"));
  EXPECT_EQ(giving("%c, %b"), giving("%c, %b"));
}

TEST_F(GraphFuseCompile, ConstantsOfOtherTypesDiffer) {
  const auto added = [&](std::string_view element) {
    const std::string t = StrCat("v_tensor<[2], ", element, ">");
    return Structure(StrCat(
        "%x = nn.feed() {name = \"x\"} : () -> ", t, "\n%r = builtin.group(%x) ({\n^(%a: ", t,
        "):\n%k = builtin.constant() {value = tensor<[], ", element, "> [3]} : () -> v_tensor<[], ",
        element, ">\n%b = nn.add(%a, %k) : (", t, ", v_tensor<[], ", element, ">) -> ", t,
        "\ncf.yield(%b) : (", t, ") -> ()\n}) : (", t, ") -> ", t));
  };
  EXPECT_NE(added("i32"), added("i64"));
}

TEST_F(GraphFuseCompile, LongNamesAreCut) {
  Net net(context_);
  Value x = net.X({2});
  for (int i = 0; i < 40; ++i) x = net.Op("tanh", {x});
  net.Output(x);
  RunPasses(net.program(), "graph_fuse_partition,graph_fuse_compile");
  const Operation* call = net.program().fetches()[0]->operand(0).defining_op();
  const std::string_view name = call->attribute("callee").cast<StrAttribute>().value();
  EXPECT_EQ(name.size(), 80U + 17U);
  EXPECT_EQ(name.substr(0, 16), "fused_tanh_tanh_");
  EXPECT_EQ(name[80], '_');
}

size_t Count(const Program& program, std::string_view name) {
  size_t count = 0;
  for (OpWalker w(program.block()); const Operation* op = w.Next();) {
    count += op->name() == name ? 1 : 0;
  }
  return count;
}

TEST_F(GraphFuseCompile, LayersOfANetworkShareKernels) {
  Net net(context_);
  Value x = net.X({1, 4, 6, 6});
  for (int i = 0; i < 5; ++i) {
    x = net.Op("relu", {net.Op("add", {net.Conv(x, 3), net.X({4, 1, 1})})});
  }
  net.Output(x);
  const NamedValues inputs = RandomInputs(net.program(), 1);
  const NamedValues expected = Interpreter(net.program()).Run(inputs);
  RunPasses(net.program(), "graph_fuse_partition,graph_fuse_compile");
  EXPECT_EQ(Count(net.program(), "builtin.call"), 5U);
  EXPECT_EQ(Count(net.program(), "builtin.func"), 1U);
  EXPECT_EQ(Count(net.program(), "builtin.group"), 0U);
  EXPECT_EQ(Interpreter(net.program()).Run(inputs), expected);
  const std::string text = Print(net.program());
  EXPECT_EQ(Print(ParseProgram(context_, text, {.file_locations = false})), text);
  RunPasses(net.program(), "graph_fuse_partition,graph_fuse_compile");
  EXPECT_EQ(Print(net.program()), text);
}

// Weights are packed for a kernel, values cannot be.
TEST_F(GraphFuseCompile, ConstantsAndValuesShareNoKernel) {
  Net net(context_);
  Value x = net.X({8, 8});
  const Value weights = net.Constant(RandomTensor(ElementType::kF32, {8, 8}, 1, 0));
  for (const Value w : {weights, net.X({8, 8}), weights, net.X({8, 8})}) {
    x = net.Op("matmul", {x, w});
  }
  net.Output(x);
  RunPasses(net.program(), "graph_fuse_partition,graph_fuse_compile");
  EXPECT_EQ(Count(net.program(), "builtin.call"), 4U);
  EXPECT_EQ(Count(net.program(), "builtin.func"), 2U);
}

TEST_F(GraphFuseCompile, SecondRunSharesNothingWithOtherNames) {
  Net net(context_);
  net.Output(net.Op("exp", {net.X({2})}));
  RunPasses(net.program(), "graph_fuse_partition");
  Program taken = net.program().Clone();
  RunPasses(taken, "graph_fuse_compile");
  const Operation* call = taken.fetches()[0]->operand(0).defining_op();
  const auto callee = call->attribute("callee").cast<StrAttribute>();
  // A function of the user's with that very name stays what it is.
  Builder b = Builder::AtEnd(net.program().block());
  const NamedAttribute name = b.Named("name", callee);
  Operation* function = b.Create("builtin.func", {}, {&name, 1}, {}, 1);
  Builder::AtEnd(function->region(0).AddBlock()).Create("builtin.return", {});
  RunPasses(net.program(), "graph_fuse_compile");
  const Operation* now = net.program().fetches()[0]->operand(0).defining_op();
  EXPECT_EQ(now->attribute("callee").cast<StrAttribute>().value(), StrCat(callee.value(), "_1"));
}

}  // namespace
}  // namespace lathe::testing
