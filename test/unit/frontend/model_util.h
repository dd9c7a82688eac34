#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/dialect/all.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/frontend/onnx.h"
#include "lathe/ir/context.h"
#include "lathe/support/error.h"
#include "src/frontend/onnx/messages.h"
#include "src/frontend/onnx/tensor_codec.h"

namespace lathe::onnx {

inline AttributeMsg Int(Text name, int64_t value) {
  AttributeMsg a;
  a.name = name;
  a.type = AttrType::kInt;
  a.i = value;
  return a;
}
inline AttributeMsg Float(Text name, float value) {
  AttributeMsg a;
  a.name = name;
  a.type = AttrType::kFloat;
  a.f = value;
  return a;
}
inline AttributeMsg Str(Text name, Text value) {
  AttributeMsg a;
  a.name = name;
  a.type = AttrType::kString;
  a.s = value;
  return a;
}
inline AttributeMsg Ints(Text name, std::vector<int64_t> values) {
  AttributeMsg a;
  a.name = name;
  a.type = AttrType::kInts;
  a.ints = std::move(values);
  return a;
}
inline AttributeMsg Floats(Text name, std::vector<double> values) {
  AttributeMsg a;
  a.name = name;
  a.type = AttrType::kFloats;
  a.floats = std::move(values);
  return a;
}
inline AttributeMsg Graph(Text name, GraphMsg graph) {
  AttributeMsg a;
  a.name = name;
  a.type = AttrType::kGraph;
  a.graphs.push_back(std::make_shared<GraphMsg>(std::move(graph)));
  return a;
}
inline AttributeMsg Reference(Text name, Text to, AttrType type) {
  AttributeMsg a;
  a.name = name;
  a.type = type;
  a.ref_attr_name = to;
  return a;
}

inline NodeMsg Node(Text op, std::vector<Text> inputs, std::vector<Text> outputs,
                    std::vector<AttributeMsg> attributes = {}, Text domain = {}) {
  NodeMsg node;
  node.op_type = op;
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  node.attributes = std::move(attributes);
  node.domain = domain;
  return node;
}

inline ValueInfoMsg Info(Text name, ElementType element, std::vector<int64_t> dims) {
  ValueInfoMsg info;
  info.name = name;
  info.type.kind = TypeMsg::kTensor;
  info.type.elem_type = static_cast<int32_t>(element);
  info.type.has_shape = true;
  for (const int64_t d : dims) info.type.dims.push_back({true, d, {}});
  return info;
}
/// Without a shape, or even without a type.
inline ValueInfoMsg Info(Text name, ElementType element) {
  ValueInfoMsg info = Info(name, element, {});
  info.type.has_shape = false;
  return info;
}
inline ValueInfoMsg Info(Text name) {
  ValueInfoMsg info;
  info.name = name;
  return info;
}

inline ModelMsg Model(int opset, std::vector<ValueInfoMsg> inputs, std::vector<NodeMsg> nodes,
                      std::vector<Text> outputs) {
  ModelMsg model;
  model.ir_version = 8;
  model.opsets = {{Text(), opset}};
  model.has_graph = true;
  model.graph.name = "g";
  model.graph.inputs = std::move(inputs);
  model.graph.nodes = std::move(nodes);
  for (const Text name : outputs) model.graph.outputs.push_back(Info(name));
  return model;
}

inline std::shared_ptr<Buffer> BufferOf(const std::string& bytes) {
  auto kept = std::make_shared<std::string>(bytes);
  return Buffer::Wrap(kept->data(), kept->size(), kept);
}

inline Program Import(IrContext& context, const ModelMsg& model,
                      const OnnxImportOptions& options = {}) {
  return ImportOnnx(context, BufferOf(Serialize(model)), "test.onnx", "", options);
}

/// A context with every dialect.
struct Loaded {
  Loaded() { LoadAllDialects(context); }
  IrContext context;
};

inline NamedValues RunProgram(Program& program, const NamedValues& inputs) {
  Interpreter interpreter(program);
  return interpreter.Run(inputs);
}

inline Tensor F32(Shape shape, std::vector<float> values) {
  return Tensor::Of<float>(std::move(shape), values);
}
inline Tensor I64(Shape shape, std::vector<int64_t> values) {
  return Tensor::Of<int64_t>(std::move(shape), values);
}

/// The error that `f` throws; one with the id "none" if it throws nothing.
template <class F>
Error Caught(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kInternal, "none", "nothing was thrown");
}

}  // namespace lathe::onnx
