#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "lathe/driver/every_way.h"
#include "lathe/pass/pass_manager.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/dialect/program_util.h"

namespace lathe {

// For programs of ComputedSizesTest: what a run gives has the shape that its data say.
inline constexpr std::string_view kReshaped = R"(
    %l = nn.reshape(%x, %s) {allowzero = true} : (v_tensor<[N, 3], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
    %y = nn.exp(%l) : (v_tensor<[?, ?], f32>) -> v_tensor<[?, ?], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[?, ?], f32>) -> ())";

class ComputedSizesTest : public testing::ProgramTest {
 protected:
  void SetUp() override { codegen::NeedCodeGenerator(); }

  // x : [N, 3], about a third of it zeros; m : bool [N]; k : i64 [1] in [0, N]; s : i64 [2], a
  // shape of 3 N elements.
  static NamedValues InputsOf(int64_t n, uint64_t seed) {
    Tensor x = RandomTensor(ElementType::kF32, {n, 3}, seed);
    Tensor m(ElementType::kBool, {n});
    for (float& v : x.mutable_data<float>()) v = v < -0.3f ? 0.0f : v;
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      m.mutable_data<bool>()[i] = x.data<float>()[3 * i] > 0.1f;
    }
    const int64_t k = n / 2;
    return {{"x", std::move(x)},
            {"m", std::move(m)},
            {"k", Tensor::Of<int64_t>({1}, {k})},
            {"s", Tensor::Of<int64_t>({2}, {n, 3})}};
  }

  Program Of(std::string_view body) {
    Program program = Parse(StrCat(R"(
      %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 3], f32>
      %m = nn.feed() {name = "m"} : () -> v_tensor<[N], bool>
      %k = nn.feed() {name = "k"} : () -> v_tensor<[1], i64>
      %s = nn.feed() {name = "s"} : () -> v_tensor<[2], i64>
      %zero = builtin.constant() {value = tensor<[], f32> [0.25]} : () -> v_tensor<[], f32>
      %e0 = builtin.constant() {value = tensor<[0], i64> []} : () -> v_tensor<[0], i64>
      %none = builtin.constant() {value = tensor<[], i64> [0]} : () -> v_tensor<[], i64>
      %one = builtin.constant() {value = tensor<[], i64> [1]} : () -> v_tensor<[], i64>
      %first = builtin.constant() {value = tensor<[1], i64> [0]} : () -> v_tensor<[1], i64>)",
                                   body));
    return program;
  }

  static Program Optimized(const Program& program) {
    Program copy = program.Clone();
    Optimize(copy, "inference", 2);
    return copy;
  }

  void Check(std::string_view body) {
    const Program program = Of(body);
    for (const codegen::Target* target : codegen::RunnableTargets()) {
      for (const int threads : {1, 3}) {
        CheckOn(program, {.target = target->name, .threads = threads});
      }
    }
  }

  static void CheckOn(const Program& program, const CompileOptions& options) {
    SCOPED_TRACE(StrCat(options.target, ", ", options.threads));
    Program optimized = Optimized(program);
    const EveryWay ways(optimized, options);
    ASSERT_NE(ways.made().executor(), nullptr) << ways.made().obstacles()[0];
    ASSERT_EQ(ways.all().size(), 3u);
    Program original = program.Clone();
    // The sizes of the run before, or other ones of inputs as large as before.
    const std::pair<int64_t, uint64_t> runs[] = {{3, 10}, {3, 10},  {0, 7},   {1, 8},  {70, 77},
                                                 {3, 10}, {12, 19}, {12, 20}, {12, 20}};
    for (const auto& [n, seed] : runs) {
      const NamedValues inputs = InputsOf(n, seed);
      const NamedValues wanted = Interpreter(original).Run(inputs);
      const NamedValues got = ways.Run(inputs);
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t i = 0; i < got.size(); ++i) {
        const Closeness close = AllClose(got[i].second, wanted[i].second, 1e-5, 1e-6);
        EXPECT_TRUE(close) << n << ", " << got[i].first << ": " << close.description;
      }
    }
  }
};

}  // namespace lathe
