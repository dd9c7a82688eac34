// Programs that compute what no kernel does, saved and run by the run time alone.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "lathe/dialect/all.h"
#include "lathe/driver/executable.h"
#include "lathe/ir/text_format.h"
#include "lathe/runtime/function.h"
#include "lathe/runtime/lx_file.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/temp_folder.h"

namespace lathe::runtime {
namespace {

constexpr const char* kWords = R"(program {
  %x = nn.feed() {name = "x"} : () -> v_tensor<[N], string>
  %w = nn.string_normalizer(%x) {case_change_action = "LOWER", stopwords = ["the"]} : (v_tensor<[N], string>) -> v_tensor<[?], string>
  %c = nn.label_encoder(%w) {keys_strings = ["a", "b"], values_int64s = [3, 4], default_int64 = -1} : (v_tensor<[?], string>) -> v_tensor<[?], i64>
  nn.fetch(%w) {name = "words"} : (v_tensor<[?], string>) -> ()
  nn.fetch(%c) {name = "codes"} : (v_tensor<[?], i64>) -> ()
})";

class FunctionsTest : public ::testing::Test {
 protected:
  FunctionsTest() { LoadAllDialects(context_); }
  void SetUp() override { codegen::NeedCodeGenerator(); }

  Executable Compile(const char* text) { return Executable(ParseProgram(context_, text)); }

  IrContext context_;
  const TempFolder folder_;
};

std::string OutputOf(const std::string& command, const std::string& to) {
  std::system(StrCat(command, " >", to, " 2>&1").c_str());
  return ReadFile(to);
}

template <class F>
std::string ErrorIdOf(F&& f) {
  try {
    f();
    return "none";
  } catch (const Error& error) {
    return error.id();
  }
}

TEST_F(FunctionsTest, ServeStringsToTheRunTimeAlone) {
  Compile(kWords).Save(folder_ / "words.lx");
  EXPECT_EQ(OutputOf(StrCat(LATHE_BUILD_DIR "/bin/strings_check ", folder_ / "words.lx"),
                     folder_ / "out"),
            "fine\n");
}

// A copy of the run time that has no such library beside it.
TEST_F(FunctionsTest, AreMissedWithAnError) {
  Compile(kWords).Save(folder_ / "words.lx");
  namespace fs = std::filesystem;
  const fs::path alone = folder_ / "alone";
  fs::create_directory(alone);
  for (const auto& entry : fs::directory_iterator(LATHE_BUILD_DIR "/lib")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("liblathe_runtime.so")) fs::copy(entry.path(), alone / name);
  }
  const std::string out =
      OutputOf(StrCat("LD_LIBRARY_PATH=", alone.string(), " " LATHE_BUILD_DIR "/bin/strings_check ",
                      folder_ / "words.lx"),
               folder_ / "out");
  EXPECT_NE(out.find("operations without machine code"), std::string::npos) << out;
}

TEST_F(FunctionsTest, AreCheckedWhereTheyAreMade) {
  EXPECT_EQ(ErrorIdOf([] { MakeFunctions({"program { %x = }"}); }).substr(0, 6), "parse/");
  EXPECT_EQ(ErrorIdOf([] { MakeFunctions({"program {\n}"}); }), "lx/plan");
}

TEST_F(FunctionsTest, MustFitTheirSteps) {
  const Executable executable = Compile(kWords);
  Plan plan = executable.executor()->plan();
  plan.functions[0].text = R"(program {
  builtin.func() {name = "f"} ({
  ^(%a: v_tensor<[2], f32>, %b: v_tensor<[2], f32>):
    %c = nn.add(%a, %b) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
    builtin.return(%c) : (v_tensor<[2], f32>) -> ()
  }) : () -> ()
})";
  plan.code = {};
  for (PlanStep& step : plan.steps) EXPECT_EQ(step.kernel, kNone) << step.label;
  const Executor executor(std::make_shared<const Plan>(plan));
  const Tensor words = Tensor::Of<std::string>({1}, std::vector<std::string>{"a"});
  EXPECT_EQ(ErrorIdOf([&] { executor.RunValues({{"x", words}}); }), "lx/plan");
}

TEST_F(FunctionsTest, InputsThatAreObjectsHaveTheDimsOfTheirTypes) {
  const Executable executable = Compile(R"(program {
  %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 2], f32>
  %w = nn.feed() {name = "w"} : () -> v_tensor<[2 * N + 1, 3], string>
  nn.fetch(%x) {name = "y"} : (v_tensor<[N, 2], f32>) -> ()
  nn.fetch(%w) {name = "words"} : (v_tensor<[2 * N + 1, 3], string>) -> ()
})");
  const auto outcome = [&](int64_t n, Shape words) {
    return ErrorIdOf([&] {
      executable.Run({{"x", Tensor(ElementType::kF32, {n, 2})},
                      {"w", Tensor(ElementType::kString, std::move(words))}});
    });
  };
  EXPECT_EQ(outcome(2, {5, 3}), "none");
  EXPECT_EQ(outcome(0, {1, 3}), "none");
  EXPECT_EQ(outcome(2, {6, 3}), "run/input-shape");
  EXPECT_EQ(outcome(2, {5, 4}), "run/input-shape");
  EXPECT_EQ(outcome(2, {5}), "run/input-shape");
}

// Lists go from run to run without the interpreter, and each run has its own.
TEST_F(FunctionsTest, HoldLists) {
  const Executable executable = Compile(R"(program {
  %x = nn.feed() {name = "x"} : () -> list<v_tensor<*, f32>>
  %i = nn.feed() {name = "i"} : () -> v_tensor<[], i64>
  %t = nn.sequence_at(%x, %i) : (list<v_tensor<*, f32>>, v_tensor<[], i64>) -> v_tensor<*, f32>
  %y = nn.sequence_insert(%x, %t) : (list<v_tensor<*, f32>>, v_tensor<*, f32>) -> list<v_tensor<*, f32>>
  nn.fetch(%y) {name = "y"} : (list<v_tensor<*, f32>>) -> ()
})");
  ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
  executable.Save(folder_ / "list.lx");
  const Executable loaded = Executable::Load(folder_ / "list.lx");
  const RtValue list =
      RtValue::OfList({Tensor::Scalar<float>(1), Tensor::Of<float>({2}, std::vector<float>{2, 3})});
  const lathe::NamedValues inputs = {{"x", list}, {"i", Tensor::Scalar<int64_t>(1)}};
  for (const Executable* e : {&executable, &loaded}) {
    for (int run = 0; run < 2; ++run) {
      const RtValue y = e->Run(inputs)[0].second;
      ASSERT_EQ(y.list().size(), 3u);
      EXPECT_EQ(y.list()[2], list.list()[1]);
    }
  }
  EXPECT_EQ(list.list().size(), 2u);
}

// A list that grows in a loop is not copied: who makes the next one takes it.
TEST_F(FunctionsTest, TakeWhatNobodyReadsAfterwards) {
  const Executable executable = Compile(R"(program {
  %x = nn.feed() {name = "x"} : () -> list<v_tensor<[2], f32>>
  %n = nn.feed() {name = "n"} : () -> v_tensor<[], i64>
  %t = nn.feed() {name = "t"} : () -> v_tensor<[2], f32>
  %y = cf.while(%n, none, %x) ({
  ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %l: list<v_tensor<[2], f32>>):
    %m = nn.sequence_insert(%l, %t) : (list<v_tensor<[2], f32>>, v_tensor<[2], f32>) -> list<v_tensor<[2], f32>>
    cf.yield(%go, %m) : (v_tensor<[], bool>, list<v_tensor<[2], f32>>) -> ()
  }) : (v_tensor<[], i64>, none, list<v_tensor<[2], f32>>) -> list<v_tensor<[2], f32>>
  nn.fetch(%x) {name = "before"} : (list<v_tensor<[2], f32>>) -> ()
  nn.fetch(%y) {name = "y"} : (list<v_tensor<[2], f32>>) -> ()
})");
  ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
  size_t inserts = 0;
  for (const PlanStep& step : executable.executor()->plan().steps) {
    if (step.label != "sequence_insert") continue;
    ++inserts;
    EXPECT_EQ(step.takes, std::vector<uint32_t>{0});
  }
  EXPECT_EQ(inserts, 1u);
  const Tensor t = Tensor::Of<float>({2}, std::vector<float>{1, 2});
  const lathe::NamedValues inputs = {
      {"x", RtValue::OfList({t})}, {"n", Tensor::Scalar<int64_t>(3)}, {"t", t}};
  for (int run = 0; run < 2; ++run) {
    const lathe::NamedValues out = executable.Run(inputs);
    EXPECT_EQ(out[0].second.list().size(), 1u);
    EXPECT_EQ(out[1].second.list().size(), 4u);
  }
}

TEST_F(FunctionsTest, TakeStringsInTheOrderOfTheProgram) {
  const Executable executable = Compile(R"(program {
  %x = nn.feed() {name = "x"} : () -> v_tensor<[N], string>
  %c = nn.label_encoder(%x) {keys_strings = ["a", "b"], values_int64s = [3, 4], default_int64 = -1} : (v_tensor<[N], string>) -> v_tensor<[N], i64>
  nn.fetch(%c) {name = "codes"} : (v_tensor<[N], i64>) -> ()
})");
  const Tensor in[] = {Tensor::Of<std::string>({3}, std::vector<std::string>{"b", "c", "a"})};
  Tensor out[] = {Tensor(ElementType::kI64, {3})};
  executable.Run(in, out);
  EXPECT_EQ(out[0], Tensor::Of<int64_t>({3}, std::vector<int64_t>{4, -1, 3}));
}

// The numbers that functions draw are those of the seed that the program was compiled with.
TEST_F(FunctionsTest, DrawFromTheSeedOfTheFile) {
  const char* text = R"(program {
  %x = nn.feed() {name = "x"} : () -> v_tensor<[8], f32>
  %r = nn.random_normal_like(%x) : (v_tensor<[8], f32>) -> v_tensor<[8], f32>
  %s = nn.random_normal_like(%x) : (v_tensor<[8], f32>) -> v_tensor<[8], f32>
  nn.fetch(%r) {name = "r"} : (v_tensor<[8], f32>) -> ()
  nn.fetch(%s) {name = "s"} : (v_tensor<[8], f32>) -> ()
})";
  const lathe::NamedValues inputs = {{"x", Tensor(ElementType::kF32, {8})}};
  lathe::NamedValues before;
  for (const uint64_t seed : {0, 7}) {
    const Program program = ParseProgram(context_, text);
    CompileOptions options;
    options.interpreter.seed = seed;
    const Executable executable(program, options);
    executable.Save(folder_ / "draws.lx");
    const lathe::NamedValues drawn = executable.Run(inputs);
    EXPECT_EQ(executable.Run(inputs), drawn);
    EXPECT_EQ(Executable::Load(folder_ / "draws.lx").Run(inputs), drawn);
    EXPECT_NE(drawn[0].second, drawn[1].second);
    EXPECT_NE(drawn, before);
    before = drawn;
  }
}

}  // namespace
}  // namespace lathe::runtime
