#include "lathe/driver/every_way.h"

#include "test/unit/codegen/kernel_util.h"
#include "test/unit/dialect/program_util.h"

namespace lathe {
namespace {

// Programs with weights that kernels take in an order of their own, next to what has no kernel.
class EveryWayTest : public testing::ProgramTest {
 protected:
  void SetUp() override { codegen::NeedCodeGenerator(); }

  Program WithWeights(std::string_view body, const Shape& shape) {
    Program program = Parse(body);
    const StrAttribute name = StrAttribute::Get(context_, "w");
    program.parameters().Insert(name, {RandomTensor(ElementType::kF32, shape, 7), false});
    return program;
  }

  // In every way, on every target, what the interpreter gives.
  void Check(Program& program, const std::vector<Shape>& shapes) {
    for (const codegen::Target* target : codegen::RunnableTargets()) {
      SCOPED_TRACE(target->name);
      const EveryWay ways(program, {.target = target->name, .threads = 1});
      for (const Shape& shape : shapes) {
        const NamedValues inputs = {{"x", RandomTensor(ElementType::kF32, shape, 3)}};
        const NamedValues wanted = Interpreter(program).Run(inputs);
        const NamedValues got = ways.Run(inputs);
        ASSERT_EQ(got.size(), wanted.size());
        for (size_t i = 0; i < got.size(); ++i) {
          const Closeness close = AllClose(got[i].second, wanted[i].second, 1e-4, 1e-4);
          EXPECT_TRUE(close) << ShapeToString(shape) << ": " << close.description;
        }
      }
    }
  }
};

TEST_F(EveryWayTest, ProductsBeforeWhatHasNoKernel) {
  Program program = WithWeights(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[8, 16], f32>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[16, 40], f32>
    %a = nn.matmul(%x, %w) : (v_tensor<[8, 16], f32>, v_tensor<[16, 40], f32>) -> v_tensor<[8, 40], f32>
    %i = nn.non_zero(%a) : (v_tensor<[8, 40], f32>) -> v_tensor<[2, ?], i64>
    nn.fetch(%a) {name = "a"} : (v_tensor<[8, 40], f32>) -> ()
    nn.fetch(%i) {name = "i"} : (v_tensor<[2, ?], i64>) -> ())",
                                {16, 40});
  Check(program, {{8, 16}});
}

TEST_F(EveryWayTest, ProductsOfSizesThatAreNotKnown) {
  Program program = WithWeights(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[?, 128], f32>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[128, 256], f32>
    %a = nn.matmul(%x, %w) : (v_tensor<[?, 128], f32>, v_tensor<[128, 256], f32>) -> v_tensor<[?, 256], f32>
    %b = nn.relu(%a) : (v_tensor<[?, 256], f32>) -> v_tensor<[?, 256], f32>
    nn.fetch(%b) {name = "b"} : (v_tensor<[?, 256], f32>) -> ())",
                                {128, 256});
  Check(program, {{1, 128}, {5, 128}, {40, 128}});
}

TEST_F(EveryWayTest, ConvolutionsOfSizesThatAreNotKnown) {
  Program program = WithWeights(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[?, 4, 8, 8], f32>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[8, 4, 3, 3], f32>
    %a = nn.conv(%x, %w, none) {pads = [1, 1, 1, 1]} : (v_tensor<[?, 4, 8, 8], f32>, v_tensor<[8, 4, 3, 3], f32>, none) -> v_tensor<[?, 8, 8, 8], f32>
    nn.fetch(%a) {name = "a"} : (v_tensor<[?, 8, 8, 8], f32>) -> ())",
                                {8, 4, 3, 3});
  Check(program, {{1, 4, 8, 8}, {3, 4, 8, 8}});
}

// Two sizes that are not known need not be the same, even where the result's are known.
TEST_F(EveryWayTest, SizesThatAreNotKnownMayDiffer) {
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[?, 1, 6], f32>
    %y = nn.feed() {name = "y"} : () -> v_tensor<[?, 6], f32>
    %p = nn.mul(%x, %y) : (v_tensor<[?, 1, 6], f32>, v_tensor<[?, 6], f32>) -> v_tensor<[?, ?, 6], f32>
    %axes = builtin.constant() {value = tensor<[2], i64> [0, 1]} : () -> v_tensor<[2], i64>
    %s = nn.reduce_sum(%p, %axes) {keepdims = false} : (v_tensor<[?, ?, 6], f32>, v_tensor<[2], i64>) -> v_tensor<[6], f32>
    nn.fetch(%s) {name = "s"} : (v_tensor<[6], f32>) -> ())");
  const EveryWay ways(program, {});
  const NamedValues inputs = {{"x", RandomTensor(ElementType::kF32, {3, 1, 6}, 1)},
                              {"y", RandomTensor(ElementType::kF32, {5, 6}, 2)}};
  EXPECT_TRUE(
      AllClose(ways.Run(inputs)[0].second, Interpreter(program).Run(inputs)[0].second, 1e-4, 1e-4));
}

// What has no kernel is evaluated as operations: loops, one element after another, would take
// minutes.
TEST_F(EveryWayTest, TheProgramKeepsItsOperations) {
  Program program = WithWeights(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 16], f32>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[16, 40], f32>
    %a = nn.matmul(%x, %w) : (v_tensor<[N, 16], f32>, v_tensor<[16, 40], f32>) -> v_tensor<[N, 40], f32>
    %ratio = nn.feed() {name = "ratio"} : () -> v_tensor<[], f32>
    %true = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
    %i = nn.dropout(%a, %ratio, %true) : (v_tensor<[N, 40], f32>, v_tensor<[], f32>, v_tensor<[], bool>) -> v_tensor<[N, 40], f32>
    nn.fetch(%a) {name = "a"} : (v_tensor<[N, 40], f32>) -> ()
    nn.fetch(%i) {name = "i"} : (v_tensor<[N, 40], f32>) -> ())",
                                {16, 40});
  const EveryWay ways(program, {});
  const std::string text = Print(ways.made().program());
  EXPECT_EQ(text.find("loop."), std::string::npos) << text;
  EXPECT_EQ(text.find(".packed"), std::string::npos) << text;
  EXPECT_TRUE(Verify(ways.made().program()).empty());
  const auto& functions = ways.made().executor()->plan().functions;
  ASSERT_EQ(functions.size(), 1U);
  EXPECT_NE(functions[0].text.find("nn.dropout"), std::string::npos) << functions[0].text;
  EXPECT_EQ(ways.made().functions()[0].strategy, "matmul");
}

// Differing bits are found.
TEST_F(EveryWayTest, RandomNumbersAreTheSameInEveryWay) {
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[8], f32>
    %r = nn.random_normal_like(%x) : (v_tensor<[8], f32>) -> v_tensor<[8], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[8], f32>) -> ())");
  const EveryWay ways(program, {});
  EXPECT_EQ(ways.Run({{"x", RandomTensor(ElementType::kF32, {8}, 3)}}).size(), 1U);
}

}  // namespace
}  // namespace lathe
