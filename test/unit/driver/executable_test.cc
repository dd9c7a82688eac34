#include "lathe/driver/executable.h"

#include <algorithm>
#include <thread>

#include "lathe/driver/every_way.h"
#include "lathe/support/file.h"
#include "src/driver/plan_builder.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/dialect/program_util.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

using testing::ValuesOf;
using testing::Vec;

class ExecutableTest : public testing::ProgramTest {
 protected:
  void SetUp() override { codegen::NeedCodeGenerator(); }

  static constexpr const char* kSymbolic = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 4], f32>
    %y = nn.feed() {name = "y"} : () -> v_tensor<[4, M], f32>
    %a = nn.matmul(%x, %y) : (v_tensor<[N, 4], f32>, v_tensor<[4, M], f32>) -> v_tensor<[N, M], f32>
    %b = nn.relu(%a) : (v_tensor<[N, M], f32>) -> v_tensor<[N, M], f32>
    %c = nn.softmax(%b) : (v_tensor<[N, M], f32>) -> v_tensor<[N, M], f32>
    nn.fetch(%c) {name = "c"} : (v_tensor<[N, M], f32>) -> ()
    nn.fetch(%b) {name = "b"} : (v_tensor<[N, M], f32>) -> ())";

  static NamedValues InputsOf(int64_t n, int64_t m) {
    return {{"x", RandomTensor(ElementType::kF32, {n, 4}, 1)},
            {"y", RandomTensor(ElementType::kF32, {4, m}, 2)}};
  }

  static void ExpectClose(const NamedValues& got, const NamedValues& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].first, wanted[i].first);
      EXPECT_TRUE(AllClose(got[i].second, wanted[i].second, 1e-5, 1e-6)) << got[i].first;
    }
  }
};

TEST_F(ExecutableTest, SymbolsServeAllShapes) {
  Program program = Parse(kSymbolic);
  const EveryWay executable(program, {});
  ASSERT_NE(executable.made().executor(), nullptr) << executable.made().obstacles()[0];
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{3, 5}, {1, 1}, {70, 33}, {0, 2}, {3, 5}}) {
    const NamedValues inputs = InputsOf(n, m);
    ExpectClose(executable.Run(inputs), Interpreter(program).Run(inputs));
  }
}

TEST_F(ExecutableTest, ProgressReachesTheEnd) {
  const Program program = Parse(kSymbolic);
  std::vector<std::pair<size_t, size_t>> reports;
  const auto report = [&](size_t done, size_t total) { reports.emplace_back(done, total); };
  const Executable executable(program, {.threads = 2, .progress = report});
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports.back().first, reports.back().second);
  EXPECT_TRUE(std::ranges::is_sorted(reports, {}, &std::pair<size_t, size_t>::first));
  for (const auto& [done, total] : reports) EXPECT_LE(done, total);
  const auto fail = [](size_t, size_t) { throw Error(ErrorCode::kLimit, "test/enough", "enough"); };
  EXPECT_EQ(ErrorOf([&] { Executable(program, {.progress = fail}); }).id(), "test/enough");
}

// Too large to be cloned: f calls g twice, which calls h twice.
TEST_F(ExecutableTest, FunctionsOfAnySizeCallFunctions) {
  const auto function = [](const std::string& name, int ops, const std::string& callee) {
    const std::string type = "v_tensor<[4], f32>";
    std::string text = StrCat("builtin.func() {name = \"", name, "\"} ({ ^(%a0: ", type, "):\n");
    int value = 0;
    const auto add = [&](const std::string& call, const std::string& attributes) {
      text += StrCat("%a", value + 1, " = ", call, "(%a", value, ")", attributes, " : (", type,
                     ") -> ", type, "\n");
      ++value;
    };
    for (int i = 0; i < ops; ++i) add(i % 2 == 0 ? "nn.tanh" : "nn.neg", "");
    for (int i = 0; i < 2 && !callee.empty(); ++i) {
      add("builtin.call", StrCat(" {callee = \"", callee, "\"}"));
    }
    return text + StrCat("builtin.return(%a", value, ") : (", type, ") -> ()\n}) : () -> ()\n");
  };
  static constexpr const char* kCallsTwice = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[4], f32>
    %y = builtin.call(%x) {callee = "f"} : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
    %z = builtin.call(%y) {callee = "f"} : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
    nn.fetch(%z) {name = "z"} : (v_tensor<[4], f32>) -> ()
  )";
  const NamedValues inputs{{"x", RandomTensor(ElementType::kF32, {4}, 1)}};
  for (const int ops : {3, 150, 6000}) {
    Program program = Parse(StrCat(kCallsTwice, function("f", 5, "g"), function("g", ops, "h"),
                                   function("h", ops, "")));
    const NamedValues wanted = Interpreter(program).Run(inputs);
    ExpectClose(Executable(program).Run(inputs), wanted);
  }
}

TEST_F(ExecutableTest, ManyThreadsRunOne) {
  Program program = Parse(kSymbolic);
  const Executable executable(program, {.threads = 3, .strict = true});
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      Program own = program.Clone();
      for (int64_t i = 0; i < 20; ++i) {
        const NamedValues inputs = InputsOf(1 + (i + t) % 7, 1 + i % 5);
        ExpectClose(executable.Run(inputs), Interpreter(own).Run(inputs));
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST_F(ExecutableTest, WritesIntoTheCallersMemory) {
  const Program program = Parse(kSymbolic);
  const Executable executable(program);
  const NamedValues inputs = InputsOf(3, 5);
  const std::vector<Tensor> in = {inputs[0].second.tensor(), inputs[1].second.tensor()};
  std::vector<Tensor> out = {Tensor(ElementType::kF32, {3, 5}), Tensor(ElementType::kF32, {3, 5})};
  const std::byte* memory = out[0].raw();
  executable.Run(in, out);
  EXPECT_EQ(out[0].raw(), memory);
  const NamedValues wanted = executable.Run(inputs);
  EXPECT_EQ(out[0], wanted[0].second.tensor());
  EXPECT_EQ(out[1], wanted[1].second.tensor());
}

TEST_F(ExecutableTest, ASavedOneGivesTheSameBits) {
  const TempFolder folder;
  const Executable executable(Parse(kSymbolic));
  ASSERT_NE(executable.executor(), nullptr);
  executable.Save(folder / "a.lx");
  const Executable loaded = Executable::Load(folder / "a.lx", {.threads = 2});
  ASSERT_EQ(loaded.inputs().size(), 2u);
  EXPECT_EQ(loaded.inputs()[0].name, "x");
  EXPECT_EQ(loaded.inputs()[0].element, ElementType::kF32);
  EXPECT_EQ(loaded.inputs()[0].dims[0].ToString(), "N");
  EXPECT_EQ(loaded.outputs()[1].name, "b");
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{3, 5}, {70, 33}}) {
    const NamedValues inputs = InputsOf(n, m);
    EXPECT_EQ(loaded.Run(inputs), executable.Run(inputs));
  }
}

TEST_F(ExecutableTest, InThreePartsItGivesTheSameBits) {
  const TempFolder folder;
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 64], f32>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[64, 40], f32>
    %a = nn.matmul(%x, %w) : (v_tensor<[N, 64], f32>, v_tensor<[64, 40], f32>) -> v_tensor<[N, 40], f32>
    %b = nn.relu(%a) : (v_tensor<[N, 40], f32>) -> v_tensor<[N, 40], f32>
    nn.fetch(%b) {name = "b"} : (v_tensor<[N, 40], f32>) -> ())");
  program.parameters().Insert(StrAttribute::Get(context_, "w"),
                              {RandomTensor(ElementType::kF32, {64, 40}, 2), false});
  for (const codegen::Target* target : codegen::RunnableTargets()) {
    const Executable executable(program, {.target = target->name, .strict = true});
    executable.Save(folder / "a.lx");
    executable.Save(folder / "a.json");
    const NamedValues inputs = {{"x", RandomTensor(ElementType::kF32, {7, 64}, 1)}};
    const NamedValues wanted = executable.Run(inputs);
    EXPECT_EQ(Executable::Load(folder / "a.lx").Run(inputs), wanted) << target->name;
    const Executable loaded = Executable::Load(folder / "a.json");
    EXPECT_EQ(loaded.Run(inputs), wanted) << target->name;
    ASSERT_EQ(loaded.executor()->plan().constants.size(), 1u);
    const std::string name = loaded.executor()->plan().constant_names[0];
    EXPECT_EQ(executable.executor()->plan().constant_names[0], name);
    const Tensor zeros(ElementType::kF32, loaded.executor()->plan().constants[0].shape());
    const Executable other = Executable::Load(folder / "a.lx", {.parameters = {{name, zeros}}});
    EXPECT_EQ(other.Run(inputs)[0].second.tensor(), Tensor(ElementType::kF32, {7, 40}));
    const Error error =
        ErrorOf([&] { Executable::Load(folder / "a.json", {.parameters = {{"nothing", zeros}}}); });
    EXPECT_EQ(error.id(), "artifact/parameter");
    EXPECT_EQ(error.where(), folder / "a.json");
    executable.Save(folder / "again.json");
    EXPECT_EQ(ReadFile(folder / "again.so"), ReadFile(folder / "a.so"));
  }
}

TEST_F(ExecutableTest, WhatHasNoPlanIsNotSaved) {
  const TempFolder folder;
  const Executable executable(Parse(R"(
    %x = nn.feed() {name = "x"} : () -> tensor<[4], f32>
    %a = nn.relu_(%x) : (tensor<[4], f32>) -> tensor<[4], f32>
    nn.fetch(%a) {name = "y"} : (tensor<[4], f32>) -> ())"),
                              {.level = 0});
  ASSERT_EQ(executable.executor(), nullptr);
  const Error error = ErrorOf([&] { executable.Save(folder / "a.lx"); });
  EXPECT_EQ(error.id(), "save/interpreted");
  ASSERT_GE(error.notes().size(), 1u);
  EXPECT_NE(error.notes()[0].text.find("may change"), std::string::npos);
}

TEST_F(ExecutableTest, RanksThatValuesDecideAreObjects) {
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[4], f32>
    %s = nn.feed() {name = "s"} : () -> v_tensor<[K], i64>
    %r = nn.relu(%x) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
    %a = nn.reshape(%r, %s) : (v_tensor<[4], f32>, v_tensor<[K], i64>) -> v_tensor<*, f32>
    nn.fetch(%a) {name = "y"} : (v_tensor<*, f32>) -> ())");
  const Executable executable(program);
  ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
  const NamedValues inputs = {{"x", Vec<float>({-1, 2, 0, 3})}, {"s", Vec<int64_t>({2, 2})}};
  EXPECT_EQ(executable.Run(inputs)[0].second.tensor(),
            Tensor::Of<float>({2, 2}, {0.0f, 2.0f, 0.0f, 3.0f}));
  const Tensor in[] = {inputs[0].second.tensor(), inputs[1].second.tensor()};
  std::vector<Tensor> out = {Tensor(ElementType::kF32, {2, 2})};
  executable.Run(in, out);
  EXPECT_EQ(out[0], executable.Run(inputs)[0].second.tensor());
}

TEST_F(ExecutableTest, LoopsRunInTheInterpreter) {
  Program program = Parse(kSymbolic);
  const Executable executable(program, {.machine_code = false});
  EXPECT_EQ(executable.executor(), nullptr);
  const NamedValues inputs = InputsOf(3, 5);
  ExpectClose(executable.Run(inputs), Interpreter(program).Run(inputs));
}

TEST_F(ExecutableTest, ArgumentsAreChecked) {
  const Program program = Parse(kSymbolic);
  const Executable executable(program);
  NamedValues inputs = InputsOf(3, 5);
  inputs[1].second = RandomTensor(ElementType::kF32, {3, 5}, 2);
  EXPECT_EQ(ErrorOf([&] { executable.Run(inputs); }).id(), "run/input-shape");
  inputs[1].second = RtValue::OfList({});
  EXPECT_EQ(ErrorOf([&] { executable.Run(inputs); }).id(), "run/input-type");
  inputs.pop_back();
  EXPECT_EQ(ErrorOf([&] { executable.Run(inputs); }).id(), "run/input-missing");
}

}  // namespace
}  // namespace lathe
