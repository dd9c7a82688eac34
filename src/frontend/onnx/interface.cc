#include <unordered_set>

#include "lathe/frontend/onnx_interface.h"
#include "lathe/support/element_type.h"
#include "lathe/support/text.h"
#include "src/frontend/onnx/messages.h"

namespace lathe {
namespace {

std::string ElementText(int32_t elem_type) {
  const auto element = ElementTypeFromOnnx(elem_type);
  return std::string(Name(element.value_or(ElementType::kUndefined)));
}

// Types nest no deeper than the reader allows, but they are read from the outside in all the same.
std::string TypeText(const onnx::TypeMsg& type) {
  std::string text, closing;
  for (const onnx::TypeMsg* at = &type; at != nullptr; at = at->inner.get()) {
    switch (at->kind) {
      case onnx::TypeMsg::kTensor:
        text += StrCat("tensor(", ElementText(at->elem_type));
        break;
      case onnx::TypeMsg::kSparse:
        text += StrCat("sparse_tensor(", ElementText(at->elem_type));
        break;
      case onnx::TypeMsg::kSequence:
        text += "seq(";
        break;
      case onnx::TypeMsg::kOptional:
        text += "optional(";
        break;
      case onnx::TypeMsg::kMap:
        text += StrCat("map(", ElementText(at->elem_type), ",");
        break;
      default:
        return "";
    }
    closing += ")";
  }
  return text + closing;
}

std::optional<std::vector<OnnxDim>> DimsOf(const onnx::TypeMsg& type) {
  const bool wraps = type.kind == onnx::TypeMsg::kOptional && type.inner != nullptr;
  const onnx::TypeMsg& tensor = wraps ? *type.inner : type;
  if (tensor.kind != onnx::TypeMsg::kTensor || !tensor.has_shape) return std::nullopt;
  std::vector<OnnxDim> dims;
  for (const onnx::DimMsg& dim : tensor.dims) {
    OnnxDim& own = dims.emplace_back();
    if (dim.has_value && dim.value >= 0) own.size = dim.value;
    own.name = dim.param;
    own.denotation = dim.denotation;
  }
  return dims;
}

OnnxPort PortOf(const onnx::ValueInfoMsg& info) {
  return {.name = std::string(info.name), .type = TypeText(info.type), .dims = DimsOf(info.type)};
}

}  // namespace

OnnxInterface ReadOnnxInterface(const Buffer& file, const std::string& name) {
  const onnx::ModelMsg model =
      onnx::ParseModel({reinterpret_cast<const char*>(file.data()), file.size()}, name);
  OnnxInterface interface{.ir_version = model.ir_version,
                          .graph_name = std::string(model.graph.name),
                          .inputs = {},
                          .outputs = {}};
  std::unordered_set<onnx::Text> initializers;
  for (const onnx::TensorMsg& t : model.graph.initializers) initializers.insert(t.name);
  for (const onnx::SparseTensorMsg& s : model.graph.sparse_initializers)
    initializers.insert(s.values.name);
  for (const onnx::ValueInfoMsg& input : model.graph.inputs) {
    interface.inputs.push_back(PortOf(input));
    interface.inputs.back().has_initializer = initializers.contains(input.name);
  }
  for (const onnx::ValueInfoMsg& output : model.graph.outputs)
    interface.outputs.push_back(PortOf(output));
  return interface;
}

}  // namespace lathe
