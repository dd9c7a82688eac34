#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "lathe/ir/metadata.h"
#include "lathe/ir/text_format.h"
#include "model_util.h"

namespace lathe::onnx {
namespace {

Program Back(IrContext& context, const Program& program) {
  return ImportOnnx(context, BufferOf(SerializeOnnx(program)), "back.onnx", "");
}

// Both programs give the same on the same inputs.
void ExpectSame(Program& a, Program& b, const NamedValues& inputs) {
  const NamedValues left = RunProgram(a, inputs), right = RunProgram(b, inputs);
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].first, right[i].first);
    EXPECT_EQ(left[i].second, right[i].second);
  }
}

const ValueInfoMsg kX = Info("x", ElementType::kF32, {2, 3});
const NamedValues kInputs = {{"x", F32({2, 3}, {1, -2, 3, -4, 5, -6})}};

TEST(Export, RoundTripRunsEqual) {
  Loaded loaded;
  ModelMsg model = Model(
      11, {kX},
      {Node("LeakyRelu", {"x"}, {"a"}, {Float("alpha", 0.25F)}), Node("Add", {"a", "w"}, {"b"}),
       Node("Transpose", {"b"}, {"c"}, {Ints("perm", {1, 0})}),
       Node("Unsqueeze", {"c"}, {"d"}, {Ints("axes", {0})})},
      {"d", "b"});
  const Tensor w = F32({3}, {1, 2, 3});
  model.graph.initializers.push_back(EncodeTensor(w, "w"));
  model.graph.nodes[1].name = "plus";
  Program program = Import(loaded.context, model);
  Program back = Back(loaded.context, program);
  ExpectSame(program, back, kInputs);
  EXPECT_EQ(Print(Back(loaded.context, back)), Print(back));
  EXPECT_EQ(SerializeOnnx(program), SerializeOnnx(program));
  bool found = false;
  for (Operation& op : *back.block()) {
    found |= op.location().is_name() && op.location().name() == "plus";
  }
  EXPECT_TRUE(found);
}

// A Constant stays one, however large, and whichever graph reads it.
TEST(Export, LargeConstantsAreConstants) {
  Loaded loaded;
  GraphMsg branch;
  branch.name = "branch";
  branch.nodes = {Node("Add", {"mask", "w"}, {"sum"})};
  branch.outputs = {Info("sum")};
  GraphMsg other = branch;
  other.nodes = {Node("Sub", {"mask", "w"}, {"sum"})};
  ModelMsg model =
      Model(17, {Info("c", ElementType::kBool, {})},
            {Node("Constant", {}, {"mask"}, {Floats("value_floats", {0, -INFINITY, 3})}),
             Node("If", {"c"}, {"y"}, {Graph("then_branch", branch), Graph("else_branch", other)})},
            {"y"});
  const Tensor w = F32({3}, {1, 2, 3});
  model.graph.initializers.push_back(EncodeTensor(w, "w"));
  Program program = Import(loaded.context, model, {.max_constant_bytes = 8});
  const std::string text = Print(program, {.locations = false});
  EXPECT_NE(text.find("{constant = true, name = \"mask\"}"), std::string::npos) << text;
  const std::string bytes = SerializeOnnx(program);
  const ModelMsg written = ParseModel(bytes, "written.onnx");
  ASSERT_EQ(written.graph.initializers.size(), 1U);
  EXPECT_EQ(written.graph.initializers[0].name, "w");
  EXPECT_EQ(written.graph.nodes[0].op_type, "Constant");
  EXPECT_EQ(written.graph.nodes[0].outputs, std::vector<Text>{"mask"});
  Program back =
      ImportOnnx(loaded.context, BufferOf(bytes), "back.onnx", "", {.max_constant_bytes = 8});
  EXPECT_EQ(MetadataOf(back), MetadataOf(program));
  for (const bool c : {false, true}) ExpectSame(program, back, {{"c", Tensor::Scalar(c)}});
  EXPECT_NE(Print(back).find("{constant = true, name = \"mask\"}"), std::string::npos);
}

TEST(Export, InputsAndParametersAsOutputs) {
  Loaded loaded;
  ModelMsg model = Model(13, {kX}, {}, {"x", "w"});
  const Tensor w = F32({1}, {7});
  model.graph.initializers.push_back(EncodeTensor(w, "w"));
  Program program = Import(loaded.context, model);
  // An output cannot have the name of an input: the operator in between makes a new value.
  for (Operation* fetch : program.fetches()) {
    const std::string name(fetch->attribute("name").cast<StrAttribute>().value());
    fetch->SetAttribute("name", StrAttribute::Get(loaded.context, name + "_out"));
  }
  Program back = Back(loaded.context, program);
  ExpectSame(program, back, kInputs);
}

TEST(Export, TransposedProductsBecomeTransposeNodes) {
  Loaded loaded;
  Program program = ParseProgram(loaded.context, R"(program {
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 3], f32>
    %0 = nn.matmul(%x, %x) {transpose_x = true, transpose_y = false} : (v_tensor<[2, 3], f32>, v_tensor<[2, 3], f32>) -> v_tensor<[3, 3], f32>
    nn.fetch(%0) {name = "y"} : (v_tensor<[3, 3], f32>) -> ()
  })");
  Program back = Back(loaded.context, program);
  ExpectSame(program, back, kInputs);
}

TEST(Export, RegionsBecomeSubgraphs) {
  Loaded loaded;
  GraphMsg then_graph, else_graph;
  then_graph.nodes = {Node("Neg", {"x"}, {"t"})};
  then_graph.outputs = {Info("t"), Info("t")};
  else_graph.outputs = {Info("x"), Info("w")};  // nothing is made inside
  ModelMsg model =
      Model(13, {Info("c", ElementType::kBool, {}), kX},
            {Node("If", {"c"}, {"y", "z"},
                  {Graph("then_branch", then_graph), Graph("else_branch", else_graph)})},
            {"y", "z"});
  const Tensor w = F32({2, 3}, {9, 9, 9, 9, 9, 9});
  model.graph.initializers.push_back(EncodeTensor(w, "w"));
  Program program = Import(loaded.context, model);
  Program back = Back(loaded.context, program);
  for (const bool c : {false, true}) {
    NamedValues inputs = kInputs;
    inputs.emplace_back("c", Tensor::Scalar(c));
    ExpectSame(program, back, inputs);
  }
}

TEST(Export, OptionalOperandsAndUnusedResults) {
  Loaded loaded;
  Program program = Import(loaded.context, Model(13, {kX, Info("high", ElementType::kF32, {})},
                                                 {Node("Clip", {"x", "", "high"}, {"y"})}, {"y"}));
  Program back = Back(loaded.context, program);
  NamedValues inputs = kInputs;
  inputs.emplace_back("high", Tensor::Scalar<float>(2));
  ExpectSame(program, back, inputs);
}

TEST(Export, NodeNamesAreUniqueAndTheOpsetIsNoNewerThanNeeded) {
  Loaded loaded;
  ModelMsg model = Model(9, {kX},
                         {Node("Cast", {"x"}, {"h"}, {Int("to", 10)}),
                          Node("Softmax", {"h"}, {"y"}, {Int("axis", 0)})},
                         {"y"});
  model.graph.nodes[1].name = "soft";
  const Program program = Import(loaded.context, model);
  const std::string bytes = SerializeOnnx(program);
  const ModelMsg exported = ParseModel(bytes, "m");
  std::set<Text> names;
  for (const NodeMsg& node : exported.graph.nodes) {
    EXPECT_TRUE(node.name.empty() || names.insert(node.name).second) << node.name;
  }
  EXPECT_EQ(names.count("soft"), 1U);
  EXPECT_EQ(names.count("soft/1"), 1U);
  ASSERT_EQ(exported.opsets.size(), 1U);
  EXPECT_EQ(exported.opsets[0].version, 25);
}

TEST(Export, SymbolsStay) {
  Loaded loaded;
  ValueInfoMsg x = Info("x", ElementType::kF32, {0, 4});
  x.type.dims[0] = {false, 0, "batch"};
  const Program program =
      Import(loaded.context, Model(13, {x}, {Node("Relu", {"x"}, {"y"})}, {"y"}));
  EXPECT_EQ(Back(loaded.context, program).feeds()[0]->result(0).type().ToString(),
            "v_tensor<[batch, 4], f32>");
}

TEST(Export, SizesWithoutANameHaveNoneInTheFile) {
  Loaded loaded;
  ValueInfoMsg z = Info("z", ElementType::kF32, {0, 4});
  z.type.dims[0] = {false, 0, "z.1"};
  const Program program = Import(
      loaded.context, Model(13, {Info("x", ElementType::kF32, {-1, 4}), z},
                            {Node("Relu", {"x"}, {"y"}), Node("Relu", {"z"}, {"v"})}, {"y", "v"}));
  const std::string bytes = SerializeOnnx(program);
  const ModelMsg back = ParseModel(bytes, "back.onnx");
  for (const ValueInfoMsg& info : {back.graph.inputs[0], back.graph.outputs[0]}) {
    EXPECT_FALSE(info.type.dims[0].has_value);
    EXPECT_EQ(info.type.dims[0].param, "");
  }
  EXPECT_EQ(back.graph.inputs[1].type.dims[0].param, "z.1");
}

TEST(Export, WhatOnnxLacksIsRefusedAllAtOnce) {
  Loaded loaded;
  const Program program = ParseProgram(loaded.context, R"(program {
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
    %0 = builtin.to_tensor(%x) : (v_tensor<[2], f32>) -> tensor<[2], f32>
    %1 = builtin.to_vtensor(%0) : (tensor<[2], f32>) -> v_tensor<[2], f32>
    nn.fetch(%1) {name = "y"} : (v_tensor<[2], f32>) -> ()
  })");
  const Error error = Caught([&] { SerializeOnnx(program); });
  EXPECT_EQ(error.id(), "onnx/export");
  EXPECT_EQ(error.message(), "builtin.to_tensor has no ONNX counterpart");
  ASSERT_EQ(error.others.size(), 1U);
}

// Of values within, as inference knows them, in the graph that makes them; outputs have theirs.
TEST(Export, TypesOfValuesWithin) {
  Loaded loaded;
  GraphMsg branch;
  branch.name = "branch";
  branch.nodes = {Node("Exp", {"a"}, {"inner"}), Node("Neg", {"inner"}, {"out"})};
  branch.outputs = {Info("out")};
  NodeMsg choose = Node("If", {"yes"}, {"c"});
  for (const char* name : {"then_branch", "else_branch"}) {
    AttributeMsg a;
    a.name = name;
    a.type = AttrType::kGraph;
    a.graphs.push_back(std::make_shared<GraphMsg>(branch));
    choose.attributes.push_back(std::move(a));
  }
  ValueInfoMsg x = Info("x", ElementType::kF32, {2, 3});
  x.type.dims[0] = {.param = "N"};
  const ModelMsg model =
      Model(13, {x, Info("yes", ElementType::kBool, {})},
            {Node("Relu", {"x"}, {"a"}), choose, Node("Shape", {"c"}, {"y"})}, {"y"});
  const Program program = Import(loaded.context, model);
  const std::string bytes = SerializeOnnx(program);
  const ModelMsg back = ParseModel(bytes, "back.onnx");
  const std::vector<ValueInfoMsg>& infos = back.graph.value_infos;
  ASSERT_EQ(infos.size(), 2U);
  EXPECT_EQ(infos[0].name, "a");
  ASSERT_EQ(infos[0].type.dims.size(), 2U);
  EXPECT_EQ(infos[0].type.dims[0].param, "N");
  EXPECT_EQ(infos[0].type.dims[1].value, 3);
  EXPECT_EQ(infos[1].name, "c");
  const auto& inner = back.graph.nodes[1].attributes[0].graphs[0]->value_infos;
  ASSERT_EQ(inner.size(), 1U);
  EXPECT_EQ(inner[0].type.elem_type, static_cast<int32_t>(ElementType::kF32));
}

TEST(Export, MetadataComesBack) {
  Loaded loaded;
  ValueInfoMsg x = Info("x", ElementType::kF32, {2});
  x.doc = "a picture";
  ModelMsg model = Model(13, {x}, {Node("Relu", {"x"}, {"y"})}, {"y"});
  model.graph.outputs[0].doc = "scores";
  model.graph.doc = "of the graph";
  model.graph.name = "torch_jit";
  model.producer_name = "pytorch";
  model.producer_version = "2.9";
  model.domain = "org.example";
  model.version = 7;
  model.doc = "two\nlines";
  model.metadata = {{"names", "{0: 'cat', 1: 'dog'}"}, {"stride", "32"}, {"stride", "64"}};
  const Program program = Import(loaded.context, model);
  const Metadata expected = {{"doc_string", "two\nlines"},
                             {"domain", "org.example"},
                             {"graph.doc_string", "of the graph"},
                             {"graph.name", "torch_jit"},
                             {"metadata_props.names", "{0: 'cat', 1: 'dog'}"},
                             {"metadata_props.stride", "32"},
                             {"model_version", "7"},
                             {"producer_name", "pytorch"},
                             {"producer_version", "2.9"},
                             {"value.x.doc_string", "a picture"},
                             {"value.y.doc_string", "scores"}};
  EXPECT_EQ(MetadataOf(program), expected);
  EXPECT_EQ(MetadataOf(Back(loaded.context, program)), expected);
  EXPECT_EQ(MetadataOf(ParseProgram(loaded.context, Print(program))), expected);
  EXPECT_EQ(MetadataOf(program.Clone()), expected);
}

}  // namespace
}  // namespace lathe::onnx
