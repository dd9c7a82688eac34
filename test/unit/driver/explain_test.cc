#include "lathe/driver/explain.h"

#include <algorithm>

#include "test/unit/codegen/kernel_util.h"

namespace lathe {
namespace {

class ExplainTest : public ::testing::Test {
 protected:
  void SetUp() override {
    codegen::NeedCodeGenerator();
    LoadAllDialects(context_);
  }

  // softmax(x * y) with x [rows, 8] and y [8, 16]; the product is a result, too.
  Program Product(const std::string& rows) {
    const std::string x = StrCat("v_tensor<[", rows, ", 8], f32>"), y = "v_tensor<[8, 16], f32>";
    const std::string z = StrCat("v_tensor<[", rows, ", 16], f32>");
    return ParseProgram(
        context_,
        StrCat("program {\n %x = nn.feed() {name = \"x\"} : () -> ", x,
               "\n %y = nn.feed() {name = \"y\"} : () -> ", y, "\n %p = nn.matmul(%x, %y) : (", x,
               ", ", y, ") -> ", z, "\n %r = nn.softmax(%p) {axis = 1} : (", z, ") -> ", z,
               "\n nn.fetch(%r) {name = \"r\"} : (", z, ") -> ()\n nn.fetch(%p) {name = \"p\"} : (",
               z, ") -> ()\n}\n"));
  }

  static NamedValues Inputs() {
    return {{"x", RandomTensor(ElementType::kF32, {4, 8}, 1)},
            {"y", RandomTensor(ElementType::kF32, {8, 16}, 2)}};
  }

  static const ExplainedFunction& Find(const Explanation& e, std::string_view operations) {
    const auto found = std::ranges::find_if(
        e.functions, [&](const ExplainedFunction& f) { return f.info.operations == operations; });
    if (found == e.functions.end()) throw std::runtime_error("no such function");
    return *found;
  }

  IrContext context_;
};

TEST_F(ExplainTest, WorkBoundsAndReasons) {
  const Program program = Product("4");
  const Explanation e =
      Explain(program, {.compile = {.threads = 1}, .runs = 2, .inputs = Inputs()});
  ASSERT_EQ(e.functions.size(), 2U);
  const auto product = std::ranges::find_if(
      e.functions, [](const ExplainedFunction& f) { return f.info.operations == "matmul"; });
  ASSERT_NE(product, e.functions.end());
  EXPECT_DOUBLE_EQ(product->gflop, 2e-9 * 4 * 8 * 16);
  EXPECT_DOUBLE_EQ(product->gigabytes, 4e-9 * (4 * 8 + 8 * 16 + 4 * 16));
  EXPECT_DOUBLE_EQ(
      product->bound.ms,
      std::max(product->gflop / e.machine.gflops, product->gigabytes / e.machine.gbytes) * 1e3);
  EXPECT_GT(product->ms, 0);
  EXPECT_EQ(product->info.strategy, "matmul");
  const std::string& candidates = product->info.candidates;
  EXPECT_NE(candidates.find("matmul_dots  plevel 10  refused: there are more than two rows"),
            std::string::npos);
  EXPECT_EQ(candidates.find("conv"), std::string::npos) << "it is asked for other operations";
  EXPECT_EQ(product->results, "f32[4,16]");
  EXPECT_TRUE(e.interpreted.empty());
  EXPECT_GT(e.run_ms, 0);
}

TEST_F(ExplainTest, WhyGroupsAreNotLarger) {
  const Explanation e = Explain(Product("4"), {.compile = {.threads = 1}});
  ASSERT_FALSE(e.boundaries.empty());
  EXPECT_EQ(e.boundaries[0].op, "nn.matmul");
  EXPECT_EQ(e.boundaries[0].into, "nn.softmax");
  EXPECT_EQ(e.boundaries[0].why, "only elementwise ops follow such an op in registers");
  const ExplainedFunction& product = Find(e, "matmul");
  ASSERT_EQ(product.ends.size(), 1U);
  EXPECT_EQ(product.ends[0].why, e.boundaries[0].why);
  const ExplainedFunction& softmax = Find(e, "softmax");
  ASSERT_EQ(softmax.ends.size(), 1U);
  EXPECT_EQ(softmax.ends[0].into, "nn.fetch");
}

TEST_F(ExplainTest, SymbolsTakeTheSizesOfInputs) {
  const Program program = Product("N");
  for (const ExplainedFunction& f : Explain(program, {.compile = {.threads = 1}}).functions) {
    EXPECT_LT(f.gigabytes, 0);
    EXPECT_LT(f.bound.ms, 0);
    EXPECT_LT(f.share(), 0);
    EXPECT_LT(f.ms, 0);
  }
  const Explanation e = Explain(program, {.compile = {.threads = 1}, .inputs = Inputs()});
  EXPECT_EQ(e.symbols, (std::vector<Dim::Binding>{{"N", 4}}));
  const ExplainedFunction& product = Find(e, "matmul");
  EXPECT_DOUBLE_EQ(product.gflop, 2e-9 * 4 * 8 * 16);
  EXPECT_DOUBLE_EQ(product.gigabytes, 4e-9 * (4 * 8 + 8 * 16 + 4 * 16));
  EXPECT_EQ(product.results, "f32[4,16]");
}

// Of a table only the rows that are taken are read.
TEST_F(ExplainTest, BytesThatAreLookedAt) {
  const Program program = ParseProgram(context_, R"(program {
    %t = nn.feed() {name = "t"} : () -> v_tensor<[1000, 8], f32>
    %i = nn.feed() {name = "i"} : () -> v_tensor<[3], i64>
    %g = nn.gather(%t, %i) : (v_tensor<[1000, 8], f32>, v_tensor<[3], i64>) -> v_tensor<[3, 8], f32>
    %r = nn.relu(%g) : (v_tensor<[3, 8], f32>) -> v_tensor<[3, 8], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[3, 8], f32>) -> ()
  })");
  const Explanation e = Explain(program, {.compile = {.threads = 1}});
  EXPECT_DOUBLE_EQ(Find(e, "gather relu").gigabytes, 1e-9 * (3 * 8 * 4 + 3 * 8 + 3 * 8 * 4));
  EXPECT_DOUBLE_EQ(Find(e, "gather relu").gflop, 1e-9 * 3 * 8);
}

TEST(BoundOf, IsTheLongerOfTheTwo) {
  const MachinePeak machine{.threads = 1, .gflops = 100, .gbytes = 10};
  EXPECT_DOUBLE_EQ(BoundOf(1, 0.01, machine).ms, 10);
  EXPECT_FALSE(BoundOf(1, 0.01, machine).by_memory);
  EXPECT_DOUBLE_EQ(BoundOf(1, 1, machine).ms, 100);
  EXPECT_TRUE(BoundOf(1, 1, machine).by_memory);
  EXPECT_LT(BoundOf(-1, 1, machine).ms, 0);
  EXPECT_LT(BoundOf(1, 1, {}).ms, 0);
}

}  // namespace
}  // namespace lathe
