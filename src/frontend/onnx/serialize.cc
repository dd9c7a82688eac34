#include "src/frontend/onnx/messages.h"
#include "src/frontend/onnx/wire.h"

namespace lathe::onnx {

namespace {

struct ShapeOf {
  const TypeMsg& type;
};
// The message inside the `value` of a TypeProto.
struct TypeBody {
  const TypeMsg& type;
};

void Put(WireWriter& w, const TensorMsg& t);
void Put(WireWriter& w, const SparseTensorMsg& s);
void Put(WireWriter& w, const DimMsg& dim);
void Put(WireWriter& w, const ShapeOf& shape);
void Put(WireWriter& w, const TypeMsg& type);
void Put(WireWriter& w, const TypeBody& body);
void Put(WireWriter& w, const ValueInfoMsg& info);
void Put(WireWriter& w, const AttributeMsg& a);
void Put(WireWriter& w, const NodeMsg& n);
void Put(WireWriter& w, const GraphMsg& g);
void Put(WireWriter& w, const OpsetMsg& opset);
void Put(WireWriter& w, const FunctionMsg& f);
void Put(WireWriter& w, const DataMsg& data);

void PutPackedInts(WireWriter& w, uint32_t field, const std::vector<int64_t>& values) {
  if (values.empty()) return;
  WireWriter run;
  for (const int64_t value : values) run.RawVarint(static_cast<uint64_t>(value));
  w.Bytes(field, run.out());
}

void PutTexts(WireWriter& w, uint32_t field, const std::vector<Text>& texts) {
  for (const Text text : texts) w.Bytes(field, text);
}

// Runs of one field, joined: packed and unpacked elements are encoded alike.
void PutTyped(WireWriter& w, uint32_t field, const std::vector<Text>& runs) {
  if (runs.empty()) return;
  std::string joined;
  for (const Text run : runs) joined.append(run);
  w.Bytes(field, joined);
}

void PutEntry(WireWriter& w, uint32_t field, const TextPair& entry) {
  WireWriter e;
  e.Bytes(1, entry.first);
  e.Bytes(2, entry.second);
  w.Bytes(field, e.out());
}

void Put(WireWriter& w, const TensorMsg& t) {
  PutPackedInts(w, 1, t.dims);
  w.Int(2, t.data_type);
  PutTyped(w, 4, t.typed[TensorMsg::kFloat]);
  PutTyped(w, 5, t.typed[TensorMsg::kInt32]);
  PutTexts(w, 6, t.strings);
  PutTyped(w, 7, t.typed[TensorMsg::kInt64]);
  w.Optional(8, t.name);
  if (t.has_raw) w.Bytes(9, t.raw_data);
  PutTyped(w, 10, t.typed[TensorMsg::kDouble]);
  PutTyped(w, 11, t.typed[TensorMsg::kUint64]);
  for (const TextPair& entry : t.external_data) PutEntry(w, 13, entry);
  if (t.external) w.Int(14, 1);
}

template <class Message>
void PutMessage(WireWriter& w, uint32_t field, const Message& message) {
  WireWriter inner;
  Put(inner, message);
  w.Bytes(field, inner.out());
}

template <class Message>
void PutMessages(WireWriter& w, uint32_t field, const std::vector<Message>& messages) {
  for (const Message& message : messages) PutMessage(w, field, message);
}

void Put(WireWriter& w, const SparseTensorMsg& s) {
  PutMessage(w, 1, s.values);
  PutMessage(w, 2, s.indices);
  PutPackedInts(w, 3, s.dims);
}

void Put(WireWriter& w, const DimMsg& dim) {
  if (dim.has_value) w.Int(1, dim.value);
  w.Optional(2, dim.param);
  w.Optional(3, dim.denotation);
}

void Put(WireWriter& w, const ShapeOf& shape) { PutMessages(w, 1, shape.type.dims); }

void Put(WireWriter& w, const TypeBody& body) {
  const TypeMsg& type = body.type;
  const bool has_number =
      type.kind == TypeMsg::kTensor || type.kind == TypeMsg::kSparse || type.kind == TypeMsg::kMap;
  if (has_number) w.Int(1, type.elem_type);
  if (type.has_shape) PutMessage(w, 2, ShapeOf{type});
  if (type.inner) PutMessage(w, type.kind == TypeMsg::kMap ? 2 : 1, *type.inner);
}

void Put(WireWriter& w, const TypeMsg& type) {
  static constexpr uint32_t kFields[] = {0, 1, 4, 5, 9, 8, 7};
  if (type.kind != TypeMsg::kNone) PutMessage(w, kFields[type.kind], TypeBody{type});
}

void Put(WireWriter& w, const ValueInfoMsg& info) {
  w.Bytes(1, info.name);
  if (info.type.kind != TypeMsg::kNone) PutMessage(w, 2, info.type);
  w.Optional(3, info.doc);
  for (const TextPair& entry : info.metadata) PutEntry(w, 4, entry);
}

template <class Message>
void PutShared(WireWriter& w, uint32_t one, uint32_t many, bool is_one,
               const std::vector<std::shared_ptr<const Message>>& list) {
  for (const auto& message : list) PutMessage(w, is_one ? one : many, *message);
}

void PutFloats(WireWriter& w, uint32_t field, const std::vector<double>& values) {
  for (const double value : values) w.Float(field, static_cast<float>(value));
}

void Put(WireWriter& w, const AttributeMsg& a) {
  w.Bytes(1, a.name);
  if (a.type == AttrType::kFloat && a.ref_attr_name.empty()) w.Float(2, a.f);
  if (a.type == AttrType::kInt && a.ref_attr_name.empty()) w.Int(3, a.i);
  if (a.type == AttrType::kString && a.ref_attr_name.empty()) w.Bytes(4, a.s);
  PutShared(w, 5, 10, a.type == AttrType::kTensor, a.tensors);
  PutShared(w, 6, 11, a.type == AttrType::kGraph, a.graphs);
  PutFloats(w, 7, a.floats);
  for (const int64_t value : a.ints) w.Int(8, value);
  PutTexts(w, 9, a.strings);
  for (const TypeMsg& type : a.types) {
    PutMessage(w, a.type == AttrType::kTypeProto ? 14 : 15, type);
  }
  w.Int(20, static_cast<int64_t>(a.type));
  w.Optional(21, a.ref_attr_name);
  PutShared(w, 22, 23, a.type == AttrType::kSparseTensor, a.sparse_tensors);
}

void Put(WireWriter& w, const NodeMsg& n) {
  PutTexts(w, 1, n.inputs);
  PutTexts(w, 2, n.outputs);
  w.Optional(3, n.name);
  w.Bytes(4, n.op_type);
  PutMessages(w, 5, n.attributes);
  w.Optional(7, n.domain);
  w.Optional(8, n.overload);
}

void Put(WireWriter& w, const GraphMsg& g) {
  PutMessages(w, 1, g.nodes);
  w.Bytes(2, g.name);
  PutMessages(w, 5, g.initializers);
  w.Optional(10, g.doc);
  PutMessages(w, 11, g.inputs);
  PutMessages(w, 12, g.outputs);
  PutMessages(w, 13, g.value_infos);
  PutMessages(w, 15, g.sparse_initializers);
  for (const TextPair& entry : g.metadata) PutEntry(w, 16, entry);
}

void Put(WireWriter& w, const OpsetMsg& opset) {
  w.Bytes(1, opset.domain);
  w.Int(2, opset.version);
}

void Put(WireWriter& w, const FunctionMsg& f) {
  w.Bytes(1, f.name);
  PutTexts(w, 4, f.inputs);
  PutTexts(w, 5, f.outputs);
  PutTexts(w, 6, f.attributes);
  PutMessages(w, 7, f.nodes);
  PutMessages(w, 9, f.opsets);
  w.Bytes(10, f.domain);
  PutMessages(w, 11, f.default_attributes);
  PutMessages(w, 12, f.value_infos);
  w.Optional(13, f.overload);
}

void PutMapValues(WireWriter& w, const DataMsg& map) {
  DataMsg values;
  values.kind = DataMsg::kSequence;
  values.elem_type = 1;
  values.items = map.items;
  PutMessage(w, 5, values);
}

void Put(WireWriter& w, const DataMsg& data) {
  if (data.kind == DataMsg::kTensor) return Put(w, data.tensor);
  w.Optional(1, data.name);
  w.Int(2, data.elem_type);
  if (data.kind == DataMsg::kMap) {
    PutPackedInts(w, 3, data.int_keys);
    PutTexts(w, 4, data.string_keys);
    return PutMapValues(w, data);
  }
  // Field numbers by DataMsg::Kind of the item.
  static constexpr uint32_t kFields[] = {3, 5, 7, 6};
  for (const DataMsg& item : data.items) PutMessage(w, kFields[item.kind], item);
}

}  // namespace

std::string Serialize(const ModelMsg& model) {
  WireWriter w;
  w.Int(1, model.ir_version);
  w.Optional(2, model.producer_name);
  w.Optional(3, model.producer_version);
  w.Optional(4, model.domain);
  if (model.version != 0) w.Int(5, model.version);
  w.Optional(6, model.doc);
  PutMessage(w, 7, model.graph);
  PutMessages(w, 8, model.opsets);
  for (const TextPair& entry : model.metadata) PutEntry(w, 14, entry);
  PutMessages(w, 25, model.functions);
  return w.Take();
}

std::string Serialize(const TensorMsg& tensor) {
  WireWriter w;
  Put(w, tensor);
  return w.Take();
}

std::string Serialize(const DataMsg& data) {
  WireWriter w;
  Put(w, data);
  return w.Take();
}

}  // namespace lathe::onnx
