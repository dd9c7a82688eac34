#include <gtest/gtest.h>

#include "test/unit/frontend/model_util.h"

/// Operators that the importer builds from others.
namespace lathe::onnx {
namespace {

constexpr Text kTraining = "ai.onnx.preview.training";
constexpr Text kPreview = "ai.onnx.preview";

AttributeMsg Strings(Text name, const std::vector<Text>& values) {
  AttributeMsg a;
  a.name = name;
  a.type = AttrType::kStrings;
  a.strings.assign(values.begin(), values.end());
  return a;
}

ModelMsg WithDomains(ModelMsg model) {
  model.opsets.push_back({kTraining, 1});
  model.opsets.push_back({kPreview, 1});
  return model;
}

// y = x * z with z = x * x; what `gradient` makes of it.
ModelMsg Cube(const NodeMsg& gradient, Text square = "Mul") {
  const bool unary = square != "Mul";
  const auto operands = unary ? std::vector<Text>{"x"} : std::vector<Text>{"x", "x"};
  return WithDomains(
      Model(18, {Info("x", ElementType::kF32, {2})},
            {Node(square, operands, {"z"}), Node("Mul", {"x", "z"}, {"y"}), gradient}, {"d"}));
}

TEST(Gradient, OfXWithAndWithoutHeldValues) {
  Loaded loaded;
  const NamedValues input = {{"x", F32({2}, {2, 3})}};
  const auto run = [&](const NodeMsg& gradient) {
    Program program = Import(loaded.context, Cube(gradient));
    return RunProgram(program, input)[0].second.tensor();
  };
  const Tensor whole =
      run(Node("Gradient", {"x"}, {"d"}, {Strings("xs", {"x"}), Str("y", "y")}, kTraining));
  EXPECT_EQ(whole, F32({2}, {12, 27}));
  const Tensor held =
      run(Node("Gradient", {"x", "z"}, {"d"},
               {Strings("xs", {"x"}), Strings("zs", {"z"}), Str("y", "y")}, kTraining));
  EXPECT_EQ(held, F32({2}, {4, 9}));
}

TEST(Gradient, Refusals) {
  Loaded loaded;
  const auto error = [&](const NodeMsg& gradient, Text square = "Mul") {
    return Caught([&] { Import(loaded.context, Cube(gradient, square)); });
  };
  const std::vector<AttributeMsg> plain = {Strings("xs", {"x"}), Str("y", "y")};
  EXPECT_EQ(error(Node("Gradient", {"z"}, {"d"}, plain, kTraining)).id(), "onnx/gradient");
  EXPECT_EQ(error(Node("Gradient", {"x"}, {"d"}, {Str("y", "y")}, kTraining)).id(),
            "onnx/attribute");
  EXPECT_EQ(
      error(Node("Gradient", {"x"}, {"d"}, {Strings("xs", {"x"}), Str("y", "nobody")}, kTraining))
          .id(),
      "onnx/undefined-input");
  const Error rule = error(Node("Gradient", {"x"}, {"d"}, plain, kTraining), "OptionalGetElement");
  EXPECT_EQ(rule.id(), "gradient/unsupported");
  EXPECT_EQ(rule.message(), "nn.optional_get_element has no gradient");
  EXPECT_NE(rule.where().find("OptionalGetElement"), std::string::npos);
}

std::vector<ValueInfoMsg> Qkv(std::vector<int64_t> q, std::vector<int64_t> k) {
  return {Info("q", ElementType::kF32, std::move(q)), Info("k", ElementType::kF32, k),
          Info("v", ElementType::kF32, k)};
}

Error FlexError(const std::vector<ValueInfoMsg>& inputs,
                const std::vector<AttributeMsg>& attributes) {
  Loaded loaded;
  const NodeMsg node = Node("FlexAttention", {"q", "k", "v"}, {"y"}, attributes, kPreview);
  return Caught([&] { Import(loaded.context, WithDomains(Model(23, inputs, {node}, {"y"}))); });
}

TEST(FlexAttention, Refusals) {
  const auto good = Qkv({1, 2, 3, 4}, {1, 2, 5, 4});
  EXPECT_EQ(FlexError(good, {}).id(), "none");
  EXPECT_EQ(FlexError(Qkv({2, 3, 4}, {1, 2, 5, 4}), {}).id(), "shape/rank");
  EXPECT_EQ(FlexError(Qkv({1, 3, 3, 4}, {1, 2, 5, 4}), {}).id(), "onnx/flex-attention");
  const GraphMsg two =
      Model(23, {Info("a"), Info("b")}, {Node("Add", {"a", "b"}, {"c"})}, {"c"}).graph;
  EXPECT_EQ(FlexError(good, {Graph("score_mod", two)}).id(), "onnx/subgraph");
  const GraphMsg nobody = Model(23, {Info("a")}, {}, {"c"}).graph;
  EXPECT_EQ(FlexError(good, {Graph("prob_mod", nobody)}).id(), "onnx/undefined-input");
  EXPECT_EQ(FlexError(good, {Int("softmax_precision", 7)}).id(), "onnx/attribute");
  EXPECT_EQ(FlexError(good, {Int("softmax_precision", (int64_t{1} << 32) + 1)}).id(),
            "onnx/attribute");
}

TEST(FlexAttention, GroupedHeadsShareTheirKeys) {
  Loaded loaded;
  const NodeMsg node = Node("FlexAttention", {"q", "k", "v"}, {"y"}, {}, kPreview);
  Program program = Import(loaded.context,
                           WithDomains(Model(23, Qkv({1, 4, 1, 1}, {1, 2, 1, 1}), {node}, {"y"})));
  const Tensor q = F32({1, 4, 1, 1}, {1, 2, 3, 4});
  const Tensor k = F32({1, 2, 1, 1}, {5, 6});
  const Tensor y = RunProgram(program, {{"q", q}, {"k", k}, {"v", k}})[0].second.tensor();
  EXPECT_EQ(y, F32({1, 4, 1, 1}, {5, 5, 6, 6}));
}

}  // namespace
}  // namespace lathe::onnx
