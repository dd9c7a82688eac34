#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lathe/dialect/shape_inference.h"
#include "lathe/frontend/onnx.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/op_def.h"
#include "src/frontend/onnx/messages.h"
#include "src/frontend/onnx/op_table.h"
#include "src/frontend/onnx/tensor_codec.h"

namespace lathe::onnx {

struct ContribRule;

/// Names of one graph or function body and the values they stand for; a null value is what an
/// unsupported operator would have made. Graphs see the names of the graphs around them.
struct Scope {
  const Scope* parent = nullptr;
  std::unordered_map<Text, Value> values;
  std::unordered_map<Text, const TypeMsg*> declared;  ///< value_info and outputs

  std::unordered_set<Text> absent;  ///< inputs that the call leaves out

  const Value* Find(Text name) const;
  bool IsAbsent(Text name) const;
};

/// The body that nodes belong to: the main graph, or a call of a local function.
struct Frame {
  const Frame* caller = nullptr;
  const FunctionMsg* function = nullptr;
  const NodeMsg* call = nullptr;  ///< with attributes resolved
  std::unordered_map<Text, int64_t> opsets;
  std::string prefix;  ///< of node names
  int depth = 0;
};

/// Imports one model into one program.
class Importer {
 public:
  Importer(IrContext& context, const ModelMsg& model, Source source, std::string file,
           const OnnxImportOptions& options);
  Program Run();

 private:
  friend class NodeUpgrader;
  using FunctionKey = std::string;

  // ---- model (import_model.cc) ----
  void CheckModel();
  void ReadOpsets(const std::vector<OpsetMsg>& opsets, Frame& frame, std::string_view where);
  void IndexFunctions();
  void CheckGivenInitializers(const GraphMsg& graph) const;
  Tensor ValueOfInitializer(const TensorMsg& message) const;
  void ImportInitializers(const GraphMsg& graph, Scope& scope);
  void MarkBuffers();
  void ImportFeeds(const GraphMsg& graph, Scope& scope);
  void ImportFetches(const GraphMsg& graph, const Scope& scope);
  void ImportMetadata(const Scope& scope);
  void ImportStatement(const GraphMsg& graph, Block& block) const;
  Value Unwrapped(Value value, const TypeMsg& declared);
  /// With `constant`: what training leaves alone.
  Value MakeParameter(Text name, Tensor data, bool constant = false);
  Value MakeConstant(const Tensor& value);
  bool IsArgument(const Tensor& data) const;
  void KnowWhole(Operation* op);
  void Define(Scope& scope, Text name, Value value, std::string_view what);
  void ThrowRefusals();

  // ---- nodes (import_node.cc) ----
  void ImportNodes(const std::vector<NodeMsg>& nodes, Scope& scope, const Frame& frame);
  void ImportNode(const NodeMsg& node, Scope& scope, const Frame& frame);
  void ImportContrib(const ContribRule& rule, NodeMsg node, Scope& scope, const Frame& frame);
  /// False if `node` is no NonZero of ones.
  bool ImportCount(const NodeMsg& node, Scope& scope, const Frame& frame);
  void ImportUpgraded(NodeMsg node, Scope& scope, const Frame& frame);
  void ImportCurrent(const NodeMsg& node, Scope& scope, const Frame& frame);
  void ImportConstant(const NodeMsg& node, Scope& scope);
  void ImportOp(OpInfo info, const NodeMsg& node, Scope& scope, const Frame& frame);
  std::vector<Value> Operands(OpInfo info, const NodeMsg& node, const Scope& scope);
  void CheckFirstOpset(const NodeMsg& node, const Frame& frame) const;
  void CheckOperandTypes(OpInfo info, const NodeMsg& node,
                         const std::vector<Value>& operands) const;
  size_t NumResults(OpInfo info, const NodeMsg& node) const;
  void Infer(Operation* op);
  void BindResults(Operation* op, const NodeMsg& node, Scope& scope);
  void RefineType(Value value, Text name, const Scope& scope);
  void Doubt(const std::string& id, const std::string& message);
  void TellRest() const;
  void CheckForgottenDomain(const NodeMsg& node);
  void RefuseOp(const NodeMsg& node, Scope& scope, const Frame& frame);
  void Poison(const NodeMsg& node, Scope& scope);
  bool IsPoisoned(const NodeMsg& node, const Scope& scope) const;
  Value Lookup(Text name, const NodeMsg& node, const Scope& scope) const;
  std::string NodeName(const NodeMsg& node, const Frame& frame) const;
  int64_t OpsetOf(const NodeMsg& node, const Frame& frame) const;
  NodeMsg Resolve(const NodeMsg& node, const Scope& scope, const Frame& frame) const;

  // ---- regions and functions (import_region.cc) ----
  void ImportRegionOp(OpInfo info, const NodeMsg& node, Scope& scope, const Frame& frame);
  void ImportRegion(const GraphMsg& graph, Region& region, const Scope& scope, const Frame& frame);
  /// False if `node` is no If, or not decided.
  bool ImportDecidedIf(const NodeMsg& node, Scope& scope, const Frame& frame);
  void CheckNesting() const;
  void CheckRegions(Operation* op, const NodeMsg& node) const;
  void CallFunction(const FunctionMsg& function, const NodeMsg& node, Scope& scope,
                    const Frame& frame);
  const FunctionMsg* FindFunction(const NodeMsg& node) const;

  // ---- operators built from others (import_built.cc) ----
  /// False if `node` is none of them.
  bool ImportBuilt(const NodeMsg& node, Scope& scope, const Frame& frame);
  void ImportGradient(const NodeMsg& node, Scope& scope);
  void ImportFlexAttention(const NodeMsg& node, Scope& scope, const Frame& frame);
  void ImportZipMap(const NodeMsg& node, Scope& scope, const Frame& frame);
  /// `what` is the value of a ZipMap where it cannot be a tensor.
  [[noreturn]] void RefuseZipMap(std::string_view what) const;
  Value ImportInline(const GraphMsg& graph, Value input, const Scope& outer, const Frame& frame);

  // ---- attributes and types (import_attribute.cc, import_type.cc) ----
  std::vector<NamedAttribute> Attributes(OpInfo info, const NodeMsg& node);
  Attribute ConvertAttribute(const AttributeMsg& attribute, const AttrDef& def,
                             const NodeMsg& node);
  Type ConvertType(const TypeMsg& type, std::string_view name);
  SymShape ConvertShape(const TypeMsg& type) const;
  Dim ConvertDim(const DimMsg& dim) const;
  /// The type of an input, with a symbol for each dim that the file leaves open.
  Type NameOpenDims(Type type, Text input);
  [[noreturn]] void Fail(ErrorCode code, std::string id, std::string message,
                         std::string hint = "") const;

  /// A string that lasts as long as the import.
  Text Keep(std::string text) { return kept_.emplace_back(std::move(text)); }
  Text FreshName(std::string_view hint);

  IrContext& context_;
  const ModelMsg& model_;
  Source source_;
  std::string file_;
  OnnxImportOptions options_;
  OpTable table_;
  Program program_;
  Builder builder_;
  ShapeInferencer facts_;
  std::unordered_map<FunctionKey, const FunctionMsg*> functions_;
  std::vector<Error> refusals_;
  std::unordered_set<std::string> refused_;
  std::unordered_set<Text> named_dims_;  ///< symbols of the inputs as the file names them
  std::unordered_set<Text> open_dims_;   ///< and those made for dims that it leaves open
  std::unordered_set<Text> forgotten_domains_;
  /// What ZipMap makes: tensors that stand for lists of dictionaries, and their keys as JSON.
  std::unordered_map<Value, std::string> class_labels_;
  std::deque<std::string> kept_;
  std::string where_;  ///< the node at hand, for errors
  int64_t inlined_nodes_ = 0;
  int64_t fresh_names_ = 0;
  std::string value_prefix_;  ///< of the names of values: that of the function's call
  int64_t doubts_ = 0;
  int nesting_ = 0;
  int repeated_ = 0;  ///< loops around the node at hand
  bool upgrading_ = false;
};

/// The operator of a node for messages.
std::string Operator(const NodeMsg& node);

/// Nodes in an order in which each comes after those whose outputs it (or a graph inside it) reads;
/// file order where that allows. Throws onnx/cycle.
std::vector<const NodeMsg*> InDependencyOrder(const std::vector<NodeMsg>& nodes);

}  // namespace lathe::onnx
