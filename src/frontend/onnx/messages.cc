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

// ---- fields: a number and where the value goes, whose type tells how it is read ----

void Take(WireReader& r, Text& to) { to = r.Bytes(); }
void Take(WireReader& r, int64_t& to) { to = r.Int64(); }
void Take(WireReader& r, int32_t& to) { to = r.Int32(); }
void Take(WireReader& r, std::vector<Text>& to) { to.push_back(r.Bytes()); }
void Take(WireReader& r, std::vector<int64_t>& to) { AppendVarints(r, to); }
void Take(WireReader& r, std::vector<double>& to) { AppendFloats(r, to); }

void Parse(WireReader& r, TextPair& entry);
void Parse(WireReader& r, TensorMsg& t);
void Parse(WireReader& r, SparseTensorMsg& s);
void Parse(WireReader& r, DimMsg& dim);
void Parse(WireReader& r, TypeMsg& type);
void Parse(WireReader& r, ValueInfoMsg& info);
void Parse(WireReader& r, AttributeMsg& a);
void Parse(WireReader& r, NodeMsg& n);
void Parse(WireReader& r, GraphMsg& g);
void Parse(WireReader& r, OpsetMsg& opset);
void Parse(WireReader& r, FunctionMsg& f);

template <class T>
T Parsed(WireReader r) {
  T message;
  Parse(r, message);
  return message;
}

template <class T>
void TakeMessage(WireReader& r, const char* name, T& to) {
  to = Parsed<T>(WireReader(r, name));
}
template <class T>
void TakeMessage(WireReader& r, const char* name, std::vector<T>& to) {
  to.push_back(Parsed<T>(WireReader(r, name, Index(to))));
}
template <class T>
void TakeMessage(WireReader& r, const char* name, std::vector<std::shared_ptr<const T>>& to) {
  to.push_back(std::make_shared<const T>(Parsed<T>(WireReader(r, name, Index(to)))));
}
/// As the only one of a list, of which the place names no number.
template <class T>
void TakeSingle(WireReader& r, const char* name, std::vector<T>& to) {
  to.push_back(Parsed<T>(WireReader(r, name)));
}
template <class T>
void TakeSingle(WireReader& r, const char* name, std::vector<std::shared_ptr<const T>>& to) {
  to.push_back(std::make_shared<const T>(Parsed<T>(WireReader(r, name))));
}

template <uint32_t kField, class F>
struct Handler {
  static constexpr uint32_t kNumber = kField;
  F take;
};
template <uint32_t kField, class F>
Handler<kField, F> On(F take) {
  return {std::move(take)};
}
template <uint32_t kField, class T>
auto Value(T& to) {
  return On<kField>([&to](WireReader& r) { Take(r, to); });
}
template <uint32_t kField>
auto Encoded(std::vector<Text>& to) {
  return On<kField>([&to](WireReader& r) { to.push_back(r.Encoded()); });
}
template <uint32_t kField, class T>
auto Message(const char* name, T& to) {
  return On<kField>([&to, name](WireReader& r) { TakeMessage(r, name, to); });
}
template <uint32_t kField, class T>
auto Single(const char* name, T& to) {
  return On<kField>([&to, name](WireReader& r) { TakeSingle(r, name, to); });
}

/// Reads a message; fields without a handler are skipped. `note` is told the number of each.
template <class Note, class... Handlers>
void ReadNoting(const Note& note, WireReader& r, const Handlers&... handlers) {
  while (r.Next()) {
    note(r.field());
    const bool taken = ((r.field() == Handlers::kNumber && (handlers.take(r), true)) || ...);
    if (!taken) r.Skip();
  }
}
template <class... Handlers>
void Read(WireReader& r, const Handlers&... handlers) {
  ReadNoting([](uint32_t) {}, r, handlers...);
}

// ---- messages ----

void Parse(WireReader& r, TextPair& entry) {
  Read(r, Value<1>(entry.first), Value<2>(entry.second));
}

void Parse(WireReader& r, TensorMsg& t) {
  const auto segment = [&](WireReader& field) {
    t.has_segment = true;
    field.Skip();
  };
  const auto raw = [&](WireReader& field) {
    t.has_raw = true;
    t.raw_data = field.Bytes();
  };
  Read(r, Value<1>(t.dims), Value<2>(t.data_type), On<3>(segment),
       Encoded<4>(t.typed[TensorMsg::kFloat]), Encoded<5>(t.typed[TensorMsg::kInt32]),
       Value<6>(t.strings), Encoded<7>(t.typed[TensorMsg::kInt64]), Value<8>(t.name), On<9>(raw),
       Encoded<10>(t.typed[TensorMsg::kDouble]), Encoded<11>(t.typed[TensorMsg::kUint64]),
       Message<13>("external_data", t.external_data),
       On<14>([&](WireReader& field) { t.external = field.Varint() == 1; }));
}

void Parse(WireReader& r, SparseTensorMsg& s) {
  Read(r, Message<1>("values", s.values), Message<2>("indices", s.indices), Value<3>(s.dims));
}

void Parse(WireReader& r, DimMsg& dim) {
  const auto value = [&](WireReader& field) {
    dim.has_value = true;
    dim.value = field.Int64();
  };
  Read(r, On<1>(value), Value<2>(dim.param), Value<3>(dim.denotation));
}

/// TypeProto.Tensor and TypeProto.SparseTensor.
void ParseTensorType(WireReader r, TypeMsg& type) {
  const auto shape = [&](WireReader& field) {
    type.has_shape = true;
    WireReader dims(field, "shape");
    Read(dims, Message<1>("dim", type.dims));
  };
  Read(r, Value<1>(type.elem_type), On<2>(shape));
}

template <uint32_t kField>
auto Inner(const char* name, TypeMsg& type) {
  return On<kField>([&type, name](WireReader& r) {
    type.inner = std::make_shared<TypeMsg>(Parsed<TypeMsg>(WireReader(r, name)));
  });
}

void ParseElementType(WireReader r, TypeMsg& type) { Read(r, Inner<1>("elem_type", type)); }

void ParseMapType(WireReader r, TypeMsg& type) {
  Read(r, Value<1>(type.elem_type), Inner<2>("value_type", type));
}

void Parse(WireReader& r, TypeMsg& type) {
  const auto kind = [&](TypeMsg::Kind is, const char* name, void (*parse)(WireReader, TypeMsg&)) {
    return [&type, is, name, parse](WireReader& field) {
      type.kind = is;
      parse(WireReader(field, name), type);
    };
  };
  const auto opaque = [&](WireReader& field) {
    type.kind = TypeMsg::kOpaque;
    field.Skip();
  };
  Read(r, On<1>(kind(TypeMsg::kTensor, "tensor_type", ParseTensorType)),
       On<4>(kind(TypeMsg::kSequence, "sequence_type", ParseElementType)),
       On<5>(kind(TypeMsg::kMap, "map_type", ParseMapType)), On<7>(opaque),
       On<8>(kind(TypeMsg::kSparse, "sparse_tensor_type", ParseTensorType)),
       On<9>(kind(TypeMsg::kOptional, "optional_type", ParseElementType)));
}

void Parse(WireReader& r, ValueInfoMsg& info) {
  Read(r, Value<1>(info.name), Message<2>("type", info.type), Value<3>(info.doc),
       Message<4>("metadata_props", info.metadata));
}

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

void Parse(WireReader& r, AttributeMsg& a) {
  uint32_t scalar_field = 0;
  uint32_t fields = 0;
  const auto scalar = [&](auto take) {
    return [&, take](WireReader& field) {
      scalar_field = field.field();
      take(field);
    };
  };
  const auto note = [&](uint32_t field) {
    if (field < 32) fields |= uint32_t{1} << field;
  };
  ReadNoting(note, r, Value<1>(a.name), On<2>(scalar([&](WireReader& f) { a.f = f.Float(); })),
             On<3>(scalar([&](WireReader& f) { a.i = f.Int64(); })),
             On<4>(scalar([&](WireReader& f) { a.s = f.Bytes(); })), Single<5>("t", a.tensors),
             Single<6>("g", a.graphs), Value<7>(a.floats), Value<8>(a.ints), Value<9>(a.strings),
             Message<10>("tensors", a.tensors), Message<11>("graphs", a.graphs),
             Single<14>("tp", a.types), Message<15>("type_protos", a.types),
             On<20>([&](WireReader& f) { a.type = static_cast<AttrType>(f.Int32()); }),
             Value<21>(a.ref_attr_name), Single<22>("sparse_tensor", a.sparse_tensors),
             Message<23>("sparse_tensors", a.sparse_tensors));
  if (a.type == AttrType::kUndefined) a.type = GuessType(a, scalar_field);
  CheckValueField(r, a, fields);
}

void Parse(WireReader& r, NodeMsg& n) {
  Read(r, Value<1>(n.inputs), Value<2>(n.outputs), Value<3>(n.name), Value<4>(n.op_type),
       Message<5>("attribute", n.attributes), Value<7>(n.domain), Value<8>(n.overload));
}

void Parse(WireReader& r, GraphMsg& g) {
  Read(r, Message<1>("node", g.nodes), Value<2>(g.name), Message<5>("initializer", g.initializers),
       Value<10>(g.doc), Message<11>("input", g.inputs), Message<12>("output", g.outputs),
       Message<13>("value_info", g.value_infos),
       Message<15>("sparse_initializer", g.sparse_initializers),
       Message<16>("metadata_props", g.metadata));
}

void Parse(WireReader& r, OpsetMsg& opset) {
  Read(r, Value<1>(opset.domain), Value<2>(opset.version));
}

void Parse(WireReader& r, FunctionMsg& f) {
  Read(r, Value<1>(f.name), Value<4>(f.inputs), Value<5>(f.outputs), Value<6>(f.attributes),
       Message<7>("node", f.nodes), Message<9>("opset_import", f.opsets), Value<10>(f.domain),
       Message<11>("attribute_proto", f.default_attributes),
       Message<12>("value_info", f.value_infos), Value<13>(f.overload));
}

DataMsg ParseDataMessage(WireReader r, DataMsg::Kind kind);

DataMsg TensorData(WireReader r) {
  DataMsg data;
  data.tensor = Parsed<TensorMsg>(r);
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
  const auto graph = [&](WireReader& field) {
    m.has_graph = true;
    TakeMessage(field, "graph", m.graph);
  };
  Read(r, Value<1>(m.ir_version), Value<2>(m.producer_name), Value<3>(m.producer_version),
       Value<4>(m.domain), Value<5>(m.version), Value<6>(m.doc), On<7>(graph),
       Message<8>("opset_import", m.opsets), Message<14>("metadata_props", m.metadata),
       Message<25>("functions", m.functions));
  return m;
}

DataMsg ParseData(std::string_view bytes, std::string_view file, DataMsg::Kind kind) {
  WireReader r(bytes, file, "value");
  return kind == DataMsg::kTensor ? TensorData(r) : ParseDataMessage(r, kind);
}

}  // namespace lathe::onnx
