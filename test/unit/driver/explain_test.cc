#include "lathe/driver/explain.h"

#include <algorithm>

#include "test/unit/codegen/kernel_util.h"

namespace lathe {
namespace {

class ExplainTest : public testing::Test {
 protected:
  void SetUp() override {
    codegen::NeedCodeGenerator();
    LoadAllDialects(context_);
  }

  // relu(x * y) with x [rows, 8] and y [8, 16], and what it is in the end sorted by.
  Program Product(const std::string& rows) {
    const std::string x = StrCat("v_tensor<[", rows, ", 8], f32>"), y = "v_tensor<[8, 16], f32>";
    const std::string z = StrCat("v_tensor<[", rows, ", 16], f32>");
    return ParseProgram(
        context_,
        StrCat("program {\n %x = nn.feed() {name = \"x\"} : () -> ", x,
               "\n %y = nn.feed() {name = \"y\"} : () -> ", y, "\n %p = nn.matmul(%x, %y) : (", x,
               ", ", y, ") -> ", z, "\n %r = nn.relu(%p) : (", z, ") -> ", z,
               "\n nn.fetch(%r) {name = \"r\"} : (", z, ") -> ()\n nn.fetch(%p) {name = \"p\"} : (",
               z, ") -> ()\n}\n"));
  }

  static NamedValues Inputs() {
    return {{"x", RandomTensor(ElementType::kF32, {4, 8}, 1)},
            {"y", RandomTensor(ElementType::kF32, {8, 16}, 2)}};
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
      product->bound_ms,
      std::max(product->gflop / e.peak_gflops, product->gigabytes / e.read_gbytes) * 1e3);
  EXPECT_GT(product->ms, 0);
  EXPECT_EQ(product->info.strategy, "matmul");
  EXPECT_NE(product->info.candidates.find("elementwise  plevel 10  refused: nn.matmul"),
            std::string::npos);
  ASSERT_FALSE(e.refusals.empty());
  EXPECT_EQ(e.refusals[0].first, "nn.matmul with nothing: its uses do not meet in one op");
}

TEST_F(ExplainTest, SymbolsAreUnknownUntilMeasured) {
  const Program program = Product("N");
  for (const ExplainedFunction& f : Explain(program, {.compile = {.threads = 1}}).functions) {
    EXPECT_LT(f.gigabytes, 0);
    EXPECT_LT(f.share(), 0);
    EXPECT_LT(f.ms, 0);
  }
  const Explanation measured =
      Explain(program, {.compile = {.threads = 1}, .runs = 1, .inputs = Inputs()});
  for (const ExplainedFunction& f : measured.functions) EXPECT_GT(f.gigabytes, 0);
}

}  // namespace
}  // namespace lathe
