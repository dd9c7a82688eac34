#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/random.h"

namespace lathe::testing {

/// Two layers and a loss, whose dialects are loaded.
inline constexpr const char* kTrainedNetwork = R"(program {
  %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 6], f32>
  %labels = nn.feed() {name = "labels"} : () -> v_tensor<[N], i64>
  %w0 = builtin.get_parameter() {name = "w0"} : () -> v_tensor<[6, 16], f32>
  %b0 = builtin.get_parameter() {name = "b0"} : () -> v_tensor<[16], f32>
  %w1 = builtin.get_parameter() {name = "w1"} : () -> v_tensor<[16, 3], f32>
  %m0 = nn.matmul(%x, %w0) : (v_tensor<[N, 6], f32>, v_tensor<[6, 16], f32>) -> v_tensor<[N, 16], f32>
  %a0 = nn.add(%m0, %b0) : (v_tensor<[N, 16], f32>, v_tensor<[16], f32>) -> v_tensor<[N, 16], f32>
  %h = nn.relu(%a0) : (v_tensor<[N, 16], f32>) -> v_tensor<[N, 16], f32>
  %m1 = nn.matmul(%h, %w1) : (v_tensor<[N, 16], f32>, v_tensor<[16, 3], f32>) -> v_tensor<[N, 3], f32>
  %l = nn.softmax_cross_entropy_loss(%m1, %labels) : (v_tensor<[N, 3], f32>, v_tensor<[N], i64>) -> v_tensor<[], f32>
  nn.fetch(%l) {name = "loss"} : (v_tensor<[], f32>) -> ()
})";

/// The fetch of a gradient becomes an update: m = 0.9 m + gradient, w = w - 0.5 m.
inline void UpdateInsteadOfFetch(Program& program, Operation* fetch, const std::string& name) {
  Builder b = Builder::Before(fetch);
  const Value gradient = fetch->operand(0);
  const Type type = gradient.type();
  const auto op = [&](const char* kind, Value x, Value y) {
    return b.CreateInferred(program.context().FindOp(kind), std::vector{x, y}, {}, 1)->result(0);
  };
  const auto parameter = [&](const std::string& of) {
    const NamedAttribute named = b.Named("name", b.Attr(std::string_view(of)));
    return b.Create("builtin.get_parameter", {}, {&named, 1}, {&type, 1})->result(0);
  };
  const auto number = [&](float value) {
    const NamedAttribute named = b.Named("value", b.Attr(Tensor::Scalar(value)));
    return b.Create("builtin.constant", {}, {&named, 1})->result(0);
  };
  const auto set = [&](const std::string& of, Value value) {
    const NamedAttribute named = b.Named("name", b.Attr(std::string_view(of)));
    b.Create("builtin.set_parameter", {&value, 1}, {&named, 1});
  };
  const std::string state = name + ".momentum";
  const Value m = op("nn.add", op("nn.mul", parameter(state), number(0.9F)), gradient);
  set(state, m);
  set(name, op("nn.sub", parameter(name), op("nn.mul", m, number(0.5F))));
  fetch->Erase();
  const Tensor zeros(ElementType::kF32, program.parameters().Find(name)->data.shape());
  program.parameters().Insert(StrAttribute::Get(program.context(), state), {zeros, false});
}

/// A step of stochastic gradient descent with momentum: inputs "x" f32[N,6] and "labels" i64[N]
/// below 3, output "loss"; parameters "w0", "b0", "w1" and the momentum of each.
inline Program TrainingStep(IrContext& context) {
  Program program = ParseProgram(context, kTrainedNetwork);
  const std::pair<const char*, Shape> shapes[] = {{"w0", {6, 16}}, {"b0", {16}}, {"w1", {16, 3}}};
  uint64_t seed = 1;
  for (const auto& [name, shape] : shapes) {
    program.parameters().Insert(StrAttribute::Get(context, name),
                                {RandomTensor(ElementType::kF32, shape, seed++), false});
  }
  PassManager manager;
  manager.Add("append_backward");
  manager.Run(program);
  for (Operation* fetch : program.fetches()) {
    std::string name(fetch->attribute("name").cast<StrAttribute>().value());
    if (!name.ends_with("@GRAD")) continue;
    name.resize(name.size() - 5);
    UpdateInsteadOfFetch(program, fetch, name);
  }
  program.RefreshMutability();
  return program;
}

/// Numbers that C computes, too (test/c/train_check.c).
inline NamedValues TrainingBatch(int64_t rows, int64_t step) {
  Tensor x(ElementType::kF32, {rows, 6}), labels(ElementType::kI64, {rows});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < 6; ++k) {
      const int64_t at = i * 6 + k;
      x.mutable_data<float>()[at] = static_cast<float>((at * 7 + step * 3) % 11 - 5) / 4;
    }
    labels.mutable_data<int64_t>()[i] = x.data<float>()[i * 6] > 0 ? 2 : i % 2;
  }
  return {{"x", x}, {"labels", labels}};
}

}  // namespace lathe::testing
