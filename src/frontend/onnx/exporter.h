#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/frontend/onnx.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "src/frontend/onnx/messages.h"

namespace lathe::onnx {

/// Turns one program into messages; their views live as long as the exporter and the program.
class Exporter {
 public:
  Exporter(const Program& program, const OnnxExportOptions& options);
  ModelMsg Run();
  void ExportMetadata(ModelMsg& model);
  /// Writes large parameters and constants to `<path>.data`, which is to be committed with the
  /// model, and makes `model` refer to them. Null if there are none.
  std::unique_ptr<FileWriter> MoveOutside(ModelMsg& model, const std::string& path);

 private:
  using Handler = void (Exporter::*)(Operation*, GraphMsg&);
  using HandlerTable = std::map<std::string_view, Handler>;
  static constexpr std::string_view kGetParameter = builtin::kGetParameter;
  static constexpr int kMaxRegionDepth = 100;

  /// Ops of the language itself; all others go by the ONNX name in their declaration.
  static const HandlerTable& Handlers();
  void ExportBlock(Block& block, GraphMsg& graph);
  void ExportTypes(const Block& block, GraphMsg& graph) const;
  void ExportStatement(const Block& block, GraphMsg& graph);
  GraphMsg ExportRegion(Region& region);
  void ExportOp(Operation* op, GraphMsg& graph);
  void ExportFeed(Operation* op, GraphMsg& graph);
  void ExportFetch(Operation* op, GraphMsg& graph);
  void ExportParameter(Operation* op);
  /// A Constant node of the main graph, which all graphs within see.
  void ExportLargeConstant(Text name, const Tensor& value);
  void ExportParameterOp(Operation* op, GraphMsg&) { ExportParameter(op); }
  void ExportConstant(Operation* op, GraphMsg& graph);
  void ExportYield(Operation* op, GraphMsg& graph);
  void AddIdentity(GraphMsg& graph, Value value, Text output);

  // ---- export_attribute.cc ----
  /// The oldest set in which the node, with its attributes, has this meaning.
  static int OpsetNeeded(const Operation* op, const NodeMsg& node);
  void ExportAttributes(Operation* op, NodeMsg& node, GraphMsg& graph);
  bool ConvertAttribute(Attribute value, const AttrDef& def, AttributeMsg& out);
  /// Transposed operands of a matrix product become Transpose nodes.
  void ExportTranspose(Operation* op, NodeMsg& node, size_t input, GraphMsg& graph);
  static Text RegionAttribute(std::string_view region);

  void ReserveNames();
  void KeepNamesOfFile();
  void FindOpenDims();
  Text NameOf(Value value);
  Text FreshName();
  Text NodeName(std::string_view name);
  Text Keep(std::string text);
  TypeMsg ConvertType(Type type) const;
  DimMsg ConvertDim(const Dim& dim) const;
  void Refuse(const Operation* op, std::string_view why);
  /// Those of initializers and of large constants.
  std::vector<TensorMsg*> Tensors(ModelMsg& model) const;
  uint64_t ExternalThreshold(std::span<TensorMsg* const> tensors) const;

  const Program& program_;
  OnnxExportOptions options_;
  std::unordered_map<Value, Text> names_;
  std::set<std::string, std::less<>> taken_;
  std::set<Text> exported_;
  std::set<Text> open_dims_;  ///< symbols that stand for a size without a name
  std::vector<TensorMsg> initializers_;
  std::vector<NodeMsg> constants_;
  std::vector<std::shared_ptr<TensorMsg>> values_of_constants_;
  std::map<Text, int> opsets_;
  std::set<Text> node_names_;
  std::map<Text, int64_t> next_suffix_;
  std::vector<Error> refusals_;
  mutable std::deque<std::string> kept_;
  int64_t next_name_ = 0;
  int depth_ = 0;
};

}  // namespace lathe::onnx
