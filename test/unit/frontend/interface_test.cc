#include <gtest/gtest.h>

#include "lathe/frontend/onnx_interface.h"
#include "model_util.h"

namespace lathe::onnx {
namespace {

OnnxInterface InterfaceOf(const ModelMsg& model) {
  return ReadOnnxInterface(*BufferOf(Serialize(model)), "test.onnx");
}

DimMsg Named(Text name, Text denotation = {}) {
  DimMsg dim;
  dim.param = name;
  dim.denotation = denotation;
  return dim;
}

TEST(OnnxInterface, SaysWhatIsDeclaredAndInfersNothing) {
  ValueInfoMsg x = Info("x", ElementType::kF32, {2, 3, -1});
  x.type.dims[0] = Named("N", "DATA_BATCH");
  const ValueInfoMsg w = Info("w", ElementType::kI64, {1});
  ModelMsg model = Model(13, {x, w}, {Node("Add", {"x", "w"}, {"y"})}, {"y"});
  model.graph.name = "net";
  const Tensor four = I64({1}, {4});
  model.graph.initializers.push_back(EncodeTensor(four, "w"));
  const OnnxInterface read = InterfaceOf(model);
  EXPECT_EQ(read.graph_name, "net");
  ASSERT_EQ(read.inputs.size(), 2u);
  EXPECT_EQ(read.inputs[0].type, "tensor(f32)");
  EXPECT_FALSE(read.inputs[0].has_initializer);
  EXPECT_TRUE(read.inputs[1].has_initializer);
  const std::vector<OnnxDim>& dims = read.inputs[0].dims.value();
  ASSERT_EQ(dims.size(), 3u);
  EXPECT_EQ(dims[0].name, "N");
  EXPECT_EQ(dims[0].denotation, "DATA_BATCH");
  EXPECT_EQ(dims[0].size, std::nullopt);
  EXPECT_EQ(dims[1].size, 3);
  EXPECT_EQ(dims[2].size, std::nullopt);
  ASSERT_EQ(read.outputs.size(), 1u);
  EXPECT_EQ(read.outputs[0].name, "y");
  EXPECT_EQ(read.outputs[0].type, "");
  EXPECT_EQ(read.outputs[0].dims, std::nullopt);
}

TEST(OnnxInterface, TypesInTypes) {
  const auto inside = [](TypeMsg inner, TypeMsg::Kind kind, ElementType key) {
    TypeMsg type;
    type.kind = kind;
    type.elem_type = static_cast<int32_t>(key);
    type.inner = std::make_shared<TypeMsg>(std::move(inner));
    return type;
  };
  const TypeMsg tensor = Info("x", ElementType::kF32, {2}).type;
  const TypeMsg map = inside(tensor, TypeMsg::kMap, ElementType::kString);
  ValueInfoMsg maps{"maps", inside(map, TypeMsg::kSequence, ElementType::kUndefined)};
  ValueInfoMsg maybe{"maybe", inside(tensor, TypeMsg::kOptional, ElementType::kUndefined)};
  const OnnxInterface read = InterfaceOf(Model(16, {maps, maybe}, {}, {}));
  EXPECT_EQ(read.inputs[0].type, "seq(map(string,tensor(f32)))");
  EXPECT_EQ(read.inputs[0].dims, std::nullopt);
  EXPECT_EQ(read.inputs[1].type, "optional(tensor(f32))");
  EXPECT_EQ(read.inputs[1].dims.value()[0].size, 2);
}

TEST(OnnxInterface, SeparateDimsMayDiffer) {
  ValueInfoMsg a = Info("a", ElementType::kF32, {1}), b = Info("b", ElementType::kF32, {1});
  a.type.dims[0] = Named("N");
  b.type.dims[0] = Named("N");
  const ModelMsg model = Model(13, {a, b}, {Node("Add", {"a", "b"}, {"y"})}, {"y"});
  Loaded loaded;
  Program program = Import(loaded.context, model, {.separate_dims = true});
  const NamedValues out = RunProgram(program, {{"a", F32({1}, {1})}, {"b", F32({3}, {1, 2, 3})}});
  EXPECT_EQ(out[0].second, RtValue(F32({3}, {2, 3, 4})));
}

TEST(OnnxInterface, InitializersCanBeGiven) {
  const ValueInfoMsg x = Info("x", ElementType::kF32, {2});
  ModelMsg model = Model(13, {x}, {Node("Add", {"x", "w"}, {"y"})}, {"y"});
  const Tensor value = F32({2}, {10, 20});
  model.graph.initializers.push_back(EncodeTensor(value, "w"));
  Loaded loaded;
  Program program = Import(loaded.context, model, {.initializers = {{"w", F32({2}, {5, 5})}}});
  EXPECT_EQ(RunProgram(program, {{"x", F32({2}, {1, 2})}})[0].second, RtValue(F32({2}, {6, 7})));
  const auto refusal = [&](const std::string& name, const Tensor& given) {
    return Caught([&] { Import(loaded.context, model, {.initializers = {{name, given}}}); });
  };
  EXPECT_EQ(refusal("w", F32({1}, {5})).message(), "f32[1] is given, the model has f32[2]");
  EXPECT_EQ(refusal("w", I64({2}, {5, 5})).id(), "onnx/initializer");
  EXPECT_EQ(refusal("v", F32({2}, {5, 5})).code(), ErrorCode::kNotFound);
}

TEST(OnnxInterface, AnInitializerCanStayAnInput) {
  const ValueInfoMsg x = Info("x", ElementType::kF32, {2}), w = Info("w", ElementType::kF32, {2});
  ModelMsg model = Model(13, {x, w}, {Node("Add", {"x", "w"}, {"y"})}, {"y"});
  const Tensor value = F32({2}, {10, 20});
  model.graph.initializers.push_back(EncodeTensor(value, "w"));
  Loaded loaded;
  Program program = Import(loaded.context, model, {.initializers_as_inputs = {"w"}});
  EXPECT_EQ(program.parameters().Find("w"), nullptr);
  const NamedValues out = RunProgram(program, {{"x", F32({2}, {1, 2})}, {"w", F32({2}, {5, 5})}});
  EXPECT_EQ(out[0].second, RtValue(F32({2}, {6, 7})));
}

}  // namespace
}  // namespace lathe::onnx
