#include "src/frontend/onnx/messages.h"

#include <cstring>

#include "src/frontend/onnx/wire.h"

namespace lathe::onnx {

namespace {

template <class T>
int64_t Index(const std::vector<T>& list) {
  return static_cast<int64_t>(list.size());
}

void AppendVarints(WireReader& r, std::vector<int64_t>& out) {
  std::string_view run = r.Encoded();
  uint64_t value;
  while (!run.empty()) {
    if (!NextVarint(run, value)) r.Fail("a packed list of numbers is malformed");
    out.push_back(static_cast<int64_t>(value));
  }
}

void AppendFloats(WireReader& r, std::vector<double>& out) {
  const std::string_view run = r.Encoded();
  if (run.size() % sizeof(float) != 0) r.Fail("a packed list of floats is cut off");
  for (size_t at = 0; at < run.size(); at += sizeof(float)) {
    float value;
    std::memcpy(&value, run.data() + at, sizeof value);
    out.push_back(value);
  }
}

TextPair ParseEntry(WireReader r) {
  TextPair entry;
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        entry.first = r.Bytes();
        break;
      case 2:
        entry.second = r.Bytes();
        break;
      default:
        r.Skip();
    }
  }
  return entry;
}

TensorMsg ParseTensor(WireReader r) {
  TensorMsg t;
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        AppendVarints(r, t.dims);
        break;
      case 2:
        t.data_type = r.Int32();
        break;
      case 3:
        t.has_segment = true;
        r.Skip();
        break;
      case 4:
        t.typed[TensorMsg::kFloat].push_back(r.Encoded());
        break;
      case 5:
        t.typed[TensorMsg::kInt32].push_back(r.Encoded());
        break;
      case 6:
        t.strings.push_back(r.Bytes());
        break;
      case 7:
        t.typed[TensorMsg::kInt64].push_back(r.Encoded());
        break;
      case 8:
        t.name = r.Bytes();
        break;
      case 9:
        t.has_raw = true;
        t.raw_data = r.Bytes();
        break;
      case 10:
        t.typed[TensorMsg::kDouble].push_back(r.Encoded());
        break;
      case 11:
        t.typed[TensorMsg::kUint64].push_back(r.Encoded());
        break;
      case 13:
        t.external_data.push_back(
            ParseEntry(WireReader(r, "external_data", Index(t.external_data))));
        break;
      case 14:
        t.external = r.Varint() == 1;
        break;
      default:
        r.Skip();
    }
  }
  return t;
}

SparseTensorMsg ParseSparse(WireReader r) {
  SparseTensorMsg s;
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        s.values = ParseTensor(WireReader(r, "values"));
        break;
      case 2:
        s.indices = ParseTensor(WireReader(r, "indices"));
        break;
      case 3:
        AppendVarints(r, s.dims);
        break;
      default:
        r.Skip();
    }
  }
  return s;
}

DimMsg ParseDim(WireReader r) {
  DimMsg dim;
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        dim.has_value = true;
        dim.value = r.Int64();
        break;
      case 2:
        dim.param = r.Bytes();
        break;
      default:
        r.Skip();
    }
  }
  return dim;
}

void ParseShape(WireReader r, TypeMsg& type) {
  type.has_shape = true;
  while (r.Next()) {
    if (r.field() == 1) {
      type.dims.push_back(ParseDim(WireReader(r, "dim", Index(type.dims))));
    } else {
      r.Skip();
    }
  }
}

void ParseTensorType(WireReader r, TypeMsg& type) {
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        type.elem_type = r.Int32();
        break;
      case 2:
        ParseShape(WireReader(r, "shape"), type);
        break;
      default:
        r.Skip();
    }
  }
}

TypeMsg ParseType(WireReader r);

void ParseElementType(WireReader r, TypeMsg& type) {
  while (r.Next()) {
    if (r.field() == 1) {
      type.inner = std::make_shared<TypeMsg>(ParseType(WireReader(r, "elem_type")));
    } else {
      r.Skip();
    }
  }
}

void ParseMapType(WireReader r, TypeMsg& type) {
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        type.elem_type = r.Int32();
        break;
      case 2:
        type.inner = std::make_shared<TypeMsg>(ParseType(WireReader(r, "value_type")));
        break;
      default:
        r.Skip();
    }
  }
}

TypeMsg ParseType(WireReader r) {
  TypeMsg type;
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        type.kind = TypeMsg::kTensor;
        ParseTensorType(WireReader(r, "tensor_type"), type);
        break;
      case 4:
        type.kind = TypeMsg::kSequence;
        ParseElementType(WireReader(r, "sequence_type"), type);
        break;
      case 5:
        type.kind = TypeMsg::kMap;
        ParseMapType(WireReader(r, "map_type"), type);
        break;
      case 7:
        type.kind = TypeMsg::kOpaque;
        r.Skip();
        break;
      case 8:
        type.kind = TypeMsg::kSparse;
        ParseTensorType(WireReader(r, "sparse_tensor_type"), type);
        break;
      case 9:
        type.kind = TypeMsg::kOptional;
        ParseElementType(WireReader(r, "optional_type"), type);
        break;
      default:
        r.Skip();
    }
  }
  return type;
}

ValueInfoMsg ParseValueInfo(WireReader r) {
  ValueInfoMsg info;
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        info.name = r.Bytes();
        break;
      case 2:
        info.type = ParseType(WireReader(r, "type"));
        break;
      default:
        r.Skip();
    }
  }
  return info;
}

GraphMsg ParseGraph(WireReader r);

// Files of IR version 1 lack the type.
AttrType GuessType(const AttributeMsg& a, uint32_t last_field) {
  if (last_field == 2) return AttrType::kFloat;
  if (last_field == 3) return AttrType::kInt;
  if (last_field == 4) return AttrType::kString;
  if (!a.floats.empty()) return AttrType::kFloats;
  if (!a.ints.empty()) return AttrType::kInts;
  if (!a.strings.empty()) return AttrType::kStrings;
  if (!a.tensors.empty()) return AttrType::kTensor;
  if (!a.graphs.empty()) return AttrType::kGraph;
  return AttrType::kUndefined;
}

template <class T>
void Append(std::vector<std::shared_ptr<const T>>& list, T message) {
  list.push_back(std::make_shared<const T>(std::move(message)));
}

// The field that holds the value of an attribute of each type, in order of AttrType.
constexpr uint32_t kValueFields[] = {0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 22, 23, 14, 15};

// A value of another kind than the type says. No value at all is what some writers leave of a zero.
void CheckValueField(const WireReader& r, const AttributeMsg& a, uint32_t fields) {
  const auto type = static_cast<size_t>(a.type);
  if (type >= std::size(kValueFields)) {
    throw r.MakeError(ErrorCode::kParse, "onnx/attribute",
                      StrCat("attribute type ", type, " is not known"));
  }
  uint32_t others = 0;
  for (const uint32_t field : kValueFields) others |= uint32_t{1} << field;
  others &= ~((uint32_t{1} << kValueFields[type]) | 1U);
  if ((fields & others) != 0 && (a.type != AttrType::kUndefined || a.ref_attr_name.empty())) {
    throw r.MakeError(ErrorCode::kParse, "onnx/attribute",
                      StrCat("attribute ", Quote(a.name.substr(0, 100)),
                             " holds a value of another kind than its type says"));
  }
}

AttributeMsg ParseAttribute(WireReader r) {
  AttributeMsg a;
  uint32_t scalar_field = 0;
  uint32_t fields = 0;
  while (r.Next()) {
    if (r.field() < 32) fields |= uint32_t{1} << r.field();
    switch (r.field()) {
      case 1:
        a.name = r.Bytes();
        break;
      case 2:
        a.f = r.Float();
        scalar_field = 2;
        break;
      case 3:
        a.i = r.Int64();
        scalar_field = 3;
        break;
      case 4:
        a.s = r.Bytes();
        scalar_field = 4;
        break;
      case 5:
        Append(a.tensors, ParseTensor(WireReader(r, "t")));
        break;
      case 6:
        Append(a.graphs, ParseGraph(WireReader(r, "g")));
        break;
      case 7:
        AppendFloats(r, a.floats);
        break;
      case 8:
        AppendVarints(r, a.ints);
        break;
      case 9:
        a.strings.push_back(r.Bytes());
        break;
      case 10:
        Append(a.tensors, ParseTensor(WireReader(r, "tensors", Index(a.tensors))));
        break;
      case 11:
        Append(a.graphs, ParseGraph(WireReader(r, "graphs", Index(a.graphs))));
        break;
      case 14:
        a.types.push_back(ParseType(WireReader(r, "tp")));
        break;
      case 15:
        a.types.push_back(ParseType(WireReader(r, "type_protos", Index(a.types))));
        break;
      case 20:
        a.type = static_cast<AttrType>(r.Int32());
        break;
      case 21:
        a.ref_attr_name = r.Bytes();
        break;
      case 22:
        Append(a.sparse_tensors, ParseSparse(WireReader(r, "sparse_tensor")));
        break;
      case 23:
        Append(a.sparse_tensors,
               ParseSparse(WireReader(r, "sparse_tensors", Index(a.sparse_tensors))));
        break;
      default:
        r.Skip();
    }
  }
  if (a.type == AttrType::kUndefined) a.type = GuessType(a, scalar_field);
  CheckValueField(r, a, fields);
  return a;
}

NodeMsg ParseNode(WireReader r) {
  NodeMsg n;
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        n.inputs.push_back(r.Bytes());
        break;
      case 2:
        n.outputs.push_back(r.Bytes());
        break;
      case 3:
        n.name = r.Bytes();
        break;
      case 4:
        n.op_type = r.Bytes();
        break;
      case 5:
        n.attributes.push_back(ParseAttribute(WireReader(r, "attribute", Index(n.attributes))));
        break;
      case 7:
        n.domain = r.Bytes();
        break;
      case 8:
        n.overload = r.Bytes();
        break;
      default:
        r.Skip();
    }
  }
  return n;
}

GraphMsg ParseGraph(WireReader r) {
  GraphMsg g;
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        g.nodes.push_back(ParseNode(WireReader(r, "node", Index(g.nodes))));
        break;
      case 2:
        g.name = r.Bytes();
        break;
      case 5:
        g.initializers.push_back(ParseTensor(WireReader(r, "initializer", Index(g.initializers))));
        break;
      case 11:
        g.inputs.push_back(ParseValueInfo(WireReader(r, "input", Index(g.inputs))));
        break;
      case 12:
        g.outputs.push_back(ParseValueInfo(WireReader(r, "output", Index(g.outputs))));
        break;
      case 13:
        g.value_infos.push_back(ParseValueInfo(WireReader(r, "value_info", Index(g.value_infos))));
        break;
      case 15:
        g.sparse_initializers.push_back(
            ParseSparse(WireReader(r, "sparse_initializer", Index(g.sparse_initializers))));
        break;
      default:
        r.Skip();
    }
  }
  return g;
}

OpsetMsg ParseOpset(WireReader r) {
  OpsetMsg opset;
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        opset.domain = r.Bytes();
        break;
      case 2:
        opset.version = r.Int64();
        break;
      default:
        r.Skip();
    }
  }
  return opset;
}

FunctionMsg ParseFunction(WireReader r) {
  FunctionMsg f;
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        f.name = r.Bytes();
        break;
      case 4:
        f.inputs.push_back(r.Bytes());
        break;
      case 5:
        f.outputs.push_back(r.Bytes());
        break;
      case 6:
        f.attributes.push_back(r.Bytes());
        break;
      case 7:
        f.nodes.push_back(ParseNode(WireReader(r, "node", Index(f.nodes))));
        break;
      case 9:
        f.opsets.push_back(ParseOpset(WireReader(r, "opset_import", Index(f.opsets))));
        break;
      case 10:
        f.domain = r.Bytes();
        break;
      case 11:
        f.default_attributes.push_back(
            ParseAttribute(WireReader(r, "attribute_proto", Index(f.default_attributes))));
        break;
      case 12:
        f.value_infos.push_back(ParseValueInfo(WireReader(r, "value_info", Index(f.value_infos))));
        break;
      case 13:
        f.overload = r.Bytes();
        break;
      default:
        r.Skip();
    }
  }
  return f;
}

DataMsg ParseDataMessage(WireReader r, DataMsg::Kind kind);

DataMsg TensorData(WireReader r) {
  DataMsg data;
  data.tensor = ParseTensor(r);
  data.name = data.tensor.name;
  return data;
}

// Fields of SequenceProto and OptionalProto that hold values have the same numbers.
void ParseItem(WireReader& r, DataMsg& data) {
  static constexpr DataMsg::Kind kKinds[] = {DataMsg::kTensor, DataMsg::kTensor, DataMsg::kSequence,
                                             DataMsg::kMap, DataMsg::kOptional};
  // SequenceProto: 3 tensors, 4 sparse, 5 sequences, 6 maps, 7 optionals; OptionalProto the same.
  const uint32_t field = r.field();
  if (field == 4) r.Fail("sparse tensors in data files are not supported");
  const DataMsg::Kind kind = kKinds[field - 3];
  WireReader item(r, "values", Index(data.items));
  data.items.push_back(kind == DataMsg::kTensor ? TensorData(item) : ParseDataMessage(item, kind));
}

void ParseMapField(WireReader& r, DataMsg& data) {
  switch (r.field()) {
    case 3:
      AppendVarints(r, data.int_keys);
      break;
    case 4:
      data.string_keys.push_back(r.Bytes());
      break;
    case 5:
      data.items = ParseDataMessage(WireReader(r, "values"), DataMsg::kSequence).items;
      break;
    default:
      r.Skip();
  }
}

DataMsg ParseDataMessage(WireReader r, DataMsg::Kind kind) {
  DataMsg data;
  data.kind = kind;
  while (r.Next()) {
    if (r.field() == 1) {
      data.name = r.Bytes();
    } else if (r.field() == 2) {
      data.elem_type = r.Int32();
    } else if (kind == DataMsg::kMap) {
      ParseMapField(r, data);
    } else if (r.field() >= 3 && r.field() <= 7) {
      ParseItem(r, data);
    } else {
      r.Skip();
    }
  }
  return data;
}

}  // namespace

const AttributeMsg* NodeMsg::Find(Text attribute) const {
  for (const AttributeMsg& a : attributes) {
    if (a.name == attribute) return &a;
  }
  return nullptr;
}

ModelMsg ParseModel(std::string_view bytes, std::string_view file) {
  WireReader r(bytes, file, "model");
  ModelMsg m;
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        m.ir_version = r.Int64();
        break;
      case 2:
        m.producer_name = r.Bytes();
        break;
      case 7:
        m.has_graph = true;
        m.graph = ParseGraph(WireReader(r, "graph"));
        break;
      case 8:
        m.opsets.push_back(ParseOpset(WireReader(r, "opset_import", Index(m.opsets))));
        break;
      case 25:
        m.functions.push_back(ParseFunction(WireReader(r, "functions", Index(m.functions))));
        break;
      default:
        r.Skip();
    }
  }
  return m;
}

DataMsg ParseData(std::string_view bytes, std::string_view file, DataMsg::Kind kind) {
  WireReader r(bytes, file, "value");
  return kind == DataMsg::kTensor ? TensorData(r) : ParseDataMessage(r, kind);
}

}  // namespace lathe::onnx
