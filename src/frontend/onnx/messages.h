#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/support/tensor.h"

/// The messages of ONNX files (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto) as plain
/// structs. Strings and data are views into the file, which must outlive them.
namespace lathe::onnx {

using Text = std::string_view;
using TextPair = std::pair<Text, Text>;

struct TensorMsg {
  std::vector<int64_t> dims;
  int32_t data_type = 0;
  Text name;
  bool has_raw = false;
  Text raw_data;
  /// Encoded runs of float_data, int32_data, int64_data, double_data, uint64_data.
  enum Field : uint8_t { kFloat, kInt32, kInt64, kDouble, kUint64, kNumFields };
  std::vector<Text> typed[kNumFields];
  std::vector<Text> strings;
  bool has_segment = false;
  bool external = false;
  std::vector<TextPair> external_data;
};

struct SparseTensorMsg {
  TensorMsg values;
  TensorMsg indices;
  std::vector<int64_t> dims;
};

struct DimMsg {
  bool has_value = false;
  int64_t value = 0;
  Text param;
  Text denotation = Text();
};

struct TypeMsg {
  enum Kind : uint8_t { kNone, kTensor, kSequence, kMap, kOptional, kSparse, kOpaque };
  Kind kind = kNone;
  int32_t elem_type = 0;  ///< of tensors; the key of maps
  bool has_shape = false;
  std::vector<DimMsg> dims;
  std::shared_ptr<const TypeMsg> inner;  ///< element of sequences and optionals, value of maps
};

struct ValueInfoMsg {
  Text name;
  TypeMsg type;
  Text doc = Text();
  std::vector<TextPair> metadata = {};
};

struct GraphMsg;

/// Numbers of AttributeProto.AttributeType.
enum class AttrType : int32_t {
  kUndefined = 0,
  kFloat = 1,
  kInt = 2,
  kString = 3,
  kTensor = 4,
  kGraph = 5,
  kFloats = 6,
  kInts = 7,
  kStrings = 8,
  kTensors = 9,
  kGraphs = 10,
  kSparseTensor = 11,
  kSparseTensors = 12,
  kTypeProto = 13,
  kTypeProtos = 14,
};

struct AttributeMsg {
  Text name;
  Text ref_attr_name;
  AttrType type = AttrType::kUndefined;
  float f = 0;
  int64_t i = 0;
  Text s;
  std::vector<double> floats;
  std::vector<int64_t> ints;
  std::vector<Text> strings;
  // One entry for the singular forms.
  std::vector<std::shared_ptr<const TensorMsg>> tensors;
  std::vector<std::shared_ptr<const GraphMsg>> graphs;
  std::vector<std::shared_ptr<const SparseTensorMsg>> sparse_tensors;
  std::vector<TypeMsg> types;
  Tensor made = {};  ///< of type kTensor, of a node that no file holds
};

struct NodeMsg {
  std::vector<Text> inputs;
  std::vector<Text> outputs;
  Text name;
  Text op_type;
  Text domain;
  Text overload;
  std::vector<AttributeMsg> attributes;
  bool is_current = false;  ///< made here with the newest meaning, whatever the model's opset

  const AttributeMsg* Find(Text attribute) const;
};

struct GraphMsg {
  std::vector<NodeMsg> nodes;
  Text name;
  std::vector<TensorMsg> initializers;
  std::vector<SparseTensorMsg> sparse_initializers;
  std::vector<ValueInfoMsg> inputs;
  std::vector<ValueInfoMsg> outputs;
  std::vector<ValueInfoMsg> value_infos;
  Text doc;
  std::vector<TextPair> metadata = {};
};

struct OpsetMsg {
  Text domain;
  int64_t version = 0;
};

struct FunctionMsg {
  Text name;
  Text domain;
  Text overload;
  std::vector<Text> inputs;
  std::vector<Text> outputs;
  std::vector<Text> attributes;                  ///< required
  std::vector<AttributeMsg> default_attributes;  ///< with a default value
  std::vector<NodeMsg> nodes;
  std::vector<OpsetMsg> opsets;
  std::vector<ValueInfoMsg> value_infos;
};

/// Of the metadata of a model that Lathe has exported and whose producer is another: its version.
inline constexpr const char* kExporterKey = "lathe_version";
/// Of the metadata of a graph: what its block states (lathe/ir/stated_constraints.h).
inline constexpr const char* kStatementKey = "lathe_relies_on";

/// The name of an exported graph that had none.
inline constexpr const char* kMainGraph = "main";

struct ModelMsg {
  int64_t ir_version = 0;
  std::vector<OpsetMsg> opsets;
  Text producer_name;
  Text producer_version;
  Text domain;
  int64_t version = 0;
  Text doc;
  std::vector<TextPair> metadata;
  bool has_graph = false;
  GraphMsg graph;
  std::vector<FunctionMsg> functions;
};

/// SequenceProto, OptionalProto and MapProto (onnx-data.proto): only in data files.
struct DataMsg {
  enum Kind : uint8_t { kTensor, kSequence, kOptional, kMap };
  Kind kind = kTensor;
  Text name;
  int32_t elem_type = 0;  ///< as SequenceProto.DataType / OptionalProto.DataType; 0: absent
  TensorMsg tensor;
  std::vector<DataMsg> items;  ///< of a sequence; the one value of an optional; the values of a map
  std::vector<int64_t> int_keys;
  std::vector<Text> string_keys;
};

// Errors: onnx/wire, onnx/nesting. `file` is for messages.
ModelMsg ParseModel(std::string_view bytes, std::string_view file);
DataMsg ParseData(std::string_view bytes, std::string_view file, DataMsg::Kind kind);

std::string Serialize(const ModelMsg& model);
std::string Serialize(const TensorMsg& tensor);
std::string Serialize(const DataMsg& data);

}  // namespace lathe::onnx
