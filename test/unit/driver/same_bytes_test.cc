#include <gtest/gtest.h>

#include "lathe/driver/executable.h"
#include "lathe/support/file.h"
#include "lathe/support/random.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

// Products of many widths, some of the same weights, so that there are kernels to lower and weights
// to pack for several threads.
class SameBytesTest : public ::testing::Test {
 protected:
  static constexpr int kLayers = 5;

  void SetUp() override {
    codegen::NeedCodeGenerator();
    LoadAllDialects(context_);
  }

  Program Layers() {
    std::string text =
        "program {\n  %x = nn.feed() {name = \"x\"} : () -> v_tensor<[N, 40], f32>\n";
    for (int i = 0; i < kLayers; ++i) {
      const std::string w = StrCat("v_tensor<[40, ", 20 + 7 * i, "], f32>");
      const std::string y = StrCat("v_tensor<[N, ", 20 + 7 * i, "], f32>");
      text +=
          StrCat("  %w", i, " = builtin.get_parameter() {name = \"w", i, "\"} : () -> ", w, "\n");
      for (const char* part : {"a", "b"}) {
        const std::string p = StrCat("%p", part, i), t = StrCat("%t", part, i);
        const char* op = part[0] == 'a' ? "nn.tanh" : "nn.softmax";
        text += StrCat("  ", p, " = nn.matmul(%x, %w", i, ") : (v_tensor<[N, 40], f32>, ", w,
                       ") -> ", y, "\n  ", t, " = ", op, "(", p, ") : (", y, ") -> ", y,
                       "\n  nn.fetch(", t, ") {name = \"", part, i, "\"} : (", y, ") -> ()\n");
      }
    }
    Program program = ParseProgram(context_, text + "}", {.file_locations = false});
    for (int i = 0; i < kLayers; ++i) {
      const Tensor w = RandomTensor(ElementType::kF32, {40, 20 + 7 * i}, static_cast<uint64_t>(i));
      program.parameters().Insert(StrAttribute::Get(context_, StrCat("w", i)), {w, false});
    }
    return program;
  }

  // What is saved.
  std::string Bytes(const Program& program, int threads, const std::string& cache) {
    const Executable executable(program, {.cache = cache, .threads = threads, .strict = true});
    executable.Save(folder_ / "saved.lx");
    return ReadFile(folder_ / "saved.lx");
  }

  IrContext context_;
  TempFolder folder_;
};

TEST_F(SameBytesTest, WhateverTheThreadsAndTheCache) {
  const Program program = Layers();
  const std::string first = Bytes(program, 1, "");
  EXPECT_GT(first.size(), 10000U);
  EXPECT_TRUE(Bytes(program, 2, "") == first);
  const std::string cache = folder_ / "cache";
  EXPECT_TRUE(Bytes(program, 7, cache) == first) << "written";
  for (const int threads : {1, 2, 7}) EXPECT_TRUE(Bytes(program, threads, cache) == first);
}

TEST_F(SameBytesTest, WeightsAreKeptOnce) {
  const Program program = Layers();
  const Executable executable(program);
  ASSERT_NE(executable.executor(), nullptr);
  EXPECT_EQ(executable.executor()->plan().constants.size(), static_cast<size_t>(kLayers));
  EXPECT_EQ(program.parameters().size(), static_cast<size_t>(kLayers));  // the caller's are as were
  for (int i = 0; i < kLayers; ++i) {
    const Tensor w = RandomTensor(ElementType::kF32, {40, 20 + 7 * i}, static_cast<uint64_t>(i));
    EXPECT_EQ(program.parameters().Find(StrCat("w", i))->data, w);
  }
}

}  // namespace
}  // namespace lathe
