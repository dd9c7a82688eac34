// Each rule, by its meaning: an old node is imported and run, and the numbers are what the old
// operator gave.

#include <gtest/gtest.h>

#include "model_util.h"
#include "src/frontend/onnx/tensor_codec.h"

namespace lathe::onnx {
namespace {

struct Case {
  std::string name;
  int opset;
  NodeMsg node;
  std::vector<Tensor> inputs;  // of graph inputs i0, i1, ...; static shapes
  Tensor expected;
};

Tensor RunCase(const Case& c) {
  Loaded loaded;
  static const Text kNames[] = {"i0", "i1", "i2"};
  std::vector<ValueInfoMsg> infos;
  NamedValues values;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    infos.push_back(Info(kNames[i], c.inputs[i].element_type(), c.inputs[i].shape()));
    values.emplace_back(kNames[i], c.inputs[i]);
  }
  Program program = Import(loaded.context, Model(c.opset, infos, {c.node}, {"y"}));
  return RunProgram(program, values)[0].second.tensor();
}

const Tensor kMatrix = F32({2, 3}, {1, 2, 3, 4, 5, 6});

std::vector<Case> ArithmeticCases() {
  const Tensor column = F32({2}, {10, 20});
  return {
      {"add with an axis",
       6,
       Node("Add", {"i0", "i1"}, {"y"}, {Int("broadcast", 1), Int("axis", 0)}),
       {kMatrix, column},
       F32({2, 3}, {11, 12, 13, 24, 25, 26})},
      {"add without an axis",
       6,
       Node("Add", {"i0", "i1"}, {"y"}, {Int("broadcast", 1)}),
       {kMatrix, F32({3}, {1, 1, 2})},
       F32({2, 3}, {2, 3, 5, 5, 6, 8})},
      {"add with a negative axis",
       6,
       Node("Add", {"i0", "i1"}, {"y"}, {Int("broadcast", 1), Int("axis", -2)}),
       {kMatrix, column},
       F32({2, 3}, {11, 12, 13, 24, 25, 26})},
      {"abs of the first set",
       1,
       Node("Abs", {"i0"}, {"y"}, {Ints("consumed_inputs", {0})}),
       {F32({2}, {-1, 2})},
       F32({2}, {1, 2})},
      {"prelu with a slope per channel",
       6,
       Node("PRelu", {"i0", "i1"}, {"y"}),
       {F32({1, 2, 2}, {-1, -2, -1, -2}), F32({2}, {1, 10})},
       F32({1, 2, 2}, {-1, -2, -10, -20})},
      {"clip",
       6,
       Node("Clip", {"i0"}, {"y"}, {Float("min", 2), Float("max", 4)}),
       {kMatrix},
       F32({2, 3}, {2, 2, 3, 4, 4, 4})},
      {"clip without a bound",
       6,
       Node("Clip", {"i0"}, {"y"}, {Float("max", 4)}),
       {kMatrix},
       F32({2, 3}, {1, 2, 3, 4, 4, 4})},
      {"cast by name",
       1,
       Node("Cast", {"i0"}, {"y"}, {Str("to", "INT64")}),
       {F32({2}, {1, 2})},
       I64({2}, {1, 2})},
      {"softmax over all but the first axis",
       9,
       Node("Softmax", {"i0"}, {"y"}),
       {F32({1, 2, 2}, {0, 0, 0, 0})},
       F32({1, 2, 2}, {0.25F, 0.25F, 0.25F, 0.25F})},
      {"softmax of nothing",
       9,
       Node("Softmax", {"i0"}, {"y"}, {Int("axis", 0)}),
       {F32({0, 3}, {})},
       F32({0, 3}, {})},
      {"softmax over the last axis",
       9,
       Node("Softmax", {"i0"}, {"y"}, {Int("axis", 2)}),
       {F32({1, 2, 2}, {0, 0, 0, 0})},
       F32({1, 2, 2}, {0.5F, 0.5F, 0.5F, 0.5F})},
  };
}

std::vector<Case> ShapeCases() {
  return {
      {"squeeze",
       11,
       Node("Squeeze", {"i0"}, {"y"}, {Ints("axes", {0})}),
       {F32({1, 2}, {1, 2})},
       F32({2}, {1, 2})},
      {"unsqueeze",
       11,
       Node("Unsqueeze", {"i0"}, {"y"}, {Ints("axes", {0, 2})}),
       {F32({2}, {1, 2})},
       F32({1, 2, 1}, {1, 2})},
      {"sum over axes",
       11,
       Node("ReduceSum", {"i0"}, {"y"}, {Ints("axes", {1}), Int("keepdims", 0)}),
       {kMatrix},
       F32({2}, {6, 15})},
      {"sum over all",
       11,
       Node("ReduceSum", {"i0"}, {"y"}, {Int("keepdims", 0)}),
       {kMatrix},
       F32({}, {21})},
      {"max over axes",
       13,
       Node("ReduceMax", {"i0"}, {"y"}, {Ints("axes", {0})}),
       {kMatrix},
       F32({1, 3}, {4, 5, 6})},
      {"mean over axes",
       17,
       Node("ReduceMean", {"i0"}, {"y"}, {Ints("axes", {-1})}),
       {kMatrix},
       F32({2, 1}, {2, 5})},
      {"reshape",
       1,
       Node("Reshape", {"i0"}, {"y"}, {Ints("shape", {3, -1})}),
       {kMatrix},
       F32({3, 2}, {1, 2, 3, 4, 5, 6})},
      {"split into equal parts",
       13,
       Node("Split", {"i0"}, {"", "y"}, {Int("axis", 0)}),
       {kMatrix},
       F32({1, 3}, {4, 5, 6})},
      {"split by sizes",
       2,
       Node("Split", {"i0"}, {"", "y"}, {Int("axis", 1), Ints("split", {1, 2})}),
       {kMatrix},
       F32({2, 2}, {2, 3, 5, 6})},
      {"slice",
       1,
       Node("Slice", {"i0"}, {"y"}, {Ints("axes", {1}), Ints("starts", {1}), Ints("ends", {-1})}),
       {kMatrix},
       F32({2, 1}, {2, 5})},
      {"pad",
       2,
       Node("Pad", {"i0"}, {"y"}, {Ints("pads", {1, 0}), Float("value", 9)}),
       {F32({1}, {5})},
       F32({2}, {9, 5})},
      {"pad of the first set",
       1,
       Node("Pad", {"i0"}, {"y"}, {Ints("paddings", {0, 1})}),
       {F32({1}, {5})},
       F32({2}, {5, 0})},
      {"top k",
       9,
       Node("TopK", {"i0"}, {"y", ""}, {Int("k", 2)}),
       {kMatrix},
       F32({2, 2}, {3, 2, 6, 5})},
      {"concat", 1, Node("Concat", {"i0", "i0"}, {"y"}), {F32({1, 1}, {3})}, F32({1, 2}, {3, 3})},
      {"scatter",
       9,
       Node("Scatter", {"i0", "i1", "i2"}, {"y"}, {Int("axis", 1)}),
       {F32({1, 3}, {1, 2, 3}), I64({1, 1}, {1}), F32({1, 1}, {9})},
       F32({1, 3}, {1, 9, 3})},
  };
}

std::vector<Case> NormalizationCases() {
  return {
      {"batch normalization",
       6,
       Node("BatchNormalization", {"i0", "i1", "i1", "i2", "i1"}, {"y"},
            {Float("epsilon", 0), Int("is_test", 1), Ints("consumed_inputs", {0, 0, 0, 1, 1})}),
       {F32({1, 1, 2}, {3, 4}), F32({1}, {1}), F32({1}, {2})},
       F32({1, 1, 2}, {2, 3})},
      {"dropout",
       6,
       Node("Dropout", {"i0"}, {"y"}, {Float("ratio", 0.9F), Int("is_test", 1)}),
       {kMatrix},
       kMatrix},
      {"gemm",
       6,
       Node("Gemm", {"i0", "i1", "i2"}, {"y"}, {Int("broadcast", 1), Int("transB", 1)}),
       {kMatrix, F32({1, 3}, {1, 1, 1}), F32({1}, {100})},
       F32({2, 1}, {106, 115})},
      {"group normalization",
       18,
       Node("GroupNormalization", {"i0", "i1", "i2"}, {"y"},
            {Int("num_groups", 2), Float("epsilon", 0)}),
       {F32({1, 4, 1}, {0, 2, 0, 4}), F32({2}, {1, 10}), F32({2}, {0, 5})},
       F32({1, 4, 1}, {-1, 1, -5, 15})},
  };
}

std::vector<Case> UpsampleCases() {
  return {
      {"upsample",
       7,
       Node("Upsample", {"i0"}, {"y"}, {Floats("scales", {1, 1, 1, 2})}),
       {F32({1, 1, 1, 2}, {1, 2})},
       F32({1, 1, 1, 4}, {1, 1, 2, 2})},
      {"upsample of the first set",
       1,
       Node("Upsample", {"i0"}, {"y"}, {Float("height_scale", 1), Float("width_scale", 2)}),
       {F32({1, 1, 1, 2}, {1, 2})},
       F32({1, 1, 1, 4}, {1, 1, 2, 2})},
  };
}

void Check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    Tensor result;
    const Error error = Caught([&] { result = RunCase(c); });
    ASSERT_EQ(error.id(), "none") << c.name << "\n" << error.Render();
    const Closeness close = AllClose(result, c.expected);
    EXPECT_TRUE(close) << c.name << ": " << close.description;
  }
}

TEST(Upgrade, OldNodesGiveTheOldNumbers) {
  Check(ArithmeticCases());
  Check(ShapeCases());
  Check(NormalizationCases());
}

TEST(Upgrade, UpsampleIsResize) { Check(UpsampleCases()); }

// As the official case of that opset, and onnxruntime: behind where an axis shrinks.
TEST(Upgrade, NearestOfTheFirstResizeDependsOnTheDirection) {
  const auto resized = [](std::vector<double> scales) {
    Loaded loaded;
    Program program =
        Import(loaded.context,
               Model(10, {Info("x", ElementType::kF32, {2, 4})},
                     {Node("Constant", {}, {"s"}, {Floats("value_floats", std::move(scales))}),
                      Node("Resize", {"x", "s"}, {"y"}, {})},
                     {"y"}));
    return RunProgram(program, {{"x", F32({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})}})[0].second.tensor();
  };
  EXPECT_EQ(resized({0.6, 0.6}), F32({1, 2}, {1, 3}));
  EXPECT_EQ(resized({1, 1.5}), F32({2, 6}, {1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8}));
  EXPECT_EQ(resized({1.5, 0.6}), F32({3, 2}, {1, 3, 1, 3, 5, 7}));
}

TEST(Upgrade, TheMaskOfAnOldDropoutHasTheTypeOfTheData) {
  Loaded loaded;
  const Program program =
      Import(loaded.context, Model(7, {Info("x", ElementType::kF32, {2})},
                                   {Node("Dropout", {"x"}, {"y", "mask"})}, {"y", "mask"}));
  EXPECT_EQ(program.fetches()[1]->operand(0).type().ToString(), "v_tensor<[2], f32>");
}

TEST(Upgrade, WhatCanNotBeUpgradedIsRefused) {
  Loaded loaded;
  const auto id = [&](int opset, NodeMsg node) {
    return Caught([&] {
             Import(loaded.context, Model(opset, {Info("x", ElementType::kF32, {1, 2, 3})},
                                          {std::move(node)}, {"y"}));
           })
        .id();
  };
  EXPECT_EQ(
      id(7, Node("BatchNormalization", {"x", "x", "x", "x", "x"}, {"y"}, {Int("spatial", 0)})),
      "onnx/upgrade");
  EXPECT_EQ(id(1, Node("Slice", {"x"}, {"y"})), "onnx/upgrade");
  EXPECT_EQ(id(1, Node("Cast", {"x"}, {"y"}, {Str("to", "NUMBER")})), "onnx/upgrade");
  EXPECT_EQ(id(6, Node("Add", {"x", "x"}, {"y"}, {Int("broadcast", 1), Int("axis", 2)})),
            "onnx/upgrade");
  for (const int64_t axis : {INT64_MIN, int64_t{-4}, INT64_MAX}) {
    EXPECT_EQ(id(6, Node("Add", {"x", "x"}, {"y"}, {Int("broadcast", 1), Int("axis", axis)})),
              "onnx/upgrade");
  }
  EXPECT_EQ(id(11, Node("Squeeze", {}, {"y"})), "onnx/upgrade");
  EXPECT_EQ(id(10, Node("Resize", {"x"}, {"y"})), "onnx/upgrade");
  EXPECT_EQ(id(9, Node("Upsample", {"x"}, {"y"}, {Floats("scales", {})})), "onnx/upgrade");
}

// As exporters of PyTorch write `unbind`; a split of another number keeps the axis.
TEST(Upgrade, UnbindDropsTheAxis) {
  for (const int64_t split : {1, 2}) {
    const Tensor size = Tensor::Scalar(split), position = Tensor::Scalar<int64_t>(1);
    ModelMsg model =
        Model(17, {Info("x", ElementType::kF32, {4, 2})},
              {Node("SplitToSequence", {"x", "size"}, {"pieces"}, {Int("keepdims", 0)}),
               Node("SequenceAt", {"pieces", "position"}, {"y"})},
              {"y"});
    model.graph.initializers.push_back(EncodeTensor(size, "size"));
    model.graph.initializers.push_back(EncodeTensor(position, "position"));
    Loaded loaded;
    Program program = Import(loaded.context, model);
    const Tensor x = F32({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    const Tensor expected = split == 1 ? F32({2}, {3, 4}) : F32({2, 2}, {5, 6, 7, 8});
    EXPECT_EQ(RunProgram(program, {{"x", x}})[0].second, RtValue(expected));
  }
}

// A real signal without the axis of its parts, as onnxscript writes it.
TEST(Upgrade, SignalOfTwoAxes) {
  ModelMsg model = Model(17, {Info("x", ElementType::kF32, {2, 8})},
                         {Node("STFT", {"x", "step", "", "length"}, {"y"})}, {"y"});
  const Tensor step = Tensor::Scalar<int64_t>(2), length = Tensor::Scalar<int64_t>(4);
  model.graph.initializers.push_back(EncodeTensor(step, "step"));
  model.graph.initializers.push_back(EncodeTensor(length, "length"));
  Loaded loaded;
  Program program = Import(loaded.context, model);
  const Tensor x = F32({2, 8}, {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0});
  const Tensor y = RunProgram(program, {{"x", x}})[0].second.tensor();
  EXPECT_EQ(y.shape(), (Shape{2, 3, 3, 2}));
  EXPECT_EQ(y.data<float>()[0], 4);
}

// As tf2onnx writes a resize to sizes in any opset.
TEST(Upgrade, EmptyInputsOfResizeAreAbsent) {
  ModelMsg model = Model(17, {Info("x", ElementType::kF32, {1, 1, 2, 2})},
                         {Node("Resize", {"x", "none", "none", "sizes"}, {"y"})}, {"y"});
  const Tensor none = F32({0}, {}), sizes = Tensor::Of<int64_t>({4}, {1, 1, 4, 4});
  model.graph.initializers.push_back(EncodeTensor(none, "none"));
  model.graph.initializers.push_back(EncodeTensor(sizes, "sizes"));
  Loaded loaded;
  Program program = Import(loaded.context, model);
  const Tensor y = RunProgram(program, {{"x", F32({1, 1, 2, 2}, {1, 2, 3, 4})}})[0].second.tensor();
  EXPECT_EQ(y.shape(), (Shape{1, 1, 4, 4}));
  EXPECT_EQ(y.data<float>()[15], 4);
}

// The nearest to (x + 1/2) / scale, in opset 11 and where converters went on with it.
TEST(Upgrade, NearestOfTensorFlow) {
  const auto resized = [](int opset, Text nearest, double scale) {
    ModelMsg model = Model(opset, {Info("x", ElementType::kF32, {5})},
                           {Node("Resize", {"x", "", "scales"}, {"y"},
                                 {Str("mode", "nearest"), Str("nearest_mode", nearest),
                                  Str("coordinate_transformation_mode", "tf_half_pixel_for_nn")})},
                           {"y"});
    const Tensor scales = F32({1}, {static_cast<float>(scale)});
    model.graph.initializers.push_back(EncodeTensor(scales, "scales"));
    Loaded loaded;
    Program program = Import(loaded.context, model);
    return RunProgram(program, {{"x", F32({5}, {0, 1, 2, 3, 4})}})[0].second.tensor();
  };
  EXPECT_EQ(resized(11, "floor", 2), F32({10}, {0, 0, 1, 1, 2, 2, 3, 3, 4, 4}));
  EXPECT_EQ(resized(17, "floor", 0.6), F32({3}, {0, 2, 4}));
  EXPECT_EQ(resized(11, "round_prefer_floor", 2), F32({10}, {0, 1, 1, 2, 2, 3, 3, 4, 4, 4}));
}

}  // namespace
}  // namespace lathe::onnx
