#include "src/driver/kernel_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "lathe/driver/executable.h"
#include "lathe/driver/tune.h"
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

class KernelCacheTest : public testing::Test {
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
    const Executable executable(program, {.cache = Folder()});
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

KernelCache::Kernel SomeKernel() {
  KernelCache::Kernel kernel;
  kernel.how.done = true;
  kernel.how.strategy = "matmul";
  kernel.how.why_not = "because";
  kernel.how.packed = {{1, {3, 4}, {3, 2, 2}, {1, 0, 2}}};
  kernel.image.bytes = std::string("\x90\0\xc3", 3);
  kernel.image.entries = {{"k", 1, {Dim(64), Dim::Symbol("N") * 4 + 1}}};
  return kernel;
}

TEST_F(KernelCacheTest, KeepsAllOfAKernel) {
  const KernelCache cache(Folder(), codegen::Target::Host());
  EXPECT_FALSE(cache.Load("key"));
  const KernelCache::Kernel kernel = SomeKernel();
  cache.Store("key", kernel);
  const auto found = KernelCache(Folder(), codegen::Target::Host()).Load("key");
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->how.done);
  EXPECT_EQ(found->how.strategy, kernel.how.strategy);
  EXPECT_EQ(found->how.why_not, kernel.how.why_not);
  EXPECT_EQ(found->how.packed, kernel.how.packed);
  EXPECT_EQ(found->image.bytes, kernel.image.bytes);
  ASSERT_EQ(found->image.entries.size(), 1U);
  EXPECT_EQ(found->image.entries[0].offset, 1U);
  EXPECT_EQ(found->image.entries[0].workspaces, kernel.image.entries[0].workspaces);
  EXPECT_FALSE(cache.Load("another key"));
  EXPECT_FALSE(cache.Load(""));
  EXPECT_FALSE(KernelCache("", codegen::Target::Host()).Load("key"));
}

TEST_F(KernelCacheTest, DamagedFilesCountAsAbsent) {
  const KernelCache cache(Folder(), codegen::Target::Host());
  cache.Store("key", SomeKernel());
  ASSERT_EQ(Files().size(), 1U);
  const std::string path = Files()[0], whole = ReadFile(path);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] ^= 4;
    WriteFile(path, damaged);
    EXPECT_FALSE(cache.Load("key")) << "byte " << i;
    WriteFile(path, whole.substr(0, i));
    EXPECT_FALSE(cache.Load("key")) << i << " bytes";
  }
  WriteFile(path, whole);
  EXPECT_TRUE(cache.Load("key"));
}

TEST_F(KernelCacheTest, RecordsArePartOfTheKey) {
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

TEST_F(KernelCacheTest, KeysSayWhatDecides) {
  Program program = ParseProgram(context_, R"(program {
  builtin.func() {name = "k"} ({
    ^(%x: v_tensor<[4], f32>):
    %y = nn.relu(%x) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
    builtin.return(%y) : (v_tensor<[4], f32>) -> ()
  })
})",
                                 {.file_locations = false});
  Operation* f = codegen::FirstFunction(program);
  const KernelCache here(Folder(), codegen::Target::Named("avx2"));
  const KernelCache there(Folder(), codegen::Target::Named("avx512"));
  EXPECT_EQ(here.KeyOf(f, {false}), here.KeyOf(f, {false}));
  EXPECT_NE(here.KeyOf(f, {false}), here.KeyOf(f, {true}));
  EXPECT_NE(here.KeyOf(f, {false}), there.KeyOf(f, {false}));
}

// With the second run's kernels from files the same bits come out; what was damaged is made anew.
TEST_F(KernelCacheTest, WarmRunsGiveTheSameBits) {
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
TEST_F(KernelCacheTest, FoldersOfEverybodyAreNotUsed) {
  const KernelCache cache(Folder(), codegen::Target::Host());
  cache.Store("key", SomeKernel());
  ASSERT_EQ(chmod(Folder().c_str(), 0777), 0);
  EXPECT_FALSE(cache.Load("key"));
  cache.Store("other", SomeKernel());
  EXPECT_EQ(Files().size(), 1U);
  EXPECT_TRUE(Run().num_elements() > 0);
}

}  // namespace
}  // namespace lathe
