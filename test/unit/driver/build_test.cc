#include "lathe/driver/build.h"

#include <nlohmann/json.hpp>
#include <thread>

#include "lathe/driver/executable.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/dialect/program_util.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

class BuildTest : public testing::ProgramTest {
 protected:
  void SetUp() override { codegen::NeedCodeGenerator(); }

  Symbol Variable(const char* name) { return Symbol::CreateVariable(context_, name); }
  Symbol Op(const char* op, const Symbol::Args& args, const char* name) {
    return Symbol::CreateFunctor(context_, op)(args, {}, name);
  }
  // relu(x w + b)
  Symbol Layer() {
    return Op("nn.relu", {Op("nn.gemm", {Variable("x"), Variable("w"), Variable("b")}, "fc")}, "r");
  }
  static runtime::NamedTensors LayerData() {
    return {{"w", RandomTensor(ElementType::kF32, {4, 3}, 1)},
            {"b", RandomTensor(ElementType::kF32, {3}, 2)}};
  }
  static BuildArguments LayerArguments() {
    return {.target = codegen::Target::Host().name,
            .shape = {{"x", {Dim::Symbol("N"), 4}}},
            .params = LayerData()};
  }

  static runtime::NamedTensors RunOf(const runtime::Artifacts& parts,
                                     const runtime::NamedTensors& inputs) {
    return runtime::Executor(runtime::PlanOf(parts)).Run(inputs);
  }
  static size_t NumCalls(const runtime::Artifacts& parts) {
    size_t calls = 0;
    const auto graph = nlohmann::json::parse(parts.graph);
    for (const auto& node : graph["nodes"]) {
      calls += node["op"] == "tvm_op" ? 1 : 0;
    }
    return calls;
  }
};

TEST_F(BuildTest, GivesGraphLibraryAndParameters) {
  const runtime::Artifacts parts = Build(Layer(), LayerArguments());
  const Tensor x = RandomTensor(ElementType::kF32, {5, 4}, 3);
  Program program = Layer().ToProgram(
      {.types = {{"x", VTensorType::Get(context_, SymShape{5, 4}, ElementType::kF32)}},
       .parameters = LayerData()});
  const NamedValues wanted = Interpreter(program).Run({{"x", x}});
  const runtime::NamedTensors got = RunOf(parts, {{"x", x}});
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].first, wanted[0].first);
  EXPECT_TRUE(AllClose(RtValue(got[0].second), wanted[0].second, 1e-5, 1e-6));
  const TempFolder folder;
  SaveArtifacts(parts, {folder / "layer.json"});
  EXPECT_EQ(Executable::Load(folder / "layer.json").Run({{"x", x}})[0].second.tensor(),
            got[0].second);
}

TEST_F(BuildTest, TheTargetIsTheArgumentElseTheScopes) {
  const auto target_of = [&](const std::string& argument) {
    BuildArguments arguments = LayerArguments();
    arguments.target = argument;
    return PlanOf(Build(Layer(), arguments))->code.target;
  };
  EXPECT_EQ(ErrorOf([&] { target_of(""); }).id(), "build/target");
  {
    const TargetScope outer("avx2");
    {
      const TargetScope inner("x86-64");
      EXPECT_EQ(target_of(""), "x86-64");
      EXPECT_EQ(target_of("avx512"), "avx512");
    }
    EXPECT_EQ(target_of(""), "avx2");
    std::thread([] { EXPECT_EQ(TargetScope::Current(), "") << "a scope is of its thread"; }).join();
  }
  EXPECT_EQ(TargetScope::Current(), "");
  EXPECT_EQ(ErrorOf([] { const TargetScope scope("avx3"); }).id(), "codegen/target");
  EXPECT_EQ(ErrorOf([&] { target_of("avx3"); }).id(), "codegen/target");
}

TEST_F(BuildTest, TheHostRunsTheKernels) {
  BuildArguments arguments = LayerArguments();
  arguments.target_host = "x86-64";
  EXPECT_NO_THROW((void)Build(Layer(), arguments));
  arguments.target_host = "aarch64";
  EXPECT_EQ(ErrorOf([&] { (void)Build(Layer(), arguments); }).id(), "build/host");
}

TEST_F(BuildTest, ShapesAndTypesAreChecked) {
  const auto error = [&](auto change) {
    BuildArguments arguments = LayerArguments();
    change(arguments);
    const Error e = ErrorOf([&] { (void)Build(Layer(), arguments); });
    return StrCat(e.id(), ": ", e.message());
  };
  EXPECT_EQ(error([](BuildArguments& a) { a.shape.clear(); }),
            "build/shape: variable 'x' has neither a shape nor data");
  EXPECT_EQ(error([](BuildArguments& a) { a.params.pop_back(); }),
            "build/shape: variable 'b' has neither a shape nor data");
  EXPECT_EQ(error([](BuildArguments& a) { a.shape[0].first = "y"; }),
            "symbol/unknown-argument: there is no variable 'y'");
  EXPECT_EQ(error([](BuildArguments& a) { a.shape.push_back({"b", {4}}); }),
            "build/shape: variable 'b' is to be f32[4], but its data is f32[3]");
  EXPECT_EQ(error([](BuildArguments& a) { a.shape.push_back({"b", {3}}); }), ": no error");
  EXPECT_EQ(error([](BuildArguments& a) {
              a.shape.push_back({"b", {3}});
              a.dtype = ElementType::kF64;
            }),
            "build/shape: variable 'b' is to be f64[3], but its data is f32[3]");
  EXPECT_EQ(error([](BuildArguments& a) { a.disabled = {"precompute_prun"}; }).substr(0, 12),
            "pass/unknown");
}

// Zeros for the mean and variance of a batch normalization would be a wrong answer.
TEST_F(BuildTest, StatesThatAreOnlyReadNeedData) {
  const Symbol graph =
      Op("nn.batch_normalization",
         {Variable("x"), Variable("s"), Variable("b"), Variable("m"), Variable("v")}, "n");
  BuildArguments arguments{
      .target = "x86-64", .shape = {{"x", {2, 3}}, {"s", {3}}, {"b", {3}}, {"m", {3}}, {"v", {3}}}};
  const auto error = [&] {
    try {
      (void)Build(graph, arguments);
    } catch (const Error& e) {
      return StrCat(e.id(), ": ", e.message());
    }
    return std::string();
  };
  EXPECT_EQ(error(), "build/state-data: state 'm' has no data, and the graph does not set it");
  const Tensor three = Tensor::Of<float>({3}, {1, 2, 3});
  arguments.params = {{"m", three}};
  EXPECT_EQ(error(), "build/state-data: state 'v' has no data, and the graph does not set it");
  arguments.params = {{"m", three}, {"v", three}};
  EXPECT_EQ(error(), "");
}

TEST_F(BuildTest, DtypeMayBeOfEach) {
  BuildArguments arguments{.target = "x86-64",
                           .shape = {{"x", {2}}, {"y", {2}}},
                           .dtype = std::vector<std::pair<std::string, ElementType>>{
                               {"x", ElementType::kI64}, {"y", ElementType::kI64}}};
  const runtime::Artifacts parts =
      Build(Op("nn.add", {Variable("x"), Variable("y")}, "sum"), arguments);
  const Tensor x = Tensor::Of<int64_t>({2}, {1, 2}), y = Tensor::Of<int64_t>({2}, {10, 20});
  EXPECT_EQ(RunOf(parts, {{"x", x}, {"y", y}})[0].second, Tensor::Of<int64_t>({2}, {11, 22}));
}

// exp(y + x): one kernel, or two; by level and by name.
TEST_F(BuildTest, FusionIsSwitchedByLevelAndName) {
  const Symbol graph = Op("nn.exp", {Op("nn.add", {Variable("y"), Variable("x")}, "sum")}, "e");
  const auto calls = [&](int level, std::vector<std::string> off, std::vector<std::string> on) {
    return NumCalls(Build(graph, {.target = "x86-64",
                                  .shape = {{"x", {7}}, {"y", {7}}},
                                  .opt_level = level,
                                  .disabled = std::move(off),
                                  .enabled = std::move(on)}));
  };
  EXPECT_EQ(calls(2, {}, {}), 1u);
  EXPECT_EQ(calls(1, {}, {}), 1u);
  EXPECT_EQ(calls(0, {}, {}), 2u);
  EXPECT_EQ(calls(2, {"graph_fuse_partition"}, {}), 2u);
  EXPECT_EQ(calls(0, {}, {"graph_fuse_partition"}), 1u);
}

// y + (x + 1) + a, where x and a are known: x + 1 is computed now.
TEST_F(BuildTest, WhatDependsOnParametersIsComputedOnce) {
  const Symbol graph = Op("nn.add", {Variable("y"), Variable("x") + 1.0}, "s") + Variable("a");
  const Tensor x = Tensor::Of<float>({3}, {1, 2, 3}), a = Tensor::Of<float>({3}, {10, 20, 30});
  BuildArguments arguments{
      .target = "x86-64", .shape = {{"y", {3}}}, .params = {{"x", x}, {"a", a}}};
  const auto has = [&](const Tensor& wanted) {
    const runtime::Artifacts parts = Build(graph, arguments);
    EXPECT_EQ(RunOf(parts, {{"y", Tensor::Of<float>({3}, {100, 100, 100})}})[0].second,
              Tensor::Of<float>({3}, {112, 123, 134}));
    for (const auto& [name, tensor] : parts.parameters) {
      if (tensor == wanted) return true;
    }
    return false;
  };
  EXPECT_FALSE(has(x)) << "nothing reads x any more";
  arguments.opt_level = 0;
  EXPECT_TRUE(has(x));
}

}  // namespace
}  // namespace lathe
