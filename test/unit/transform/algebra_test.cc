#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <vector>

#include "lathe/dialect/all.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/dialect/nn/norm.h"
#include "lathe/dialect/scale_axis_interface.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/file.h"
#include "lathe/support/random.h"

namespace lathe {
namespace {

class AlgebraTest : public ::testing::Test {
 protected:
  AlgebraTest() { LoadAllDialects(context_); }

  Program Parse(std::string_view body) {
    return ParseProgram(context_, StrCat("program {\n", body, "\n}"));
  }
  void AddParameter(Program& program, const char* name, Tensor data, bool is_mutable = false) {
    program.parameters().Insert(StrAttribute::Get(context_, name), {std::move(data), is_mutable});
  }
  static void Apply(Program& program, std::string_view pass) {
    PassRegistry::Global().Make(pass)->Apply(program);
  }
  static int Count(const Program& program, std::string_view op) {
    int count = 0;
    for (const Operation& o : *program.block()) count += o.name() == op ? 1 : 0;
    return count;
  }

  IrContext context_;
};

// ---- running twice is running once ----

TEST_F(AlgebraTest, EveryPassIsIdempotent) {
  const char* const passes[] = {"canonicalize",
                                "simplify",
                                "constant_folding",
                                "cse",
                                "dead_code",
                                "prune",
                                "simplify_inference",
                                "fold_shapes",
                                "precompute_prune",
                                "fold_scale_axis_backward",
                                "fold_scale_axis_forward",
                                "fold_affine",
                                "conv_bias_fuse",
                                "conv_bn_fuse",
                                "fc_fuse",
                                "combine_parallel_conv",
                                "combine_parallel_dense",
                                "decompose",
                                "layout",
                                "transpose_sinking"};
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(LATHE_SOURCE_DIR "/test/golden/transform")) {
    if (entry.path().extension() == ".lathe") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  int changed = 0;
  for (const auto& file : files) {
    const std::string text = ReadFile(file.string());
    for (const char* pass : passes) {
      try {
        Program program = ParseProgram(context_, text, {.file_locations = false});
        const std::string before = Print(program);
        Apply(program, pass);
        const std::string once = Print(program);
        changed += once != before ? 1 : 0;
        Apply(program, pass);
        EXPECT_EQ(Print(program), once) << pass << " on " << file.filename();
      } catch (const Error& error) {
        EXPECT_NE(error.code(), ErrorCode::kInternal) << pass << " on " << file << error.Render();
      }
    }
  }
  EXPECT_GT(changed, 100);
  std::cout << changed << " programs changed by passes, once\n";
}

// ---- what is computed ahead ----

TEST_F(AlgebraTest, PrecomputeKeepsWhatItMust) {
  Program program = Parse(R"(
    %y = nn.feed() {name = "y"} : () -> v_tensor<[100], f32>
    %x = builtin.get_parameter() {name = "x"} : () -> v_tensor<[100], f32>
    %a = builtin.get_parameter() {name = "a"} : () -> v_tensor<[100], f32>
    %m = builtin.get_parameter() {name = "m"} : () -> v_tensor<[100], f32>
    %one = builtin.constant() {value = tensor<[], f32> [1.0]} : () -> v_tensor<[], f32>
    %p = nn.add(%x, %one) : (v_tensor<[100], f32>, v_tensor<[], f32>) -> v_tensor<[100], f32> loc("same")
    %q = nn.exp(%p) : (v_tensor<[100], f32>) -> v_tensor<[100], f32> loc("same")
    %r = nn.add(%m, %one) : (v_tensor<[100], f32>, v_tensor<[], f32>) -> v_tensor<[100], f32>
    %s = nn.sum(%y, %p, %a, %q, %r) : (v_tensor<[100], f32>, v_tensor<[100], f32>, v_tensor<[100], f32>, v_tensor<[100], f32>, v_tensor<[100], f32>) -> v_tensor<[100], f32>
    nn.fetch(%s) {name = "s"} : (v_tensor<[100], f32>) -> ()
    nn.fetch(%q) {name = "q"} : (v_tensor<[100], f32>) -> ())");
  for (const char* name : {"x", "a"}) AddParameter(program, name, Tensor(ElementType::kF32, {100}));
  AddParameter(program, "m", Tensor(ElementType::kF32, {100}), true);
  const NamedValues inputs{{"y", Tensor(ElementType::kF32, {100})}};
  const NamedValues expected = Interpreter(program).Run(inputs);
  Apply(program, "precompute_prune");
  Apply(program, "dead_code");
  // x + 1 and exp(x + 1) under names of their own; what reads a mutable parameter stays.
  EXPECT_EQ(Count(program, "nn.exp"), 0);
  EXPECT_EQ(Count(program, "nn.add"), 1);
  EXPECT_NE(program.parameters().Find("same"), nullptr);
  EXPECT_NE(program.parameters().Find("same.1"), nullptr);
  EXPECT_EQ(Interpreter(program).Run(inputs), expected);
}

TEST_F(AlgebraTest, ConstantFoldingLeavesWhatIsRandomOrMutable) {
  Program program = Parse(R"(
    %c = builtin.constant() {value = tensor<[2], f32> [1.0, 2.0]} : () -> v_tensor<[2], f32>
    %m = builtin.get_parameter() {name = "m"} : () -> v_tensor<[2], f32>
    %r = nn.random_normal_like(%c) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %b = nn.bernoulli(%c) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %e = nn.exp(%m) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %f = nn.exp(%c) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %t = builtin.to_tensor(%c) : (v_tensor<[2], f32>) -> tensor<[2], f32>
    %w = nn.relu_(%t) : (tensor<[2], f32>) -> tensor<[2], f32>
    %v = builtin.to_vtensor(%w) : (tensor<[2], f32>) -> v_tensor<[2], f32>
    %s = nn.sum(%r, %b, %e, %f, %v) : (v_tensor<[2], f32>, v_tensor<[2], f32>, v_tensor<[2], f32>, v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
    nn.fetch(%s) {name = "s"} : (v_tensor<[2], f32>) -> ())");
  AddParameter(program, "m", Tensor(ElementType::kF32, {2}), true);
  Apply(program, "constant_folding");
  for (const char* op : {"nn.random_normal_like", "nn.bernoulli", "nn.exp", "nn.relu_", "nn.sum"}) {
    EXPECT_EQ(Count(program, op), 1) << op;
  }
}

/// Both results of one op; a constant that is read twice; a result above the limit stays.
TEST_F(AlgebraTest, ConstantFoldingOfSeveralResults) {
  const char* const text = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
    %c = builtin.constant() {value = tensor<[4], f32> [3.0, 1.0, 2.0, 5.0]} : () -> v_tensor<[4], f32>
    %k = builtin.constant() {value = tensor<[1], i64> [2]} : () -> v_tensor<[1], i64>
    %v, %i = nn.top_k(%c, %k) : (v_tensor<[4], f32>, v_tensor<[1], i64>) -> (v_tensor<[2], f32>, v_tensor<[2], i64>)
    %a = nn.add(%x, %v) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
    nn.fetch(%a) {name = "a"} : (v_tensor<[2], f32>) -> ()
    nn.fetch(%i) {name = "i"} : (v_tensor<[2], i64>) -> ())";
  Program program = Parse(text);
  Apply(program, "constant_folding");
  EXPECT_EQ(Count(program, "nn.top_k"), 0);
  EXPECT_EQ(Count(program, "builtin.constant"), 2);
  Program bounded = Parse(text);
  auto pass = PassRegistry::Global().Make("constant_folding");
  pass->SetOption("max_bytes", "8");
  pass->Apply(bounded);
  EXPECT_EQ(Count(bounded, "nn.top_k"), 1);
}

// ---- merging ----

TEST_F(AlgebraTest, CseAsksTheSkipAttribute) {
  const char* const text = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
    %a = nn.exp(%x) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %b = nn.exp(%x) {keep = true} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %c = nn.exp(%x) {keep = true} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %d = nn.exp(%x) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %s = nn.sum(%a, %b, %c, %d) : (v_tensor<[2], f32>, v_tensor<[2], f32>, v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
    nn.fetch(%s) {name = "s"} : (v_tensor<[2], f32>) -> ())";
  Program merged = Parse(text);
  Apply(merged, "cse");
  EXPECT_EQ(Count(merged, "nn.exp"), 2);
  Program kept = Parse(text);
  auto pass = PassRegistry::Global().Make("cse");
  pass->Set<std::function<bool(const Operation*)>>(
      "skip", [](const Operation* op) { return static_cast<bool>(op->attribute("keep")); });
  pass->Apply(kept);
  EXPECT_EQ(Count(kept, "nn.exp"), 3);
}

// ---- weights ----

/// A scale held by a parameter [C, 1, 1], weights that two convolutions share: the other one keeps
/// what it had, and so does whoever else reads the old parameter.
TEST_F(AlgebraTest, FoldingAScaleWritesNewParameters) {
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 2, 3, 3], f32>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[2, 2, 1, 1], f32>
    %s = builtin.get_parameter() {name = "s"} : () -> v_tensor<[2, 1, 1], f32>
    %c = nn.conv(%x, %w) : (v_tensor<[1, 2, 3, 3], f32>, v_tensor<[2, 2, 1, 1], f32>) -> v_tensor<[1, 2, 3, 3], f32>
    %m = nn.mul(%c, %s) : (v_tensor<[1, 2, 3, 3], f32>, v_tensor<[2, 1, 1], f32>) -> v_tensor<[1, 2, 3, 3], f32>
    %d = nn.conv(%x, %w) : (v_tensor<[1, 2, 3, 3], f32>, v_tensor<[2, 2, 1, 1], f32>) -> v_tensor<[1, 2, 3, 3], f32>
    nn.fetch(%m) {name = "m"} : (v_tensor<[1, 2, 3, 3], f32>) -> ()
    nn.fetch(%d) {name = "d"} : (v_tensor<[1, 2, 3, 3], f32>) -> ())");
  const Tensor weights = Tensor::Of<float>({2, 2, 1, 1}, {1, 2, 3, 4});
  AddParameter(program, "w", weights);
  AddParameter(program, "s", Tensor::Of<float>({2, 1, 1}, {2, -3}));
  const NamedValues inputs{{"x", Tensor::Of<float>({1, 2, 3, 3}, std::vector<float>(18, 0.5F))}};
  const NamedValues expected = Interpreter(program).Run(inputs);
  Apply(program, "fold_scale_axis_backward");
  EXPECT_EQ(Count(program, "nn.mul"), 0);
  EXPECT_EQ(RtValue(program.parameters().Find("w")->data), RtValue(weights));
  EXPECT_EQ(program.parameters().size(), 3U);
  EXPECT_EQ(Interpreter(program).Run(inputs), expected);
}

/// Weights that only the layer read go when it reads scaled ones.
TEST_F(AlgebraTest, WeightsInTheirOldFormGo) {
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 2], f32>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[2, 2], f32>
    %s = builtin.constant() {value = tensor<[2], f32> [2.0, 3.0]} : () -> v_tensor<[2], f32>
    %c = nn.gemm(%x, %w) : (v_tensor<[1, 2], f32>, v_tensor<[2, 2], f32>) -> v_tensor<[1, 2], f32>
    %m = nn.mul(%c, %s) : (v_tensor<[1, 2], f32>, v_tensor<[2], f32>) -> v_tensor<[1, 2], f32>
    %n = nn.mul(%m, %s) : (v_tensor<[1, 2], f32>, v_tensor<[2], f32>) -> v_tensor<[1, 2], f32>
    nn.fetch(%n) {name = "n"} : (v_tensor<[1, 2], f32>) -> ())");
  AddParameter(program, "w", Tensor::Of<float>({2, 2}, {1, 2, 3, 4}));
  const NamedValues inputs{{"x", Tensor::Of<float>({1, 2}, {1, 0.5})}};
  const NamedValues expected = Interpreter(program).Run(inputs);
  Apply(program, "fold_scale_axis_backward");
  EXPECT_EQ(Count(program, "nn.mul"), 0);
  EXPECT_EQ(program.parameters().size(), 1U);
  EXPECT_EQ(Interpreter(program).Run(inputs), expected);
}

// scale * (x' g + b) = x' (scale * g) + scale * b, where x' is x normalized; nothing the other way.
struct NormScale : ScaleAxisInterface::Concept {
  NormScale() : Concept{&ScaleAxis} {}
  static bool ScaleAxis(ScaleAxisContext& c) {
    if (c.is_forward()) return c.Refuse("its result does not change with the scale of its input");
    for (const size_t i : {1, 2}) {
      c.ScaleConstant(i, c.scale(), ChannelLayout::Along(*c.Constant(i), 0));
    }
    return true;
  }
};

/// The passes know no list of ops: one that gets the interface from elsewhere takes part.
TEST_F(AlgebraTest, ScalesGoIntoAnyOpThatTakesThem) {
  constexpr std::string_view kText = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 2, 3], f32>
    %g = builtin.constant() {value = tensor<[2], f32> [1.0, -2.0]} : () -> v_tensor<[2], f32>
    %b = builtin.constant() {value = tensor<[2], f32> [0.5, 4.0]} : () -> v_tensor<[2], f32>
    %s = builtin.constant() {value = tensor<[2, 1], f32> [2.0, -4.0]} : () -> v_tensor<[2, 1], f32>
    %n = nn.instance_normalization(%x, %g, %b) : (v_tensor<[1, 2, 3], f32>, v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[1, 2, 3], f32>
    %y = nn.mul(%n, %s) : (v_tensor<[1, 2, 3], f32>, v_tensor<[2, 1], f32>) -> v_tensor<[1, 2, 3], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[1, 2, 3], f32>) -> ())";
  Program program = Parse(kText);
  const NamedValues inputs{{"x", Tensor::Of<float>({1, 2, 3}, {1, -2, 3, 0.25, 5, -6})}};
  const NamedValues expected = Interpreter(program).Run(inputs);
  Apply(program, "fold_scale_axis_backward");
  EXPECT_EQ(Count(program, "nn.mul"), 1);
  context_.GetOp<nn::InstanceNormalizationOp>().AttachInterface<ScaleAxisInterface, NormScale>();
  Apply(program, "fold_scale_axis_backward");
  EXPECT_EQ(Count(program, "nn.mul"), 0);
  EXPECT_EQ(Interpreter(program).Run(inputs), expected);  // powers of two
}

/// A transpose of large weights is no copy where products read them turned.
TEST_F(AlgebraTest, TransposesOfLargeWeightsAreLeftToProducts) {
  for (const bool large : {false, true}) {
    const std::string k = large ? "600" : "60";
    Program program =
        Parse(StrCat(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, )",
                     k, R"(], f32>
    %i = nn.feed() {name = "i"} : () -> v_tensor<[2], i64>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[500, )",
                     k, R"(], f32>
    %g = nn.gather(%w, %i) : (v_tensor<[500, )",
                     k, R"(], f32>, v_tensor<[2], i64>) -> v_tensor<[2, )", k, R"(], f32>
    %t = nn.transpose(%w) {perm = [1, 0]} : (v_tensor<[500, )",
                     k, R"(], f32>) -> v_tensor<[)", k, R"(, 500], f32>
    %p = nn.matmul(%x, %t) : (v_tensor<[2, )",
                     k, R"(], f32>, v_tensor<[)", k, R"(, 500], f32>) -> v_tensor<[2, 500], f32>
    nn.fetch(%p) {name = "p"} : (v_tensor<[2, 500], f32>) -> ()
    nn.fetch(%g) {name = "g"} : (v_tensor<[2, )",
                     k, "], f32>) -> ()"));
    const int64_t depth = large ? 600 : 60;
    AddParameter(program, "w", RandomTensor(ElementType::kF32, {500, depth}, 1));
    const NamedValues inputs{{"x", RandomTensor(ElementType::kF32, {2, depth}, 2)},
                             {"i", Tensor::Of<int64_t>({2}, {3, 499})}};
    const NamedValues expected = Interpreter(program).Run(inputs);
    Apply(program, "precompute_prune");
    EXPECT_EQ(Count(program, "nn.transpose"), large ? 1 : 0);
    EXPECT_EQ(program.parameters().size(), large ? 1U : 2U);
    Apply(program, "fuse_matmul");
    EXPECT_EQ(Count(program, "nn.transpose"), 0);
    const NamedValues got = Interpreter(program).Run(inputs);
    EXPECT_TRUE(AllClose(got[0].second, expected[0].second, 1e-5, 1e-5));
    EXPECT_EQ(got[1], expected[1]);
  }
}

/// A parameter that running may change is no constant: nothing is folded into it.
TEST_F(AlgebraTest, NothingIsFoldedIntoMutableWeights) {
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 2], f32>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[2, 2], f32>
    %s = builtin.constant() {value = tensor<[2], f32> [2.0, 3.0]} : () -> v_tensor<[2], f32>
    %c = nn.gemm(%x, %w) : (v_tensor<[1, 2], f32>, v_tensor<[2, 2], f32>) -> v_tensor<[1, 2], f32>
    %m = nn.mul(%c, %s) : (v_tensor<[1, 2], f32>, v_tensor<[2], f32>) -> v_tensor<[1, 2], f32>
    nn.fetch(%m) {name = "m"} : (v_tensor<[1, 2], f32>) -> ())");
  AddParameter(program, "w", Tensor(ElementType::kF32, {2, 2}), true);
  Apply(program, "fold_scale_axis_backward");
  EXPECT_EQ(Count(program, "nn.mul"), 1);
}

// ---- batch norm ----

/// y = x s + t to a few units in the last place, for a small epsilon and a rank of two, where the
/// channels are the last axis and nothing is expanded.
TEST_F(AlgebraTest, BatchNormIsScaleAndShift) {
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 3], f64>
    %g = builtin.constant() {value = tensor<[3], f64> [1.5, -2.0, 0.5]} : () -> v_tensor<[3], f64>
    %b = builtin.constant() {value = tensor<[3], f64> [0.1, 0.2, 0.3]} : () -> v_tensor<[3], f64>
    %m = builtin.constant() {value = tensor<[3], f64> [0.0, 1.0, -1.0]} : () -> v_tensor<[3], f64>
    %v = builtin.constant() {value = tensor<[3], f64> [1.0, 2.0, 1e-12]} : () -> v_tensor<[3], f64>
    %n = nn.batch_normalization(%x, %g, %b, %m, %v) {epsilon = 1e-12} : (v_tensor<[2, 3], f64>, v_tensor<[3], f64>, v_tensor<[3], f64>, v_tensor<[3], f64>, v_tensor<[3], f64>) -> v_tensor<[2, 3], f64>
    nn.fetch(%n) {name = "y"} : (v_tensor<[2, 3], f64>) -> ())");
  const NamedValues inputs{{"x", Tensor::Of<double>({2, 3}, {1, -2, 3, 0.25, 5, -6})}};
  const NamedValues expected = Interpreter(program).Run(inputs);
  Apply(program, "simplify_inference");
  EXPECT_EQ(Count(program, "nn.batch_normalization"), 0);
  EXPECT_EQ(Count(program, "nn.reshape"), 0);
  const Closeness c =
      AllClose(Interpreter(program).Run(inputs)[0].second, expected[0].second, 1e-14, 1e-14);
  EXPECT_TRUE(c.close) << c.description;
}

}  // namespace
}  // namespace lathe
