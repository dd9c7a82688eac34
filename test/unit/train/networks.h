#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lathe/driver/compile_engine.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/train.h"
#include "test/unit/narrow_program.h"

/// Networks and data whose numbers a formula gives, so that another program can have the same.
namespace lathe::train::testing {

/// `count` numbers in [-scale, scale).
inline std::vector<float> Numbers(int64_t count, uint64_t seed, double scale) {
  std::vector<float> numbers;
  for (uint64_t i = 0; i < static_cast<uint64_t>(count); ++i) {
    uint64_t h = (i + seed * 1000003) * 2654435761U & 0xffffffffU;
    h = ((h ^ (h >> 15)) * 2246822519U) & 0xffffffffU;
    numbers.push_back(static_cast<float>((static_cast<double>(h) / 0x1p32 * 2 - 1) * scale));
  }
  return numbers;
}

inline Tensor NumbersOf(Shape shape, uint64_t seed, double scale = 1) {
  const int64_t count = NumElements(shape);
  return Tensor::Of<float>(std::move(shape), Numbers(count, seed, scale));
}

inline Tensor Labels(int64_t count, int64_t classes) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back((i * 7 + 3) / 5 % classes);
  return Tensor::Of<int64_t>({count}, labels);
}

/// A program of `body`, which reads `parameters`.
inline Program ProgramOf(IrContext& context, const std::string& body,
                         const std::vector<std::pair<std::string, Tensor>>& parameters) {
  Program program =
      ParseProgram(context, StrCat("program {\n", body, "}\n"), {.file_locations = false});
  for (const auto& [name, tensor] : parameters) {
    program.parameters().Set(StrAttribute::Get(context, name), {tensor, false});
  }
  return program;
}

/// x f32[N, 8] to scores f32[N, outputs], over a hidden layer of 16.
inline Program Mlp(IrContext& context, int64_t outputs, const std::string& last = "") {
  const std::string y = StrCat("v_tensor<[N, ", outputs, "], f32>");
  const std::string body = StrCat(
      R"(  %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 8], f32>
  %w1 = builtin.get_parameter() {name = "fc1.weight"} : () -> v_tensor<[16, 8], f32>
  %b1 = builtin.get_parameter() {name = "fc1.bias"} : () -> v_tensor<[16], f32>
  %w2 = builtin.get_parameter() {name = "fc2.weight"} : () -> v_tensor<[)",
      outputs, R"(, 16], f32>
  %b2 = builtin.get_parameter() {name = "fc2.bias"} : () -> v_tensor<[)",
      outputs, R"(], f32>
  %h = nn.gemm(%x, %w1, %b1) {transB = true} : (v_tensor<[N, 8], f32>, v_tensor<[16, 8], f32>, v_tensor<[16], f32>) -> v_tensor<[N, 16], f32> loc("fc1")
  %r = nn.relu(%h) : (v_tensor<[N, 16], f32>) -> v_tensor<[N, 16], f32> loc("relu1")
  %y = nn.gemm(%r, %w2, %b2) {transB = true} : (v_tensor<[N, 16], f32>, v_tensor<[)",
      outputs, ", 16], f32>, v_tensor<[", outputs, "], f32>) -> ", y, " loc(\"fc2\")\n", last,
      last.empty() ? StrCat("  nn.fetch(%y) {name = \"scores\"} : (", y, ") -> ()\n") : "");
  return ProgramOf(context, body,
                   {{"fc1.weight", NumbersOf({16, 8}, 1, .5)},
                    {"fc1.bias", NumbersOf({16}, 2, .1)},
                    {"fc2.weight", NumbersOf({outputs, 16}, 3, .5)},
                    {"fc2.bias", NumbersOf({outputs}, 4, .1)}});
}

/// x f32[N, 1, 8, 8] to scores f32[N, 5]: two convolutions with pools, one layer.
inline Program ConvNet(IrContext& context) {
  const char* body =
      R"(  %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 1, 8, 8], f32>
  %w1 = builtin.get_parameter() {name = "conv1.weight"} : () -> v_tensor<[4, 1, 3, 3], f32>
  %b1 = builtin.get_parameter() {name = "conv1.bias"} : () -> v_tensor<[4], f32>
  %w2 = builtin.get_parameter() {name = "conv2.weight"} : () -> v_tensor<[8, 4, 3, 3], f32>
  %b2 = builtin.get_parameter() {name = "conv2.bias"} : () -> v_tensor<[8], f32>
  %w3 = builtin.get_parameter() {name = "fc.weight"} : () -> v_tensor<[5, 32], f32>
  %b3 = builtin.get_parameter() {name = "fc.bias"} : () -> v_tensor<[5], f32>
  %c1 = nn.conv(%x, %w1, %b1) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]} : (v_tensor<[N, 1, 8, 8], f32>, v_tensor<[4, 1, 3, 3], f32>, v_tensor<[4], f32>) -> v_tensor<[N, 4, 8, 8], f32>
  %r1 = nn.relu(%c1) : (v_tensor<[N, 4, 8, 8], f32>) -> v_tensor<[N, 4, 8, 8], f32>
  %p1 = nn.max_pool(%r1) {kernel_shape = [2, 2], strides = [2, 2]} : (v_tensor<[N, 4, 8, 8], f32>) -> v_tensor<[N, 4, 4, 4], f32>
  %c2 = nn.conv(%p1, %w2, %b2) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]} : (v_tensor<[N, 4, 4, 4], f32>, v_tensor<[8, 4, 3, 3], f32>, v_tensor<[8], f32>) -> v_tensor<[N, 8, 4, 4], f32>
  %r2 = nn.relu(%c2) : (v_tensor<[N, 8, 4, 4], f32>) -> v_tensor<[N, 8, 4, 4], f32>
  %p2 = nn.max_pool(%r2) {kernel_shape = [2, 2], strides = [2, 2]} : (v_tensor<[N, 8, 4, 4], f32>) -> v_tensor<[N, 8, 2, 2], f32>
  %f = nn.flatten(%p2) {axis = 1} : (v_tensor<[N, 8, 2, 2], f32>) -> v_tensor<[N, 32], f32>
  %y = nn.gemm(%f, %w3, %b3) {transB = true} : (v_tensor<[N, 32], f32>, v_tensor<[5, 32], f32>, v_tensor<[5], f32>) -> v_tensor<[N, 5], f32>
  %s = nn.softmax(%y) {axis = -1} : (v_tensor<[N, 5], f32>) -> v_tensor<[N, 5], f32>
  nn.fetch(%s) {name = "probabilities"} : (v_tensor<[N, 5], f32>) -> ()
)";
  return ProgramOf(context, body,
                   {{"conv1.weight", NumbersOf({4, 1, 3, 3}, 1, .5)},
                    {"conv1.bias", NumbersOf({4}, 2, .1)},
                    {"conv2.weight", NumbersOf({8, 4, 3, 3}, 3, .3)},
                    {"conv2.bias", NumbersOf({8}, 4, .1)},
                    {"fc.weight", NumbersOf({5, 32}, 5, .2)},
                    {"fc.bias", NumbersOf({5}, 6, .1)}});
}

/// What compiles, once for all tests of the process.
inline std::shared_ptr<CompileEngine> Engine() {
  static const auto engine = std::make_shared<CompileEngine>();
  return engine;
}

/// 32 samples for Mlp, of 4 classes, and for ConvNet, of 5.
inline std::shared_ptr<const DataSet> MlpData() {
  return FromTensors({{"x", NumbersOf({32, 8}, 10)}, {"labels", Labels(32, 4)}});
}
inline std::shared_ptr<const DataSet> ConvData() {
  return FromTensors({{"x", NumbersOf({32, 1, 8, 8}, 11)}, {"labels", Labels(32, 5)}});
}

}  // namespace lathe::train::testing
