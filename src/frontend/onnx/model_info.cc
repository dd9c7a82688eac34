#include <algorithm>
#include <set>

#include "lathe/frontend/onnx.h"
#include "src/frontend/onnx/messages.h"
#include "src/frontend/onnx/op_table.h"

namespace lathe {

namespace {

void CollectExternalFiles(const std::vector<onnx::TensorMsg>& tensors,
                          std::set<std::string>& files) {
  for (const onnx::TensorMsg& tensor : tensors) {
    for (const onnx::TextPair& entry : tensor.external_data) {
      if (entry.first == "location") files.insert(std::string(entry.second));
    }
  }
}

// Graphs nest no deeper than the reader allows.
void Collect(const std::vector<onnx::NodeMsg>& nodes, std::set<std::string>& operators,
             size_t& count) {
  count += nodes.size();
  for (const onnx::NodeMsg& node : nodes) {
    operators.insert(onnx::QualifiedName(onnx::NormalDomain(node.domain), node.op_type));
    for (const onnx::AttributeMsg& a : node.attributes) {
      for (const auto& graph : a.graphs) Collect(graph->nodes, operators, count);
    }
  }
}

}  // namespace

OnnxModelInfo ReadOnnxModelInfo(const std::string& path) {
  const auto buffer = Buffer::MapFile(path);
  const onnx::ModelMsg model =
      onnx::ParseModel({reinterpret_cast<const char*>(buffer->data()), buffer->size()}, path);
  OnnxModelInfo info;
  info.ir_version = model.ir_version;
  info.producer = model.producer_name;
  info.is_export = info.producer == OnnxExportOptions().producer ||
                   std::ranges::any_of(model.metadata,
                                       [](const auto& m) { return m.first == onnx::kExporterKey; });
  for (const onnx::OpsetMsg& opset : model.opsets) {
    info.opsets.emplace_back(onnx::NormalDomain(opset.domain), opset.version);
  }
  std::set<std::string> operators;
  Collect(model.graph.nodes, operators, info.num_nodes);
  for (const onnx::FunctionMsg& f : model.functions) {
    Collect(f.nodes, operators, info.num_nodes);
  }
  info.operators.assign(operators.begin(), operators.end());
  std::set<std::string> files;
  CollectExternalFiles(model.graph.initializers, files);
  info.external_files.assign(files.begin(), files.end());
  return info;
}

}  // namespace lathe
