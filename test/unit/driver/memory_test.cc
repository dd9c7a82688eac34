#include "lathe/driver/executable.h"
#include "lathe/driver/plan_summary.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/dialect/program_util.h"

// What compiled programs take of memory, and that what they share is right.
namespace lathe {
namespace {

class MemoryTest : public testing::ProgramTest {
 protected:
  void SetUp() override { codegen::NeedCodeGenerator(); }

  // Runs on every target and several numbers of threads, memory full of NaN before.
  void ExpectRight(const Program& program, const NamedValues& inputs, double tolerance = 1e-5) {
    Program own = program.Clone();
    const NamedValues wanted = Interpreter(own).Run(inputs);
    runtime::NamedTensors tensors;
    for (const auto& [name, value] : inputs) tensors.emplace_back(name, value.tensor());
    for (const codegen::Target* target : codegen::RunnableTargets()) {
      runtime::NamedTensors first;
      for (const int threads : {1, 2, 7}) {
        const Executable made(program,
                              {.target = target->name, .threads = threads, .strict = true});
        ASSERT_NE(made.executor(), nullptr) << made.obstacles()[0];
        const auto plan = std::make_shared<runtime::Plan>(made.executor()->plan());
        const runtime::Executor executor(plan, {.threads = threads, .poison = true});
        const runtime::NamedTensors got = executor.Run(tensors);
        for (size_t i = 0; i < got.size(); ++i) {
          const Closeness close =
              AllClose(got[i].second, wanted[i].second.tensor(), tolerance, tolerance);
          EXPECT_TRUE(close) << got[i].first << " of " << target->name << ": " << close.description;
        }
        if (first.empty()) first = got;
        for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].second, first[i].second);
      }
    }
  }

  void AddParameter(Program& program, const char* name, const Shape& shape) {
    program.parameters().Insert(StrAttribute::Get(context_, name),
                                {RandomTensor(ElementType::kF32, shape, shape.size()), false});
  }
};

// Layers that add what they were given: one tensor goes through all of them.
constexpr const char* kLayers = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 96], f32>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[96, 96], f32>
    %a = nn.matmul(%x, %w) : (v_tensor<[N, 96], f32>, v_tensor<[96, 96], f32>) -> v_tensor<[N, 96], f32>
    %b = nn.softmax(%a) : (v_tensor<[N, 96], f32>) -> v_tensor<[N, 96], f32>
    %c = nn.matmul(%b, %w) : (v_tensor<[N, 96], f32>, v_tensor<[96, 96], f32>) -> v_tensor<[N, 96], f32>
    %d = nn.add(%c, %a) : (v_tensor<[N, 96], f32>, v_tensor<[N, 96], f32>) -> v_tensor<[N, 96], f32>
    %e = nn.softmax(%d) : (v_tensor<[N, 96], f32>) -> v_tensor<[N, 96], f32>
    %f = nn.matmul(%e, %w) : (v_tensor<[N, 96], f32>, v_tensor<[96, 96], f32>) -> v_tensor<[N, 96], f32>
    %g = nn.add(%f, %d) : (v_tensor<[N, 96], f32>, v_tensor<[N, 96], f32>) -> v_tensor<[N, 96], f32>
    %axes = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>
    %m = nn.reduce_max(%g, %axes) {keepdims = false} : (v_tensor<[N, 96], f32>, v_tensor<[1], i64>) -> v_tensor<[N], f32>
    nn.fetch(%m) {name = "m"} : (v_tensor<[N], f32>) -> ())";

TEST_F(MemoryTest, LayersAddToOneTensor) {
  Program program = Parse(kLayers);
  AddParameter(program, "w", {96, 96});
  const Executable executable(program, {.threads = 1, .strict = true});
  const PlanSummary summary = Summarize(executable.executor()->plan(), {{{"N", 50}}});
  EXPECT_GE(summary.num_in_place, 2);
  EXPECT_LE(summary.arena_bytes, summary.arena_lower_bound * 11 / 10);
  constexpr int64_t kTensor = 50 * 96 * 4;
  EXPECT_GE(summary.arena_lower_bound, 2 * kTensor);  // a tensor and its softmax
  EXPECT_LT(summary.arena_lower_bound, 3 * kTensor);  // apart there would be three
  for (const int64_t n : {0, 1, 2, 13, 50, 200}) {
    ExpectRight(program, {{"x", RandomTensor(ElementType::kF32, {n, 96}, 3)}}, 1e-4);
  }
}

// What is fetched, or read again, is not written over.
TEST_F(MemoryTest, WhatIsStillWantedStays) {
  const Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[40, 33], f32>
    %a = nn.softmax(%x) : (v_tensor<[40, 33], f32>) -> v_tensor<[40, 33], f32>
    %b = nn.softmax(%a) : (v_tensor<[40, 33], f32>) -> v_tensor<[40, 33], f32>
    %c = nn.softmax(%b) : (v_tensor<[40, 33], f32>) -> v_tensor<[40, 33], f32>
    %d = nn.softmax(%c) {axis = 0} : (v_tensor<[40, 33], f32>) -> v_tensor<[40, 33], f32>
    %e = nn.sub(%d, %b) : (v_tensor<[40, 33], f32>, v_tensor<[40, 33], f32>) -> v_tensor<[40, 33], f32>
    %f = nn.softmax(%e) : (v_tensor<[40, 33], f32>) -> v_tensor<[40, 33], f32>
    nn.fetch(%a) {name = "a"} : (v_tensor<[40, 33], f32>) -> ()
    nn.fetch(%f) {name = "f"} : (v_tensor<[40, 33], f32>) -> ()
    nn.fetch(%f) {name = "again"} : (v_tensor<[40, 33], f32>) -> ()
    nn.fetch(%x) {name = "input"} : (v_tensor<[40, 33], f32>) -> ())");
  ExpectRight(program, {{"x", RandomTensor(ElementType::kF32, {40, 33}, 3)}});
}

// The caller's input is never written, whoever else dies there.
TEST_F(MemoryTest, InputsStay) {
  const Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 8], f32>
    %a = nn.softmax(%x) : (v_tensor<[N, 8], f32>) -> v_tensor<[N, 8], f32>
    nn.fetch(%a) {name = "a"} : (v_tensor<[N, 8], f32>) -> ())");
  const Tensor x = RandomTensor(ElementType::kF32, {20, 8}, 3);
  const Tensor copy = x.Clone();
  const Executable executable(program);
  const std::vector<Tensor> in = {x};
  std::vector<Tensor> out = {Tensor(ElementType::kF32, {20, 8})};
  executable.Run(in, out);
  EXPECT_EQ(x, copy);
}

// ---- weights that are read in two ways ----

constexpr const char* kTied = R"(
    %i = nn.feed() {name = "i"} : () -> v_tensor<[N, 3], i64>
    %t = builtin.get_parameter() {name = "t"} : () -> v_tensor<[3001, 100], f32>
    %g = nn.gather(%t, %i) {axis = 0} : (v_tensor<[3001, 100], f32>, v_tensor<[N, 3], i64>) -> v_tensor<[N, 3, 100], f32>
    %s = nn.softmax(%g) : (v_tensor<[N, 3, 100], f32>) -> v_tensor<[N, 3, 100], f32>
    %p = nn.matmul(%s, %t) {transpose_x = false, transpose_y = true} : (v_tensor<[N, 3, 100], f32>, v_tensor<[3001, 100], f32>) -> v_tensor<[N, 3, 3001], f32>
    nn.fetch(%p) {name = "p"} : (v_tensor<[N, 3, 3001], f32>) -> ())";

TEST_F(MemoryTest, RowsOfATableThatAProductTakesPacked) {
  Program program = Parse(kTied);
  AddParameter(program, "t", {3001, 100});
  const Executable executable(program, {.threads = 1, .strict = true});
  const PlanSummary summary = Summarize(executable.executor()->plan());
  EXPECT_EQ(summary.num_constants, 1);
  EXPECT_LT(summary.constant_bytes, 3001 * 100 * 4 * 11 / 10);
  const std::vector<int64_t> words = {0, 1, 15, 16, 31, 32, 63, 64, 2999, 3000, -1, -3001};
  const Tensor indices = Tensor::Of<int64_t>({4, 3}, words);
  ExpectRight(program, {{"i", indices}});
  const Tensor wrong = Tensor::Of<int64_t>({1, 3}, std::vector<int64_t>{0, 3001, 1});
  EXPECT_THROW((void)executable.Run({{"i", wrong}}), Error);  // the rows that pad the last panel
}

}  // namespace
}  // namespace lathe
