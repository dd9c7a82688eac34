#include "lathe/driver/compile_engine.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <barrier>
#include <filesystem>
#include <latch>
#include <thread>

#include "lathe/driver/executable.h"
#include "lathe/driver/tune.h"
#include "lathe/lower/strategy.h"
#include "lathe/support/file.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

constexpr const char* kProgram = R"(program {
  %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 20], f32>
  %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[20, 30], f32>
  %p = nn.matmul(%x, %w) : (v_tensor<[N, 20], f32>, v_tensor<[20, 30], f32>) -> v_tensor<[N, 30], f32>
  %y = nn.tanh(%p) : (v_tensor<[N, 30], f32>) -> v_tensor<[N, 30], f32>
  nn.fetch(%y) {name = "y"} : (v_tensor<[N, 30], f32>) -> ()
})";

class CompileEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    codegen::NeedCodeGenerator();
    LoadAllDialects(context_);
  }

  std::string Folder() const { return folder_ / "cache"; }

  Tensor Run() {
    Program program = ParseProgram(context_, kProgram, {.file_locations = false});
    program.parameters().Insert(StrAttribute::Get(context_, "w"),
                                {RandomTensor(ElementType::kF32, {20, 30}, 1), false});
    const Executable executable(program, {.cache = Folder(), .strict = true});
    return executable.Run({{"x", RandomTensor(ElementType::kF32, {7, 20}, 2)}})[0].second.tensor();
  }

  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    if (!IsDirectory(Folder())) return files;
    for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
      files.push_back(entry.path().string());
    }
    std::ranges::sort(files);
    return files;
  }

  IrContext context_;
  TempFolder folder_;
};

CompileEngine::Made SomeKernel() {
  CompileEngine::Made kernel;
  kernel.how.done = true;
  kernel.how.strategy = "matmul";
  kernel.how.why_not = "because";
  kernel.how.packed = {{.argument = 1, .padded = {3, 4}, .split = {3, 2, 2}, .order = {1, 0, 2}}};
  kernel.how.in_place = {{2, 0}, {0, 1}};
  kernel.image.bytes = std::string("\x90\0\xc3", 3);
  kernel.image.entries = {{"k", 1, {Dim(64), Dim::Symbol("N") * 4 + 1}}};
  return kernel;
}

// Whether an engine in the folder had to make it.
bool IsMade(const std::string& folder, const std::string& key = "key") {
  CompileEngine engine(folder);
  EXPECT_TRUE(engine.Compile(key, [] { return SomeKernel(); }));
  EXPECT_EQ(engine.disk_hits() + engine.misses(), 1U);
  return engine.misses() > 0;
}

// ---- in memory ----

TEST_F(CompileEngineTest, WhatIsKnownIsNotMadeAgain) {
  CompileEngine engine;
  const auto make = [] { return SomeKernel(); };
  const auto first = engine.Compile("a", make);
  EXPECT_EQ(engine.Compile("a", make), first);
  EXPECT_NE(engine.Compile("b", make), first);
  EXPECT_NE(engine.Compile("", make), engine.Compile("", make)) << "without a key nothing is kept";
  EXPECT_EQ(engine.hits(), 1U);
  EXPECT_EQ(engine.misses(), 4U);
  EXPECT_EQ(engine.disk_hits(), 0U);
}

// A thousand keys of five hundred kinds, asked for by eight threads.
TEST_F(CompileEngineTest, EachIsMadeOnceHoweverManyAsk) {
  CompileEngine engine;
  std::atomic<int> made = 0;
  std::vector<std::jthread> threads;
  std::barrier start(8);
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      for (size_t i = 0; i < 1000; ++i) {
        const size_t kind = (i * (2 * t + 1) + t) % 1000 / 2;
        const auto kernel = engine.Compile(StrCat(kind), [&] {
          ++made;
          CompileEngine::Made result = SomeKernel();
          result.how.strategy = StrCat(kind);
          return result;
        });
        EXPECT_EQ(kernel->how.strategy, StrCat(kind));
      }
    });
  }
  threads.clear();
  EXPECT_EQ(made, 500);
  EXPECT_EQ(engine.misses(), 500U);
  EXPECT_EQ(engine.hits(), 7500U);
}

// Neither of two ends before both have begun.
TEST_F(CompileEngineTest, DifferentKernelsAreMadeAtTheSameTime) {
  CompileEngine engine;
  std::latch both(2);
  const auto make = [&] {
    both.arrive_and_wait();
    return SomeKernel();
  };
  const std::jthread other([&] { (void)engine.Compile("a", make); });
  EXPECT_TRUE(engine.Compile("b", make));
}

TEST_F(CompileEngineTest, FailuresAreToldAndTriedAgain) {
  CompileEngine engine;
  int calls = 0;
  const auto make = [&]() -> std::optional<CompileEngine::Made> {
    if (++calls == 1) throw Error(ErrorCode::kUnsupported, "lower/test", "not today");
    if (calls == 2) return std::nullopt;
    return SomeKernel();
  };
  EXPECT_THROW((void)engine.Compile("a", make), Error);
  EXPECT_EQ(engine.Compile("a", make), nullptr);
  EXPECT_TRUE(engine.Compile("a", make));
  EXPECT_TRUE(engine.Compile("a", make));
  EXPECT_EQ(calls, 3);
}

// One who waits for what cannot be made hears for itself why.
TEST_F(CompileEngineTest, EveryoneHearsWhyNot) {
  CompileEngine engine;
  std::latch begun(1);
  std::atomic<int> calls = 0;
  const auto make = [&]() -> std::optional<CompileEngine::Made> {
    if (++calls == 1) begun.count_down();
    return std::nullopt;
  };
  std::jthread first([&] { EXPECT_EQ(engine.Compile("a", make), nullptr); });
  begun.wait();
  EXPECT_EQ(engine.Compile("a", make), nullptr);
  first.join();
  EXPECT_EQ(calls, 2);
}

// ---- programs ----

TEST_F(CompileEngineTest, ProgramsShareWhatTheyHaveInCommon) {
  const auto engine = std::make_shared<CompileEngine>();
  Program program = ParseProgram(context_, kProgram, {.file_locations = false});
  program.parameters().Insert(StrAttribute::Get(context_, "w"),
                              {RandomTensor(ElementType::kF32, {20, 30}, 1), false});
  const NamedValues inputs = {{"x", RandomTensor(ElementType::kF32, {7, 20}, 2)}};
  const Tensor wanted = Executable(program, {}).Run(inputs)[0].second.tensor();
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const Executable executable(program, {.engine = engine, .threads = 1, .strict = true});
      EXPECT_TRUE(AllClose(executable.Run(inputs)[0].second.tensor(), wanted, 0, 0));
    });
  }
  threads.clear();
  EXPECT_GT(engine->misses(), 0U);
  EXPECT_EQ(engine->hits(), 3 * engine->misses());
}

// ---- in files ----

TEST_F(CompileEngineTest, KeepsAllOfAKernel) {
  EXPECT_TRUE(IsMade(Folder()));
  CompileEngine engine(Folder());
  const CompileEngine::Made kernel = SomeKernel();
  const auto found = engine.Compile("key", []() -> std::optional<CompileEngine::Made> {
    ADD_FAILURE() << "it is in a file";
    return std::nullopt;
  });
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->how.done);
  EXPECT_EQ(found->how.strategy, kernel.how.strategy);
  EXPECT_EQ(found->how.why_not, kernel.how.why_not);
  EXPECT_EQ(found->how.packed, kernel.how.packed);
  EXPECT_EQ(found->how.in_place, kernel.how.in_place);
  const codegen::CodeImage& image = found->code.image();
  EXPECT_EQ(image.bytes, kernel.image.bytes);
  ASSERT_EQ(image.entries.size(), 1U);
  EXPECT_EQ(image.entries[0].offset, 1U);
  EXPECT_EQ(image.entries[0].workspaces, kernel.image.entries[0].workspaces);
  EXPECT_EQ(engine.disk_hits(), 1U);
  EXPECT_TRUE(IsMade(Folder(), "another key"));
  EXPECT_TRUE(IsMade(Folder(), ""));
  EXPECT_TRUE(IsMade(""));
}

TEST_F(CompileEngineTest, DamagedFilesCountAsAbsent) {
  EXPECT_TRUE(IsMade(Folder()));
  ASSERT_EQ(Files().size(), 1U);
  const std::string path = Files()[0], whole = ReadFile(path);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] ^= 4;
    WriteFile(path, damaged);
    EXPECT_TRUE(IsMade(Folder())) << "byte " << i;
    EXPECT_EQ(ReadFile(path), whole) << "put right";
    WriteFile(path, whole.substr(0, i));
    EXPECT_TRUE(IsMade(Folder())) << i << " bytes";
  }
  EXPECT_FALSE(IsMade(Folder()));
}

TEST_F(CompileEngineTest, RecordsArePartOfTheKey) {
  Program program = ParseProgram(context_, R"(program {
  %x = nn.feed() {name = "x"} : () -> v_tensor<[300], f32>
  %y = nn.tanh(%x) : (v_tensor<[300], f32>) -> v_tensor<[300], f32>
  nn.fetch(%y) {name = "y"} : (v_tensor<[300], f32>) -> ()
})",
                                 {.file_locations = false});
  const auto trial = [&](const TunedFunction&, const TuningRecords&) {};
  const auto asked = [](size_t, size_t, const std::string&, const std::string&) {};
  const std::string measured = Tune(program, {.seconds = 0}, asked, trial).ToText();
  const std::string path = folder_ / "records.jsonl";
  const auto compile = [&](const std::string& records) {
    const Executable executable(program, {.cache = Folder(), .records = records});
    EXPECT_FALSE(executable.functions()[0].strategy.empty());
    return Files().size();
  };
  EXPECT_EQ(compile(""), 1U);
  WriteFile(path, measured);
  EXPECT_EQ(compile(path), 2U);
  EXPECT_EQ(compile(path), 2U);  // found
  EXPECT_EQ(compile(""), 2U);
  TuningRecords changed = TuningRecords::FromText(measured);
  changed.Add("another workload", codegen::Target::Host().name, "elementwise", 1);
  WriteFile(path, changed.ToText());
  EXPECT_EQ(compile(path), 3U);
}

TEST_F(CompileEngineTest, KeysSayWhatDecides) {
  Program program = ParseProgram(context_, R"(program {
  builtin.func() {name = "k"} ({
    ^(%x: v_tensor<[4], f32>):
    %y = nn.relu(%x) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
    builtin.return(%y) : (v_tensor<[4], f32>) -> ()
  })
})",
                                 {.file_locations = false});
  Operation* f = codegen::FirstFunction(program);
  const auto key = [&](const char* target, bool constant) {
    return CompileEngine::KeyOf(f, {constant}, codegen::Target::Named(target));
  };
  EXPECT_EQ(key("avx2", false), key("avx2", false));
  EXPECT_NE(key("avx2", false), key("avx2", true));
  EXPECT_NE(key("avx2", false), key("avx512", false));
}

// Neither name nor version of a plug-in says what its strategy does.
TEST_F(CompileEngineTest, FunctionsWithStrategiesOfPluginsHaveNoKey) {
  const codegen::Target& target = codegen::Target::Host();
  context_.allow_unregistered_ops(true);
  for (const std::string& key : {std::string("generic"), std::string("cpu"), target.name}) {
    Program program = ParseProgram(context_,
                                   StrCat(R"(program {
  builtin.func() {name = "k"} ({
    ^(%x: v_tensor<[4], f32>):
    %y = plugin.for_)",
                                          key, R"((%x) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
    builtin.return(%y) : (v_tensor<[4], f32>) -> ()
  })
})"),
                                   {.file_locations = false});
    Operation* function = codegen::FirstFunction(program);
    EXPECT_NE(CompileEngine::KeyOf(function, {false}, target), "");
    StrategyRegistry::Global().Register(StrCat("plugin.for_", key), key,
                                        [](const OpCall&) { return OpStrategy(); });
    EXPECT_EQ(CompileEngine::KeyOf(function, {false}, target), "") << key;
  }
}

// With the second run's kernels from files the same bits come out; what was damaged is made anew.
TEST_F(CompileEngineTest, WarmRunsGiveTheSameBits) {
  const Tensor cold = Run();
  const std::vector<std::string> files = Files();
  ASSERT_FALSE(files.empty());
  std::vector<std::string> contents;
  for (const std::string& file : files) contents.push_back(ReadFile(file));
  EXPECT_TRUE(AllClose(Run(), cold, 0, 0));
  EXPECT_EQ(Files(), files);
  for (const std::string& file : files) WriteFile(file, ReadFile(file).substr(0, 100));
  EXPECT_TRUE(AllClose(Run(), cold, 0, 0));
  EXPECT_EQ(Files(), files);
  for (size_t i = 0; i < files.size(); ++i) EXPECT_EQ(ReadFile(files[i]), contents[i]);
}

// Who may write the folder would decide what is executed.
TEST_F(CompileEngineTest, FoldersOfEverybodyAreNotUsed) {
  EXPECT_TRUE(IsMade(Folder()));
  ASSERT_EQ(chmod(Folder().c_str(), 0777), 0);
  EXPECT_TRUE(IsMade(Folder()));
  EXPECT_TRUE(IsMade(Folder(), "other"));
  EXPECT_EQ(Files().size(), 1U);
  EXPECT_TRUE(Run().num_elements() > 0);
}

}  // namespace
}  // namespace lathe
