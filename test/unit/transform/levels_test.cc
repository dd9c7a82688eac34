#include <gtest/gtest.h>

#include "lathe/dialect/all.h"
#include "lathe/ir/text_format.h"
#include "lathe/pass/pass_manager.h"

namespace lathe {
namespace {

std::vector<std::string> NamesAt(PassManagerOptions options, std::string_view pipeline) {
  PassManager manager(std::move(options));
  manager.Add(pipeline);
  std::vector<std::string> names;
  for (const Pass* pass : manager.passes()) names.push_back(pass->name());
  return names;
}

bool Has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(Levels, EachLevelHoldsTheStepsOfTheOneBelowInTheSameOrder) {
  for (const NamedPipeline& pipeline : NamedPipelines()) {
    EXPECT_TRUE(NamesAt({.level = 0}, pipeline.name).empty());
    std::vector<std::string> below;
    for (int level = 1; level <= 3; ++level) {
      const std::vector<std::string> names = NamesAt({.level = level}, pipeline.name);
      size_t at = 0;
      for (const std::string& name : names) at += at < below.size() && below[at] == name ? 1 : 0;
      EXPECT_EQ(at, below.size()) << pipeline.name << " level " << level;
      EXPECT_GE(names.size(), below.size());
      below = names;
    }
    EXPECT_FALSE(below.empty()) << pipeline.name;
  }
}

TEST(Levels, EachPassIsSwitchableByName) {
  EXPECT_FALSE(Has(NamesAt({.level = 1}, "inference"), "fuse_gelu"));
  const auto with = NamesAt({.level = 1, .enabled = {"fuse_gelu"}}, "inference");
  EXPECT_TRUE(Has(with, "fuse_gelu"));
  EXPECT_FALSE(Has(with, "fuse_softmax"));
  EXPECT_FALSE(Has(NamesAt({.level = 1}, "inference{level=2}"), "combine_parallel_conv"));
  EXPECT_TRUE(Has(NamesAt({.level = 1}, "inference{level=3}"), "combine_parallel_conv"));
}

TEST(Levels, FastMathIsAskedForByName) {
  const auto text = [](PassManagerOptions options) {
    PassManager manager(std::move(options));
    manager.Add("inference");
    std::string all;
    for (const Pass* pass : manager.passes()) all += pass->ToText() + " ";
    return all;
  };
  const std::string usual = text({.level = 3}), fast = text({.level = 3, .enabled = {kFastMath}});
  EXPECT_EQ(usual.find("fold_affine"), std::string::npos);
  EXPECT_NE(usual.find("fuse_softmax{exact=true}"), std::string::npos) << usual;
  EXPECT_NE(fast.find("fold_affine"), std::string::npos);
  EXPECT_EQ(fast.find("exact=true"), std::string::npos) << fast;
}

TEST(Levels, MistakesAreErrors) {
  const auto id = [](PassManagerOptions options, std::string_view pipeline) -> std::string {
    try {
      (void)NamesAt(std::move(options), pipeline);
    } catch (const Error& error) {
      return error.id();
    }
    return "none";
  };
  EXPECT_EQ(id({.level = 4}, "inference"), "pass/level");
  EXPECT_EQ(id({.level = -1}, "inference"), "pass/level");
  EXPECT_EQ(id({}, "inference{level=x}"), "pass/option");
  EXPECT_EQ(id({}, "inference{lvl=1}"), "pass/option");
  EXPECT_EQ(id({.enabled = {"fuse_glu"}}, "inference"), "pass/unknown");
  EXPECT_EQ(id({.disabled = {"fuse_glu"}}, "inference"), "pass/unknown");
  EXPECT_EQ(id({.level = 3}, "inference"), "none");
}

TEST(Levels, OptimizeRunsThem) {
  IrContext context;
  LoadAllDialects(context);
  const auto text = [&](int level) {
    Program program = ParseProgram(context, R"(program {
      %0 = nn.feed() {name = "x"} : () -> v_tensor<[2, 3], f32>
      %1 = builtin.constant() {value = tensor<[3, 4], f32>
          [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0]} : () -> v_tensor<[3, 4], f32>
      %2 = builtin.constant() {value = tensor<[4], f32> [1.0, 2.0, 3.0, 4.0]} : () -> v_tensor<[4], f32>
      %3 = nn.identity(%0) : (v_tensor<[2, 3], f32>) -> v_tensor<[2, 3], f32>
      %4 = nn.matmul(%3, %1) : (v_tensor<[2, 3], f32>, v_tensor<[3, 4], f32>) -> v_tensor<[2, 4], f32>
      %5 = nn.add(%4, %2) : (v_tensor<[2, 4], f32>, v_tensor<[4], f32>) -> v_tensor<[2, 4], f32>
      nn.fetch(%5) {name = "y"} : (v_tensor<[2, 4], f32>) -> ()
    })");
    Optimize(program, "inference", level);
    return Print(program);
  };
  EXPECT_NE(text(0).find("nn.identity"), std::string::npos);
  EXPECT_EQ(text(1).find("nn.identity"), std::string::npos);
  EXPECT_NE(text(1).find("nn.matmul"), std::string::npos);
  EXPECT_NE(text(2).find("nn.gemm"), std::string::npos);
  EXPECT_NE(text(3).find("nn.gemm"), std::string::npos);
}

}  // namespace
}  // namespace lathe
