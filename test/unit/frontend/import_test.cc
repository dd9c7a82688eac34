#include <gtest/gtest.h>

#include <deque>

#include "lathe/ir/metadata.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "model_util.h"

namespace lathe::onnx {
namespace {

using Strings = std::vector<std::string>;

Strings OpNames(const Program& program) {
  Strings names;
  for (Operation& op : *program.block()) names.emplace_back(op.name());
  return names;
}

Operation* FindOp(const Program& program, std::string_view name) {
  for (Operation& op : *program.block()) {
    if (op.name() == name) return &op;
  }
  return nullptr;
}

std::string ErrorId(const ModelMsg& model) {
  Loaded loaded;
  return Caught([&] { Import(loaded.context, model); }).id();
}

const ValueInfoMsg kX = Info("x", ElementType::kF32, {2});

TEST(Import, FeedsParametersNodesFetches) {
  Loaded loaded;
  ModelMsg model = Model(13, {kX}, {Node("Add", {"x", "w"}, {"y"})}, {"y"});
  const Tensor w = F32({2}, {10, 20});
  model.graph.initializers.push_back(EncodeTensor(w, "w"));
  model.graph.nodes[0].name = "layer.0/add";
  Program program = Import(loaded.context, model);
  EXPECT_EQ(OpNames(program), (Strings{"builtin.get_parameter", "nn.feed", "nn.add", "nn.fetch"}));
  EXPECT_TRUE(Verify(program).empty());
  EXPECT_EQ(FindOp(program, "nn.add")->location().name(), "layer.0/add");
  EXPECT_EQ(FindOp(program, "nn.add")->result(0).type().ToString(), "v_tensor<[2], f32>");
  EXPECT_EQ(program.parameters().Find("w")->data, w);
  EXPECT_FALSE(program.parameters().Find("w")->is_mutable);
  const NamedValues out = RunProgram(program, {{"x", F32({2}, {1, 2})}});
  EXPECT_EQ(out[0].first, "y");
  EXPECT_EQ(out[0].second, RtValue(F32({2}, {11, 22})));
}

TEST(Import, OutputsListedAgainHaveNamesOfTheirOwn) {
  Loaded loaded;
  const std::vector<NodeMsg> nodes{Node("Abs", {"x"}, {"y"}), Node("Neg", {"x"}, {"y_2"})};
  Program program = Import(loaded.context, Model(13, {kX}, nodes, {"y", "y", "y_2", "y"}));
  const NamedValues out = RunProgram(program, {{"x", F32({2}, {1, -2})}});
  Strings names;
  for (const auto& [name, value] : out) names.push_back(name);
  EXPECT_EQ(names, (Strings{"y", "y_3", "y_2", "y_4"}));
  EXPECT_EQ(out[1].second, RtValue(F32({2}, {1, 2})));
  EXPECT_EQ(out[2].second, RtValue(F32({2}, {-1, 2})));
  EXPECT_EQ(out[3].second, out[0].second);
}

TEST(Import, UnnamedNodesAreNamedByOperatorAndOutput) {
  Loaded loaded;
  const Program program =
      Import(loaded.context, Model(13, {kX}, {Node("Abs", {"x"}, {"y"})}, {"y"}));
  EXPECT_EQ(FindOp(program, "nn.abs")->location().name(), "Abs:y");
}

TEST(Import, ElementTypeZeroIsAsIfAbsent) {
  Loaded loaded;
  const NodeMsg node =
      Node("QuantizeLinear", {"x", "s"}, {"y"}, {Int("output_dtype", 0), Int("precision", 0)});
  const Program program =
      Import(loaded.context, Model(23, {kX, Info("s", ElementType::kF32, {})}, {node}, {"y"}));
  EXPECT_EQ(FindOp(program, "nn.quantize_linear")->result(0).type().ToString(),
            "v_tensor<[2], u8>");
}

TEST(Import, InitializersAmongTheInputsAreNoInputs) {
  Loaded loaded;
  ModelMsg model =
      Model(9, {kX, Info("w", ElementType::kF32, {2})}, {Node("Add", {"x", "w"}, {"y"})}, {"y"});
  const Tensor w = F32({2}, {1, 1});
  model.graph.initializers.push_back(EncodeTensor(w, "w"));
  model.ir_version = 3;
  EXPECT_EQ(Import(loaded.context, model).feeds().size(), 1U);
}

// A weight is a parameter; what says axes, pads, shapes or scales is part of the program.
TEST(Import, InitializersThatSaySizesAreConstants) {
  Loaded loaded;
  ValueInfoMsg x = Info("x", ElementType::kF32, {0, 4});
  x.type.dims[0] = {false, 0, "N"};
  ModelMsg model =
      Model(18, {x},
            {Node("Pad", {"x", "pads"}, {"p"}), Node("Add", {"p", "w"}, {"a"}),
             Node("Resize", {"a", "", "scales"}, {"r"}), Node("ReduceMean", {"r", "axes"}, {"y"})},
            {"y"});
  const Tensor pads = I64({4}, {0, 1, 0, 1}), w = F32({1}, {1}), scales = F32({2}, {1, 2}),
               axes = I64({1}, {1});
  model.graph.initializers = {EncodeTensor(pads, "pads"), EncodeTensor(w, "w"),
                              EncodeTensor(scales, "scales"), EncodeTensor(axes, "axes")};
  const Program program = Import(loaded.context, model);
  const auto by = [&](const char* op, size_t operand) {
    return FindOp(program, op)->operand(operand).defining_op()->name();
  };
  EXPECT_EQ(by("nn.pad", 1), "builtin.constant");
  EXPECT_EQ(by("nn.resize", 2), "builtin.constant");
  EXPECT_EQ(by("nn.reduce_mean", 1), "builtin.constant");
  EXPECT_EQ(by("nn.add", 1), "builtin.get_parameter");
}

TEST(Import, SymbolicDims) {
  Loaded loaded;
  ValueInfoMsg x = Info("x", ElementType::kF32, {0, 4, -1});
  x.type.dims[0] = {false, 0, "batch"};
  const Program program =
      Import(loaded.context, Model(13, {x}, {Node("Relu", {"x"}, {"y"})}, {"y"}));
  EXPECT_EQ(FindOp(program, "nn.relu")->result(0).type().ToString(),
            "v_tensor<[batch, 4, x.2], f32>");
}

TEST(Import, SizesThatTheFileLeavesOpenAreEachTheirOwn) {
  Loaded loaded;
  ValueInfoMsg x = Info("x", ElementType::kF32, {0, -1, 0, 0, 5});
  x.type.dims[2] = {false, 0, "?"};
  x.type.dims[3] = {false, 0, ""};
  ValueInfoMsg z = Info("z", ElementType::kF32, {0, 3});
  z.type.dims[0] = {false, 0, "x.1"};  // of another meaning
  const Program program = Import(
      loaded.context,
      Model(13, {x, z}, {Node("Relu", {"x"}, {"y"}), Node("Relu", {"z"}, {"v"})}, {"y", "v"}));
  EXPECT_EQ(program.feeds()[0]->result(0).type().ToString(),
            "v_tensor<[x.0, x.1_, x.2, x.3, 5], f32>");
  EXPECT_EQ(program.feeds()[1]->result(0).type().ToString(), "v_tensor<[x.1, 3], f32>");
}

TEST(Import, WhatTheFileSaysLaterIsNoSizeOfAnInput) {
  Loaded loaded;
  ModelMsg model =
      Model(13, {Info("x", ElementType::kF32, {-1})}, {Node("NonZero", {"x"}, {"y"})}, {"y"});
  model.graph.value_infos = {Info("y", ElementType::kI64, {1, 0})};
  model.graph.value_infos[0].type.dims[1] = {false, 0, "x.0"};
  const Program program = Import(loaded.context, model);
  EXPECT_EQ(FindOp(program, "nn.non_zero")->result(0).type().ToString(), "v_tensor<[1, ?], i64>");
}

TEST(Import, ConstantsOfEveryForm) {
  Loaded loaded;
  const Tensor value = I64({2}, {3, 4});
  AttributeMsg tensor;
  tensor.name = "value";
  tensor.type = AttrType::kTensor;
  tensor.tensors.push_back(std::make_shared<TensorMsg>(EncodeTensor(value, "")));
  Program program =
      Import(loaded.context, Model(13, {},
                                   {Node("Constant", {}, {"a"}, {tensor}),
                                    Node("Constant", {}, {"b"}, {Int("value_int", 7)}),
                                    Node("Constant", {}, {"c"}, {Floats("value_floats", {1, 2})}),
                                    Node("Constant", {}, {"d"}, {Str("value_string", "s")})},
                                   {"a", "b", "c", "d"}));
  const NamedValues out = RunProgram(program, {});
  EXPECT_EQ(out[0].second, RtValue(value));
  EXPECT_EQ(out[1].second, RtValue(Tensor::Scalar<int64_t>(7)));
  EXPECT_EQ(out[2].second, RtValue(F32({2}, {1, 2})));
  EXPECT_EQ(out[3].second, RtValue(Tensor::Scalar<std::string>("s")));
}

TEST(Import, LargeConstantsBecomeParameters) {
  Loaded loaded;
  const ModelMsg model =
      Model(13, {}, {Node("Constant", {}, {"a"}, {Ints("value_ints", {1, 2, 3})})}, {"a"});
  EXPECT_TRUE(Import(loaded.context, model).parameters().empty());
  EXPECT_EQ(Import(loaded.context, model, {.max_constant_bytes = 23}).parameters().size(), 1U);
}

// "+" before those that are marked as constants, in program order.
Strings MarkedParameters(const Program& program) {
  Strings names;
  for (OpWalker w(program.block()); const Operation* op = w.Next();) {
    if (op->name() != "builtin.get_parameter") continue;
    const auto constant = op->attribute("constant").dyn_cast<BoolAttribute>();
    names.push_back(StrCat(constant && constant.value() ? "+" : "",
                           op->attribute("name").cast<StrAttribute>().value()));
  }
  return names;
}

// What is a weight in the file is one here, and nothing else is: not within branches, functions and
// branches that are decided either.
TEST(Import, LargeConstantsAreNoWeights) {
  Loaded loaded;
  const auto large = [](Text name) {
    return Node("Constant", {}, {name}, {Floats("value_floats", {1, 2, 3})});
  };
  const Tensor w = F32({3}, {1, 2, 3});
  const auto branch = [&](Text constant, Text weight, Text out) {
    GraphMsg graph;
    graph.name = "branch";
    graph.initializers.push_back(EncodeTensor(w, weight));
    graph.nodes = {large(constant), Node("Add", {constant, weight}, {out})};
    graph.outputs = {Info(out)};
    return graph;
  };
  const auto choose = [&](Text condition, Text out, Text then, Text otherwise) {
    return Node("If", {condition}, {out},
                {Graph("then_branch", branch(then, "w2", "t")),
                 Graph("else_branch", branch(otherwise, "w3", "e"))});
  };
  FunctionMsg function;
  function.name = "F";
  function.domain = "local";
  function.outputs = {"y"};
  function.nodes = {large("in_function"), Node("Neg", {"in_function"}, {"y"})};
  function.opsets = {{Text(), 17}};
  ModelMsg model =
      Model(17, {Info("c", ElementType::kBool, {})},
            {large("mask"), Node("Add", {"mask", "w"}, {"a"}), Node("F", {}, {"f"}, {}, "local"),
             choose("c", "i", "then", "else"), Node("ConstantOfShape", {"none"}, {"d"}),
             Node("Cast", {"d"}, {"no"}, {Int("to", 9)}), choose("no", "j", "left", "decided")},
            {"a", "f", "i", "j"});
  model.graph.initializers.push_back(EncodeTensor(w, "w"));
  const Tensor none = I64({0}, {});
  model.graph.initializers.push_back(EncodeTensor(none, "none"));
  model.functions = {function};
  model.opsets.push_back({"local", 1});
  const Program program = Import(loaded.context, model, {.max_constant_bytes = 8});
  EXPECT_EQ(MarkedParameters(program), (Strings{"w", "+mask", "+in_function", "w2", "+then", "w3",
                                                "+else", "w3.1", "+decided"}));
}

// The exporters of PyTorch say which tensors are buffers of a module.
TEST(Import, BuffersAreNoWeights) {
  Loaded loaded;
  ModelMsg model = Model(17, {Info("x", ElementType::kF32, {1, 2, 3})},
                         {Node("BatchNormalization", {"x", "scale", "b", "mean", "var"}, {"n"}),
                          Node("Add", {"n", "mask"}, {"m"}), Node("Add", {"m", "table"}, {"y"})},
                         {"y"});
  const Tensor two = F32({2}, {1, 2}), three = F32({3}, {1, 2, 3});
  const std::pair<Text, Text> kinds[] = {{"scale", "PARAMETER"}, {"b", ""},
                                         {"mean", "BUFFER"},     {"var", "BUFFER"},
                                         {"mask", "BUFFER"},     {"table", "CONSTANT_TENSOR"}};
  for (const auto& [name, kind] : kinds) {
    const bool is_row = name == "mask" || name == "table";
    model.graph.initializers.push_back(EncodeTensor(is_row ? three : two, name));
    if (kind.empty()) continue;
    ValueInfoMsg info = Info(name, ElementType::kF32, {is_row ? 3 : 2});
    info.metadata = {{"pkg.torch.export.graph_signature.InputSpec.persistent", "True"},
                     {"pkg.torch.export.graph_signature.InputSpec.kind", kind}};
    model.graph.value_infos.push_back(info);
  }
  EXPECT_EQ(MarkedParameters(Import(loaded.context, model)),
            (Strings{"scale", "b", "mean", "var", "+mask", "+table"}));
}

// Of relu6, as the exporter of PyTorch with and without such marks writes it; `scale` is learned.
TEST(Import, NumbersOfTheCodeAreNoWeights) {
  const Tensor two = F32({}, {2});
  for (const bool marked : {false, true}) {
    Loaded loaded;
    ModelMsg model = Model(17, {Info("x", ElementType::kF32, {2})},
                           {Node("Clip", {"x", "low", "high"}, {"c"}),
                            Node("Mul", {"c", "half"}, {"h"}), Node("Mul", {"h", "scale"}, {"y"})},
                           {"y"});
    for (const char* name : {"low", "high", "half", "scale"}) {
      model.graph.initializers.push_back(EncodeTensor(two, name));
    }
    ValueInfoMsg info = Info("scale", ElementType::kF32, {});
    info.metadata = {{"pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER"}};
    if (marked) model.graph.value_infos.push_back(info);
    EXPECT_EQ(MarkedParameters(Import(loaded.context, model)),
              (Strings{"+low", "+high", marked ? "+half" : "half", "scale"}));
  }
}

TEST(Import, NodesInAnyOrder) {
  Loaded loaded;
  Program program = Import(
      loaded.context,
      Model(13, {kX},
            {Node("Neg", {"b"}, {"c"}), Node("Abs", {"x"}, {"a"}), Node("Exp", {"a"}, {"b"})},
            {"c"}));
  EXPECT_EQ(OpNames(program), (Strings{"nn.feed", "nn.abs", "nn.exp", "nn.neg", "nn.fetch"}));
}

// onnxruntime writes it into models of older sets.
TEST(Import, LayerNormalizationOfAnOlderSet) {
  Loaded loaded;
  const Program program =
      Import(loaded.context, Model(11, {kX, Info("s", ElementType::kF32, {2})},
                                   {Node("LayerNormalization", {"x", "s"}, {"y"})}, {"y"}));
  EXPECT_EQ(OpNames(program),
            (Strings{"nn.feed", "nn.feed", "nn.layer_normalization", "nn.fetch"}));
}

TEST(Import, UnsupportedOperatorsAreAllListed) {
  Loaded loaded;
  ModelMsg model = Model(13, {kX},
                         {Node("Reluu", {"x"}, {"a"}), Node("Abs", {"a"}, {"b"}),
                          Node("Gadget", {"b", "x"}, {"c"}, {}, "com.acme")},
                         {"c"});
  model.opsets.push_back({"com.acme", 2});
  model.graph.nodes[0].name = "act";
  const Error error = Caught([&] { Import(loaded.context, model); });
  EXPECT_EQ(error.id(), "onnx/unsupported-op");
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_EQ(error.message(), "operator Reluu of opset 13 is not supported");
  EXPECT_EQ(error.where(), "test.onnx: node \"act\"");
  EXPECT_NE(error.notes()[0].text.find("v_tensor<[2], f32>"), std::string::npos);
  EXPECT_NE(error.hints()[0].find("Relu"), std::string::npos);
  ASSERT_EQ(error.others.size(), 1U);
  EXPECT_NE(error.others[0].message().find("com.acme.Gadget of opset 2"), std::string::npos);
}

TEST(Import, LayoutsOfOneProcessorAreExplained) {
  Loaded loaded;
  const Text domain = "com.microsoft.nchwc";
  ModelMsg model = Model(13, {kX}, {Node("ReorderInput", {"x"}, {"y"}, {}, domain)}, {"y"});
  model.opsets.push_back({domain, 1});
  const Error error = Caught([&] { Import(loaded.context, model); });
  EXPECT_EQ(error.id(), "onnx/unsupported-op");
  EXPECT_NE(error.hints()[0].find("ORT_ENABLE_EXTENDED"), std::string::npos);
}

TEST(Import, BrokenModels) {
  const auto relu = Node("Relu", {"x"}, {"y"});
  EXPECT_EQ(ErrorId(Model(99, {kX}, {relu}, {"y"})), "onnx/opset");
  EXPECT_EQ(ErrorId(Model(0, {kX}, {relu}, {"y"})), "onnx/opset");
  ModelMsg no_opset = Model(13, {kX}, {relu}, {"y"});
  no_opset.opsets.clear();
  EXPECT_EQ(ErrorId(no_opset), "onnx/opset");
  no_opset.opsets = {{"com.acme", 1}};
  EXPECT_EQ(ErrorId(no_opset), "onnx/opset");
  ModelMsg newer = Model(13, {kX}, {relu}, {"y"});
  newer.ir_version = kNewestOnnxIrVersion + 1;
  EXPECT_EQ(ErrorId(newer), "onnx/ir-version");
  EXPECT_EQ(ErrorId(Model(17, {kX}, {Node("Gelu", {"x"}, {"y"})}, {"y"})), "onnx/opset");
  EXPECT_EQ(ErrorId(Model(13, {kX}, {Node("Relu", {"z"}, {"y"})}, {"y"})), "onnx/undefined-input");
  EXPECT_EQ(ErrorId(Model(13, {kX}, {relu}, {"z"})), "onnx/undefined-input");
  EXPECT_EQ(ErrorId(Model(13, {kX}, {relu, relu}, {"y"})), "onnx/duplicate-name");
  EXPECT_EQ(ErrorId(Model(13, {kX, kX}, {relu}, {"y"})), "onnx/duplicate-name");
  EXPECT_EQ(ErrorId(Model(13, {kX}, {Node("Relu", {"x"}, {"x"})}, {"x"})), "onnx/cycle");
  EXPECT_EQ(
      ErrorId(Model(13, {kX}, {Node("Add", {"x", "b"}, {"a"}), Node("Relu", {"a"}, {"b"})}, {"b"})),
      "onnx/cycle");
  EXPECT_EQ(ErrorId(Model(13, {Info("x")}, {relu}, {"y"})), "onnx/type");
  EXPECT_EQ(ErrorId(Model(13, {kX}, {Node("Relu", {}, {"y"})}, {"y"})), "onnx/inputs");
  EXPECT_EQ(ErrorId(Model(13, {kX}, {Node("Relu", {"x", "x"}, {"y"})}, {"y"})), "onnx/inputs");
  EXPECT_EQ(ErrorId(Model(13, {kX}, {Node("Relu", {"x"}, {"y", "z"})}, {"y"})), "onnx/outputs");
  EXPECT_EQ(ErrorId(Model(13, {kX}, {Node("Relu", {"x"}, {"y"}, {Int("foo", 1)})}, {"y"})),
            "onnx/attribute");
  EXPECT_EQ(ErrorId(Model(13, {kX}, {Node("LeakyRelu", {"x"}, {"y"}, {Int("alpha", 1)})}, {"y"})),
            "onnx/attribute");
  for (const int64_t wide :
       {int64_t{1} << 32, -(int64_t{1} << 32)}) {  // f32 but for its upper half
    EXPECT_EQ(ErrorId(Model(13, {kX}, {Node("Cast", {"x"}, {"y"}, {Int("to", wide + 1)})}, {"y"})),
              "onnx/attribute");
  }
  EXPECT_EQ(ErrorId(Model(13, {Info("x", ElementType::kString, {2})}, {relu}, {"y"})),
            "onnx/input-type");
}

// The ids of what import warns of.
Strings Warnings(const ModelMsg& model) {
  Loaded loaded;
  Strings ids;
  Import(loaded.context, model, {.warn = [&](const Error& error) { ids.push_back(error.id()); }});
  return ids;
}

std::string StrictId(const ModelMsg& model) {
  Loaded loaded;
  return Caught([&] { Import(loaded.context, model, {.strict = true}); }).id();
}

TEST(Import, DeclaredRanksAreTakenWhereNoneIsKnown) {
  Loaded loaded;
  ModelMsg model = Model(13, {Info("x", ElementType::kF32)}, {Node("Relu", {"x"}, {"y"})}, {"y"});
  model.graph.outputs = {Info("y", ElementType::kF32, {3})};
  const Program program = Import(loaded.context, model);
  EXPECT_EQ(FindOp(program, "nn.relu")->result(0).type().ToString(), "v_tensor<[?], f32>");
  EXPECT_EQ(Warnings(model), Strings());
}

TEST(Import, WhatContradictsInferenceIsAWarning) {
  ModelMsg model = Model(13, {kX}, {Node("Relu", {"x"}, {"y"})}, {"y"});
  const auto check = [&](const ValueInfoMsg& wrong, const std::string& id) {
    model.graph.outputs = {wrong};
    EXPECT_EQ(Warnings(model), Strings{id});
    EXPECT_EQ(StrictId(model), id);
    Loaded loaded;
    Program program = Import(loaded.context, model);
    EXPECT_EQ(FindOp(program, "nn.relu")->result(0).type().ToString(), "v_tensor<[2], f32>");
    EXPECT_EQ(RunProgram(program, {{"x", F32({2}, {-1, 2})}})[0].second, RtValue(F32({2}, {0, 2})));
  };
  check(Info("y", ElementType::kF32, {3}), "onnx/value-info");
  check(Info("y", ElementType::kF32, {2, 1}), "onnx/value-info");
  check(Info("y", ElementType::kI64, {2}), "onnx/value-info");
  check(Info("y", ElementType::kF32, std::vector<int64_t>(300, 1)), "onnx/type");
  ValueInfoMsg strange = Info("y", ElementType::kF32, {2});
  strange.type.elem_type = 99;
  check(strange, "onnx/type");
}

// Exporters leave the size that they traced with, or say what they do not know.
TEST(Import, DeclaredSizesThatCannotBeCheckedAreNotTaken) {
  Loaded loaded;
  ValueInfoMsg x = Info("x", ElementType::kF32, {0, 4});
  x.type.dims[0] = {false, 0, "batch"};
  ModelMsg model = Model(13, {x}, {Node("Relu", {"x"}, {"r"}), Node("Shape", {"r"}, {"y"})}, {"y"});
  for (const int64_t declared : {1, 0, -1}) {
    model.graph.value_infos = {Info("r", ElementType::kF32, {declared, 4})};
    EXPECT_EQ(Warnings(model), Strings());
    Program program = Import(loaded.context, model);
    EXPECT_EQ(FindOp(program, "nn.relu")->result(0).type().ToString(), "v_tensor<[batch, 4], f32>");
    EXPECT_EQ(RunProgram(program, {{"x", F32({2, 4}, std::vector<float>(8))}})[0].second,
              RtValue(I64({2}, {2, 4})));
  }
}

TEST(Import, WarningsAreBounded) {
  ModelMsg model = Model(13, {kX}, {}, {});
  std::vector<std::string> names = {"x"};
  for (int i = 0; i < 25; ++i) names.push_back("y" + std::to_string(i));
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    model.graph.nodes.push_back(Node("Relu", {names[i]}, {names[i + 1]}));
    model.graph.value_infos.push_back(Info(names[i + 1], ElementType::kF32, {9}));
  }
  model.graph.outputs = {Info(names.back())};
  Loaded loaded;
  Strings told;
  Import(loaded.context, model, {.warn = [&](const Error& e) { told.push_back(e.message()); }});
  ASSERT_EQ(told.size(), 11U);
  EXPECT_EQ(told.back(), "and 15 more like these");
}

TEST(Import, DomainsThatTheModelForgetsAreNewest) {
  ModelMsg model = Model(13, {kX}, {Node("Binarizer", {"x"}, {"y"}, {}, "ai.onnx.ml")}, {"y"});
  EXPECT_EQ(Warnings(model), Strings{"onnx/opset"});
  EXPECT_EQ(StrictId(model), "onnx/opset");
}

GraphMsg Branch(NodeMsg node) {
  GraphMsg graph;
  graph.outputs = {Info(node.outputs[0])};
  graph.nodes = {std::move(node)};
  return graph;
}

// y = x without its axis 1 if that has one element, else x.
ModelMsg SqueezeIfOne(int64_t extent) {
  ModelMsg model = Model(17, {Info("x", ElementType::kF32, {2, extent})},
                         {Node("Shape", {"x"}, {"s"}), Node("Gather", {"s", "one"}, {"n"}),
                          Node("Equal", {"n", "one"}, {"c"}),
                          Node("If", {"c"}, {"y"},
                               {Graph("then_branch", Branch(Node("Squeeze", {"x", "axes"}, {"t"}))),
                                Graph("else_branch", Branch(Node("Identity", {"x"}, {"e"})))})},
                         {"y"});
  static const Tensor kOne = Tensor::Scalar<int64_t>(1), kAxes = I64({1}, {1});
  model.graph.initializers = {EncodeTensor(kOne, "one"), EncodeTensor(kAxes, "axes")};
  return model;
}

TEST(Import, OfABranchThatSizesDecideTheOtherNeedNotMakeSense) {
  for (const int64_t extent : {1, 3}) {
    Loaded loaded;
    const Program program = Import(loaded.context, SqueezeIfOne(extent));
    EXPECT_EQ(FindOp(program, "cf.if"), nullptr);
    EXPECT_EQ(FindOp(program, "nn.fetch")->operand(0).type().ToString(),
              extent == 1 ? "v_tensor<[2], f32>" : "v_tensor<[2, 3], f32>");
  }
}

// The file says what the exporter traced.
TEST(Import, ARankThatABranchContradictsIsNotTaken) {
  Loaded loaded;
  ModelMsg model = SqueezeIfOne(-1);
  model.graph.outputs = {Info("y", ElementType::kF32, {2})};
  Program program = Import(loaded.context, model);
  EXPECT_EQ(FindOp(program, "cf.if")->result(0).type().ToString(), "v_tensor<*, f32>");
  for (const Shape& shape : {Shape{2}, Shape{2, 3}}) {
    const Shape given = shape.size() == 1 ? Shape{2, 1} : shape;
    const std::vector<float> numbers(static_cast<size_t>(2 * given[1]), 4);
    EXPECT_EQ(RunProgram(program, {{"x", F32(given, numbers)}})[0].second,
              RtValue(F32(shape, numbers)));
  }
}

// What sizes say before the first round need not hold in the next.
TEST(Import, BranchesInLoopsAreKept) {
  Loaded loaded;
  GraphMsg body;
  body.inputs = {Info("i", ElementType::kI64, {}), Info("go", ElementType::kBool, {}),
                 Info("a", ElementType::kF32)};
  body.nodes = {
      Node("Identity", {"go"}, {"again"}), Node("Size", {"a"}, {"n"}),
      Node("Equal", {"n", "two"}, {"c"}),
      Node("If", {"c"}, {"b"},
           {Graph("then_branch", Branch(Node("Concat", {"a", "a"}, {"t"}, {Int("axis", 0)}))),
            Graph("else_branch", Branch(Node("Neg", {"a"}, {"e"})))})};
  body.outputs = {Info("again"), Info("b")};
  ModelMsg model =
      Model(17, {kX}, {Node("Loop", {"two", "", "x"}, {"y"}, {Graph("body", body)})}, {"y"});
  const Tensor two = Tensor::Scalar<int64_t>(2);
  model.graph.initializers = {EncodeTensor(two, "two")};
  Program program = Import(loaded.context, model);
  EXPECT_EQ(RunProgram(program, {{"x", F32({2}, {1, 2})}})[0].second,
            RtValue(F32({4}, {-1, -2, -1, -2})));
}

TEST(Import, PlacesOfOnesAreARange) {
  Loaded loaded;
  ValueInfoMsg x = Info("x", ElementType::kF32, {0, 4});
  x.type.dims[0] = {false, 0, "N"};
  static const Tensor one = I64({1}, {1}), zero = I64({1}, {0});
  NodeMsg ones = Node("ConstantOfShape", {"n"}, {"ones"});
  AttributeMsg value;
  value.name = "value";
  value.type = AttrType::kTensor;
  value.tensors = {std::make_shared<TensorMsg>(EncodeTensor(one, ""))};
  ones.attributes = {value};
  ModelMsg model =
      Model(17, {x},
            {Node("Shape", {"x"}, {"n"}, {Int("end", 1)}), ones, Node("NonZero", {"ones"}, {"y"})},
            {"y"});
  Program program = Import(loaded.context, model);
  EXPECT_EQ(FindOp(program, "nn.fetch")->operand(0).type().ToString(), "v_tensor<[1, N], i64>");
  EXPECT_EQ(RunProgram(program, {{"x", Tensor(ElementType::kF32, {3, 4})}})[0].second,
            RtValue(I64({1, 3}, {0, 1, 2})));
  model.graph.nodes[1].attributes[0].tensors = {
      std::make_shared<TensorMsg>(EncodeTensor(zero, ""))};
  program = Import(loaded.context, model);
  EXPECT_EQ(RunProgram(program, {{"x", Tensor(ElementType::kF32, {3, 4})}})[0].second,
            RtValue(I64({1, 0}, {})));
}

// ---- sizes that are computed in floats ----

struct FloatStep {
  Text op;
  float by = 0;  ///< the second operand of a binary one
};

// Cast(steps(Cast(N))), as the shape of what the model gives.
ModelMsg SizeThroughFloats(const std::vector<FloatStep>& steps, std::deque<Tensor>& constants) {
  static constexpr Text kNames[] = {"f0", "f1", "f2", "f3", "f4"};
  static constexpr Text kConstants[] = {"c0", "c1", "c2", "c3"};
  ValueInfoMsg x = Info("x", ElementType::kF32, {0});
  x.type.dims[0] = {false, 0, "N"};
  const auto cast = [](Text from, Text to, ElementType type) {
    return Node("Cast", {from}, {to}, {Int("to", static_cast<int64_t>(type))});
  };
  ModelMsg model =
      Model(17, {x}, {Node("Shape", {"x"}, {"n"}), cast("n", "f0", ElementType::kF32)}, {"y"});
  for (size_t i = 0; i < steps.size(); ++i) {
    std::vector<Text> inputs = {kNames[i]};
    if (steps[i].by != 0) {
      constants.push_back(F32({1}, {steps[i].by}));
      model.graph.initializers.push_back(EncodeTensor(constants.back(), kConstants[i]));
      inputs.push_back(kConstants[i]);
    }
    model.graph.nodes.push_back(Node(steps[i].op, inputs, {kNames[i + 1]}));
  }
  model.graph.nodes.push_back(cast(kNames[steps.size()], "size", ElementType::kI64));
  model.graph.nodes.push_back(Node("ConstantOfShape", {"size"}, {"y"}));
  return model;
}

void ExpectSize(const std::vector<FloatStep>& steps, const std::string& size,
                const std::vector<std::pair<int64_t, int64_t>>& sizes) {
  Loaded loaded;
  std::deque<Tensor> constants;
  Program program = Import(loaded.context, SizeThroughFloats(steps, constants));
  EXPECT_EQ(FindOp(program, "nn.fetch")->operand(0).type().ToString(),
            "v_tensor<[" + size + "], f32>");
  for (const auto& [n, expected] : sizes) {
    const Tensor y =
        RunProgram(program, {{"x", Tensor(ElementType::kF32, {n})}})[0].second.tensor();
    EXPECT_EQ(y.shape(), Shape{expected}) << size << " for " << n;
  }
}

TEST(Import, SizesAreFollowedThroughFloats) {
  ExpectSize({}, "N", {{5, 5}});
  ExpectSize({{"Mul", 2}}, "2*N", {{5, 10}});
  ExpectSize({{"Mul", 0.5F}, {"Floor"}}, "floordiv(N, 2)", {{5, 2}, {6, 3}});
  ExpectSize({{"Mul", 0.5F}}, "floordiv(N, 2)", {{5, 2}});
  ExpectSize({{"Div", 3}, {"Ceil"}, {"Mul", 3}}, "3*floordiv(N + 2, 3)", {{7, 9}, {9, 9}, {0, 0}});
  ExpectSize({{"Add", 1}, {"Div", 2}, {"Floor"}}, "floordiv(N + 1, 2)", {{7, 4}, {8, 4}});
  ExpectSize({{"Mul", -0.5F}, {"Floor"}, {"Mul", -1}}, "-floordiv(-N, 2)", {{7, 4}, {8, 4}});
  ExpectSize({{"Sub", 8}, {"Mul", 0.5F}, {"Add", 8}}, "floordiv(N, 2) + 4", {{5, 6}, {9, 8}});
}

// What floats round may come out on either side of an integer.
TEST(Import, SizesThatFloatsRoundAreNotFollowed) {
  ExpectSize({{"Mul", 0.7F}, {"Floor"}}, "?", {{10, 7}});
  ExpectSize({{"Div", 3}, {"Mul", 1.5F}}, "?", {{8, 4}});
}

// ---- functions ----

FunctionMsg Function(Text name, std::vector<Text> inputs, std::vector<Text> outputs,
                     std::vector<NodeMsg> nodes) {
  FunctionMsg f;
  f.name = name;
  f.domain = "local";
  f.inputs = std::move(inputs);
  f.outputs = std::move(outputs);
  f.nodes = std::move(nodes);
  f.opsets = {{Text(), 13}, {"local", 1}};
  return f;
}

ModelMsg WithFunctions(ModelMsg model, std::vector<FunctionMsg> functions) {
  model.functions = std::move(functions);
  model.opsets.push_back({"local", 1});
  return model;
}

TEST(Functions, AreInlinedWithTheirAttributes) {
  Loaded loaded;
  FunctionMsg f =
      Function("Act", {"a"}, {"b"},
               {Node("LeakyRelu", {"a"}, {"t"}, {Reference("alpha", "slope", AttrType::kFloat)}),
                Node("Neg", {"t"}, {"b"})});
  f.attributes = {"slope"};
  ModelMsg model = WithFunctions(Model(13, {kX},
                                       {Node("Act", {"x"}, {"y"}, {Float("slope", 0.5F)}, "local"),
                                        Node("Act", {"y"}, {"z"}, {Float("slope", 2)}, "local")},
                                       {"y", "z"}),
                                 {f});
  model.graph.nodes[0].name = "first";
  Program program = Import(loaded.context, model);
  EXPECT_EQ(FindOp(program, "nn.neg")->location().name(), "first/Neg:b");
  const NamedValues out = RunProgram(program, {{"x", F32({2}, {-4, 3})}});
  EXPECT_EQ(out[0].second, RtValue(F32({2}, {2, -3})));
  EXPECT_EQ(out[1].second, RtValue(F32({2}, {-2, 6})));
}

TEST(Functions, DefaultAttributesAndAbsentOnes) {
  Loaded loaded;
  FunctionMsg f =
      Function("Act", {"a"}, {"b"},
               {Node("LeakyRelu", {"a"}, {"b"}, {Reference("alpha", "slope", AttrType::kFloat)})});
  const ModelMsg model = Model(13, {kX}, {Node("Act", {"x"}, {"y"}, {}, "local")}, {"y"});
  Program absent = Import(loaded.context, WithFunctions(model, {f}));
  // LeakyRelu's own default is 0.01.
  EXPECT_NEAR(ToDoubles(RunProgram(absent, {{"x", F32({2}, {-4, 3})}})[0].second.tensor())[0],
              -0.04, 1e-6);
  f.default_attributes = {Float("slope", 0.5F)};
  Program with_default = Import(loaded.context, WithFunctions(model, {f}));
  EXPECT_EQ(RunProgram(with_default, {{"x", F32({2}, {-4, 3})}})[0].second,
            RtValue(F32({2}, {-2, 3})));
}

TEST(Functions, AbsentInputsStayAbsent) {
  Loaded loaded;
  const FunctionMsg f =
      Function("Bound", {"a", "low", "high"}, {"b"}, {Node("Clip", {"a", "low", "high"}, {"b"})});
  ModelMsg model = WithFunctions(Model(13, {kX, Info("h", ElementType::kF32, {})},
                                       {Node("Bound", {"x", "", "h"}, {"y"}, {}, "local")}, {"y"}),
                                 {f});
  Program program = Import(loaded.context, model);
  EXPECT_EQ(
      RunProgram(program, {{"x", F32({2}, {-5, 5})}, {"h", Tensor::Scalar<float>(1)}})[0].second,
      RtValue(F32({2}, {-5, 1})));
}

TEST(Functions, CyclesAndExplosionsAreErrors) {
  const auto call = [](Text name) { return Node(name, {"a"}, {"b"}, {}, "local"); };
  const ModelMsg model = Model(13, {kX}, {Node("A", {"x"}, {"y"}, {}, "local")}, {"y"});
  EXPECT_EQ(ErrorId(WithFunctions(model, {Function("A", {"a"}, {"b"}, {call("A")})})),
            "onnx/function-cycle");
  EXPECT_EQ(ErrorId(WithFunctions(model, {Function("A", {"a"}, {"b"}, {call("B")}),
                                          Function("B", {"a"}, {"b"}, {call("A")})})),
            "onnx/function-cycle");
  // Each function calls the next one twice.
  std::vector<FunctionMsg> functions;
  std::deque<std::string> names = {"A"};
  for (int i = 0; i < 40; ++i) {
    const std::string& name = names.back();
    const std::string& next = names.emplace_back("F" + std::to_string(i));
    functions.push_back(
        Function(name, {"a"}, {"b"},
                 {Node(next, {"a"}, {"t"}, {}, "local"), Node(next, {"t"}, {"b"}, {}, "local")}));
  }
  functions.push_back(Function(names.back(), {"a"}, {"b"}, {Node("Abs", {"a"}, {"b"})}));
  Loaded loaded;
  const Error error = Caught([&] {
    Import(loaded.context, WithFunctions(model, functions), {.max_inlined_nodes = 1000});
  });
  EXPECT_EQ(error.id(), "onnx/function-size");
}

// ---- subgraphs ----

GraphMsg Body(std::vector<ValueInfoMsg> inputs, std::vector<NodeMsg> nodes,
              std::vector<Text> outputs) {
  return Model(13, std::move(inputs), std::move(nodes), std::move(outputs)).graph;
}

TEST(Subgraphs, IfSeesTheValuesAround) {
  Loaded loaded;
  const GraphMsg then_graph = Body({}, {Node("Neg", {"a"}, {"t"})}, {"t"});
  const GraphMsg else_graph = Body({}, {Node("Abs", {"a"}, {"e"})}, {"e"});
  const NodeMsg branch = Node("If", {"c"}, {"y"},
                              {Graph("then_branch", then_graph), Graph("else_branch", else_graph)});
  Program program = Import(loaded.context, Model(13, {Info("c", ElementType::kBool, {}), kX},
                                                 {branch, Node("Relu", {"x"}, {"a"})}, {"y"}));
  EXPECT_TRUE(Verify(program).empty());
  const Tensor x = F32({2}, {-1, 2});
  EXPECT_EQ(RunProgram(program, {{"c", Tensor::Scalar(true)}, {"x", x}})[0].second,
            RtValue(F32({2}, {-0.0F, -2})));
  EXPECT_EQ(RunProgram(program, {{"c", Tensor::Scalar(false)}, {"x", x}})[0].second,
            RtValue(F32({2}, {0, 2})));
}

TEST(Subgraphs, LoopCarriesAndScans) {
  Loaded loaded;
  // s = s + i, scanned; the types of the body's inputs are not even given.
  const GraphMsg body = Body({Info("i"), Info("c"), Info("s")},
                             {Node("Add", {"s", "i"}, {"next"}), Node("Identity", {"c"}, {"go"}),
                              Node("Identity", {"next"}, {"piece"})},
                             {"go", "next", "piece"});
  Program program =
      Import(loaded.context,
             Model(13, {Info("n", ElementType::kI64, {}), Info("s0", ElementType::kI64, {})},
                   {Node("Loop", {"n", "", "s0"}, {"last", "all"}, {Graph("body", body)})},
                   {"last", "all"}));
  EXPECT_TRUE(Verify(program).empty());
  const NamedValues out =
      RunProgram(program, {{"n", Tensor::Scalar<int64_t>(4)}, {"s0", Tensor::Scalar<int64_t>(10)}});
  EXPECT_EQ(out[0].second, RtValue(Tensor::Scalar<int64_t>(16)));
  EXPECT_EQ(out[1].second, RtValue(I64({4}, {10, 11, 13, 16})));
}

TEST(Subgraphs, DeepNestingIsAnError) {
  GraphMsg graph = Body({}, {Node("Abs", {"x"}, {"y"})}, {"y"});
  for (int i = 0; i < 120; ++i) {
    graph = Body({},
                 {Node("If", {"c"}, {"y"},
                       {Graph("then_branch", graph),
                        Graph("else_branch", Body({}, {Node("Abs", {"x"}, {"y"})}, {"y"}))})},
                 {"y"});
  }
  ModelMsg model = Model(13, {Info("c", ElementType::kBool, {}), kX}, {}, {"y"});
  model.graph.nodes = graph.nodes;
  EXPECT_EQ(ErrorId(model), "onnx/nesting");
}

TEST(Subgraphs, WrongSubgraphs) {
  const GraphMsg good = Body({}, {Node("Abs", {"x"}, {"e"})}, {"e"});
  const auto model = [&](GraphMsg then_graph) {
    return Model(13, {Info("c", ElementType::kBool, {}), kX},
                 {Node("If", {"c"}, {"y"},
                       {Graph("then_branch", std::move(then_graph)), Graph("else_branch", good)})},
                 {"y"});
  };
  EXPECT_EQ(ErrorId(model(good)), "none");
  EXPECT_EQ(ErrorId(model(Body({}, {Node("Abs", {"x"}, {"e"})}, {"e", "x"}))), "onnx/subgraph");
  EXPECT_EQ(ErrorId(model(Body({kX}, {Node("Abs", {"x"}, {"e"})}, {"e"}))), "onnx/subgraph");
  EXPECT_EQ(ErrorId(model(Body({}, {}, {"nowhere"}))), "onnx/undefined-input");
  EXPECT_EQ(ErrorId(Model(13, {Info("c", ElementType::kBool, {}), kX},
                          {Node("If", {"c"}, {"y"}, {Graph("then_branch", good)})}, {"y"})),
            "onnx/attribute");
}

// A model that ends in a ZipMap, as scikit-learn's classifiers do.
ModelMsg ZipMapModel(AttributeMsg labels, std::vector<NodeMsg> more = {}, Text output = "z") {
  std::vector<NodeMsg> nodes = {Node("Softmax", {"x"}, {"p"}),
                                Node("ZipMap", {"p"}, {"z"}, {std::move(labels)}, "ai.onnx.ml")};
  nodes.insert(nodes.end(), more.begin(), more.end());
  ModelMsg model =
      Model(17, {Info("x", ElementType::kF32, {2, 3})}, std::move(nodes), {output, "p"});
  model.opsets.push_back({"ai.onnx.ml", 3});
  return model;
}

AttributeMsg StringList(Text name, std::vector<Text> values) {
  AttributeMsg a;
  a.name = name;
  a.type = AttrType::kStrings;
  a.strings = std::move(values);
  return a;
}

TEST(ZipMap, ItsTensorIsTheOutputAndItsKeysAreMetadata) {
  const std::pair<AttributeMsg, const char*> cases[] = {
      {Ints("classlabels_int64s", {7, -3, 5}), "[7,-3,5]"},
      {StringList("classlabels_strings", {"a", "b, c", "\"d\""}), R"(["a","b, c","\"d\""])"}};
  for (const auto& [labels, text] : cases) {
    Loaded loaded;
    Program program = Import(loaded.context, ZipMapModel(labels));
    const Metadata expected = {{"graph.name", "g"}, {"value.z.class_labels", text}};
    EXPECT_EQ(MetadataOf(program), expected);
    const std::string again = SerializeOnnx(program);
    EXPECT_EQ(MetadataOf(ImportOnnx(loaded.context, BufferOf(again), "again.onnx", "")), expected);
    const NamedValues got = RunProgram(program, {{"x", F32({2, 3}, {1, 2, 3, 0, -1, 4})}});
    ASSERT_EQ(got.size(), 2U);
    EXPECT_EQ(got[0].first, "z");
    EXPECT_EQ(got[0].second.tensor(), got[1].second.tensor());
  }
}

TEST(ZipMap, AnywhereElseItIsRefused) {
  const AttributeMsg labels = Ints("classlabels_int64s", {7, 3, 5});
  const auto refusal = [](const ModelMsg& model) {
    Loaded loaded;
    const Error error = Caught([&] { Import(loaded.context, model); });
    return StrCat(error.id(), ": ", error.message());
  };
  EXPECT_EQ(refusal(ZipMapModel(labels, {Node("Identity", {"z"}, {"w"})}, "w")),
            "onnx/zip-map: ZipMap: \"z\", which is not an output of the model, is a list of "
            "dictionaries made by ZipMap; it can only be an output");
  EXPECT_EQ(
      refusal(ZipMapModel(labels, {Node("SequenceLength", {"z"}, {"n"})})),
      "onnx/zip-map: SequenceLength: input \"z\" is a list of dictionaries made by ZipMap; it "
      "can only be an output");
  GraphMsg branch;
  branch.outputs = {Info("z")};
  EXPECT_EQ(refusal(ZipMapModel(labels,
                                {Node("If", {"c"}, {"w"},
                                      {Graph("then_branch", branch), Graph("else_branch", branch)}),
                                 Node("ReduceMax", {"p"}, {"m"}, {Int("keepdims", 0)}),
                                 Node("Cast", {"m"}, {"c"}, {Int("to", 9)})})),
            "onnx/zip-map: graph output \"z\" is a list of dictionaries made by ZipMap; it can "
            "only be an output");
  EXPECT_EQ(refusal(ZipMapModel(Ints("classlabels_int64s", {7, 3}))),
            "onnx/input-type: ZipMap: \"p\" is v_tensor<[2, 3], f32>, probabilities f32[N,2] are "
            "expected");
  EXPECT_EQ(refusal(ZipMapModel(Ints("labels", {7, 3, 5}))),
            "onnx/attribute: ZipMap needs one of 'classlabels_int64s' and 'classlabels_strings'");
}

}  // namespace
}  // namespace lathe::onnx
