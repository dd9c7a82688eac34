#include <gtest/gtest.h>

#include "test/unit/frontend/model_util.h"

/// Operators of com.microsoft whose channels are at the end, as onnxruntime writes quantized models
/// that it has optimized for its own kernels. What is expected was computed by onnxruntime 1.32.
namespace lathe::onnx {
namespace {

// Small integers that follow no pattern.
Tensor Bytes(Shape shape, int64_t input, ElementType type) {
  std::vector<double> values;
  for (int64_t i = 0; i < NumElements(shape); ++i) {
    const int64_t value = (i * 37 + input * 11) % 251;
    values.push_back(static_cast<double>(type == ElementType::kU8 ? value : value - 125));
  }
  return Cast(Tensor::Of<double>(std::move(shape), values), type);
}

Tensor U8(Shape shape, std::vector<uint8_t> values) {
  return Tensor::Of<uint8_t>(std::move(shape), values);
}

// Of one node of that name.
RtValue ResultOf(Text op, const std::vector<Tensor>& inputs, std::vector<AttributeMsg> attributes) {
  constexpr Text kInputs[] = {"i0", "i1", "i2", "i3", "i4", "i5", "i6", "i7", "i8"};
  NodeMsg node = Node(op, {}, {"y"}, std::move(attributes), "com.microsoft");
  std::vector<ValueInfoMsg> infos;
  NamedValues feeds;
  for (size_t i = 0; i < inputs.size(); ++i) {
    node.inputs.push_back(kInputs[i]);
    infos.push_back(Info(kInputs[i], inputs[i].element_type(), inputs[i].shape()));
    feeds.emplace_back(std::string(kInputs[i]), inputs[i]);
  }
  ModelMsg model = Model(17, std::move(infos), {std::move(node)}, {"y"});
  model.opsets.push_back({"com.microsoft", 1});
  Loaded loaded;
  Program program = Import(loaded.context, model);
  return RunProgram(program, feeds)[0].second;
}

TEST(ContribChannelsLast, Conv) {
  const RtValue y =
      ResultOf("QLinearConv",
               {Bytes({1, 3, 2, 2}, 0, ElementType::kU8), F32({}, {0.05F}), U8({}, {120}),
                Bytes({4, 1, 2, 2}, 1, ElementType::kI8), F32({4}, {0.01F, 0.03F, 0.02F, 0.04F}),
                Tensor::Of<int8_t>({4}, {0, 0, 0, 0}), F32({}, {0.2F}), U8({}, {90}),
                Tensor::Of<int32_t>({4}, {100, -2000, 30, 500})},
               {Int("channels_last", 1), Int("group", 2), Ints("kernel_shape", {2, 2}),
                Ints("pads", {0, 0, 1, 0})});
  EXPECT_EQ(y, RtValue(U8({1, 3, 1, 4}, {130, 0, 98, 24, 70, 76, 92, 32, 112, 55, 98, 107})));
}

TEST(ContribChannelsLast, AveragePool) {
  const RtValue y = ResultOf("QLinearAveragePool",
                             {Bytes({1, 3, 4, 2}, 0, ElementType::kU8), F32({}, {0.05F}),
                              U8({}, {120}), F32({}, {0.04F}), U8({}, {90})},
                             {Int("channels_last", 1), Ints("kernel_shape", {3, 3}),
                              Ints("pads", {1, 1, 1, 1}), Ints("strides", {2, 2})});
  EXPECT_EQ(y, RtValue(U8({1, 2, 2, 2}, {14, 61, 101, 95, 71, 117, 105, 99})));
}

TEST(ContribChannelsLast, GlobalAveragePool) {
  const RtValue y = ResultOf("QLinearGlobalAveragePool",
                             {Bytes({1, 3, 3, 2}, 0, ElementType::kU8), F32({}, {0.05F}),
                              U8({}, {120}), F32({}, {0.04F}), U8({}, {90})},
                             {Int("channels_last", 1)});
  EXPECT_EQ(y, RtValue(U8({1, 1, 1, 2}, {66, 77})));
}

TEST(ContribChannelsLast, MaxPool) {
  const RtValue y =
      ResultOf("NhwcMaxPool", {Bytes({1, 3, 4, 2}, 0, ElementType::kU8)},
               {Ints("kernel_shape", {2, 3}), Ints("pads", {0, 1, 0, 1}), Ints("strides", {1, 2})});
  EXPECT_EQ(y, RtValue(U8({1, 2, 2, 2}, {119, 156, 222, 230, 164, 201, 238, 230})));
}

}  // namespace
}  // namespace lathe::onnx
