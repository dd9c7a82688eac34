#include <algorithm>
#include <numeric>

#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/attention.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/op_def.h"
#include "lathe/support/text.h"
#include "src/frontend/onnx/exporter.h"
#include "src/frontend/onnx/tensor_codec.h"

namespace lathe::onnx {

namespace {

// Attributes that nn has beyond ONNX: a true one transposes the last two axes of an input.
struct TransposeAttr {
  const char* op;
  const char* attribute;
  size_t input;
};
constexpr TransposeAttr kTransposes[] = {{nn::kMatmul, "transpose_x", 0},
                                         {nn::kMatmul, "transpose_y", 1}};

const TransposeAttr* FindTranspose(const Operation* op, std::string_view attribute) {
  for (const TransposeAttr& t : kTransposes) {
    if (op->name() == t.op && attribute == t.attribute) return &t;
  }
  return nullptr;
}

// Names of sizes say nothing that shapes do not say again. What rows without a key give is not
// said by ONNX.
bool IsLeftOut(const Operation* op, std::string_view attribute) {
  return (op->isa<cf::WhileOp>() && attribute == cf::WhileOp::kSizesAttr) ||
         (op->isa<nn::AttentionOp>() && attribute == nn::AttentionOp::kNanRowsAttr);
}

// Newest versions that only added element types or an attribute: without these, the older one means
// the same. Types that we do not have (the 6-bit floats) do not count. Source: Changelog.md of
// ONNX.
constexpr ElementType kBFloat[] = {ElementType::kBF16};
constexpr ElementType kShortFloats[] = {ElementType::kBF16, ElementType::kF16};
constexpr ElementType kAllButF32[] = {ElementType::kBF16, ElementType::kF16, ElementType::kF64};
constexpr ElementType kFloats[] = {ElementType::kBF16, ElementType::kF16, ElementType::kF32,
                                   ElementType::kF64};
constexpr ElementType kSigned[] = {ElementType::kI8, ElementType::kI16, ElementType::kI32,
                                   ElementType::kI64};
constexpr ElementType kRare[] = {
    ElementType::kBF16,   ElementType::kF8E4M3FN,   ElementType::kF8E4M3FNUZ,
    ElementType::kF8E5M2, ElementType::kF8E5M2FNUZ, ElementType::kF8E8M0,
    ElementType::kF4E2M1, ElementType::kI4,         ElementType::kU4,
    ElementType::kI2,     ElementType::kU2};
struct OlderVersion {
  std::string_view op;
  int opset;
  std::span<const ElementType> added_types = {};
  const char* added_attribute = nullptr;
};
constexpr OlderVersion kOlderVersions[] = {
    {"Cast", 25},
    {"QuantizeLinear", 25},
    {"DequantizeLinear", 25},
    {"DepthToSpace", 13},
    {"ReduceLogSum", 18},
    {"ReduceLogSumExp", 18},
    {"Compress", 11, kBFloat},
    {"Einsum", 12, kBFloat},
    {"OneHot", 11, kBFloat},
    {"ReverseSequence", 10, kBFloat},
    {"Unique", 11, kBFloat},
    {"Celu", 12, kAllButF32},
    {"Range", 11, kShortFloats, "stash_type"},
    {"SpaceToDepth", 13, {}, "mode"},
    {"Mod", 13, kFloats},
    {"BitShift", 11, kSigned},
    {"Optional", 15, kRare},
    {"OptionalGetElement", 18, kRare},
    {"OptionalHasElement", 18, kRare},
};

bool HasType(const Operation* op, std::span<const ElementType> types) {
  const auto is_one = [&](Value value) {
    Type type = value ? value.type() : Type();
    while (type.isa<ContainerType>()) type = type.cast<ContainerType>().elements().back();
    if (!type.isa<AnyTensorType>()) return false;
    const ElementType element = type.cast<AnyTensorType>().element();
    return std::find(types.begin(), types.end(), element) != types.end();
  };
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (is_one(op->operand(i))) return true;
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (is_one(op->result(i))) return true;
  }
  return false;
}

bool IsDefault(const Operation* op, size_t i, Attribute value) {
  return op->info().impl()->default_value(i) == value;
}

void SetList(const ArrayAttribute& array, AttrKind kind, AttributeMsg& out, bool& ok,
             std::deque<std::string>& kept) {
  if (const auto ints = array.AsInts();
      ints && kind != AttrKind::kFloats && kind != AttrKind::kStrs) {
    out.type = AttrType::kInts;
    out.ints = *ints;
  } else if (const auto floats = array.AsFloats(); floats && kind != AttrKind::kStrs) {
    out.type = AttrType::kFloats;
    out.floats = *floats;
  } else if (const auto strings = array.AsStrings()) {
    out.type = AttrType::kStrings;
    for (const std::string& s : *strings) out.strings.push_back(kept.emplace_back(s));
  } else {
    ok = false;
  }
}

}  // namespace

Text Exporter::RegionAttribute(std::string_view region) {
  if (region == "then") return "then_branch";
  if (region == "else") return "else_branch";
  return region;
}

bool Exporter::ConvertAttribute(Attribute value, const AttrDef& def, AttributeMsg& out) {
  out.name = def.name;
  bool ok = true;
  if (const auto b = value.dyn_cast<BoolAttribute>()) {
    out.type = AttrType::kInt;
    out.i = b.value() ? 1 : 0;
  } else if (const auto i = value.dyn_cast<lathe::IntAttribute>()) {
    out.type = def.kind == AttrKind::kFloat ? AttrType::kFloat : AttrType::kInt;
    out.i = i.value();
    out.f = static_cast<float>(i.value());
  } else if (const auto f = value.dyn_cast<FloatAttribute>()) {
    out.type = AttrType::kFloat;
    out.f = static_cast<float>(f.value());
  } else if (const auto s = value.dyn_cast<StrAttribute>()) {
    out.type = AttrType::kString;
    out.s = s.value();
  } else if (const auto array = value.dyn_cast<ArrayAttribute>()) {
    SetList(array, def.kind, out, ok, kept_);
  } else if (const auto tensor = value.dyn_cast<TensorAttribute>()) {
    out.type = AttrType::kTensor;
    out.tensors.push_back(std::make_shared<TensorMsg>(EncodeTensor(tensor.value(), {})));
  } else if (const auto type = value.dyn_cast<TypeAttribute>()) {
    const auto element = type.value().dyn_cast<ElemType>();
    out.type = element ? AttrType::kInt : AttrType::kTypeProto;
    if (element) {
      out.i = static_cast<int64_t>(element.element());
    } else {
      out.types.push_back(ConvertType(type.value()));
    }
  } else {
    ok = false;
  }
  return ok;
}

int Exporter::OpsetNeeded(const Operation* op, const NodeMsg& node) {
  const int since = op->info().def()->onnx_since;
  if (!node.domain.empty()) return since;
  for (const OlderVersion& older : kOlderVersions) {
    if (older.op != node.op_type || HasType(op, older.added_types)) continue;
    const bool plain =
        older.added_attribute == nullptr || node.Find(older.added_attribute) == nullptr;
    return plain ? std::min(since, older.opset) : since;
  }
  return since;
}

void Exporter::ExportAttributes(Operation* op, NodeMsg& node, GraphMsg& graph) {
  const auto defs = op->info().def()->attributes;
  for (size_t i = 0; i < defs.size(); ++i) {
    const Attribute value = op->attribute(defs[i].name);
    if (!value || IsDefault(op, i, value) || IsLeftOut(op, defs[i].name)) continue;
    if (const TransposeAttr* transpose = FindTranspose(op, defs[i].name)) {
      ExportTranspose(op, node, transpose->input, graph);
      continue;
    }
    AttributeMsg a;
    if (!ConvertAttribute(value, defs[i], a)) {
      return Refuse(op, StrCat("has attribute '", defs[i].name, "', which ONNX cannot hold"));
    }
    node.attributes.push_back(std::move(a));
  }
}

void Exporter::ExportTranspose(Operation* op, NodeMsg& node, size_t input, GraphMsg& graph) {
  const auto type = op->operand(input).type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank() || type.rank() < 2) {
    return Refuse(op, "transposes an operand of unknown rank");
  }
  AttributeMsg perm;
  perm.name = "perm";
  perm.type = AttrType::kInts;
  perm.ints.resize(type.rank());
  std::iota(perm.ints.begin(), perm.ints.end(), 0);
  std::swap(perm.ints[type.rank() - 1], perm.ints[type.rank() - 2]);
  NodeMsg transpose;
  transpose.op_type = "Transpose";
  transpose.inputs = {node.inputs[input]};
  transpose.outputs = {FreshName()};
  transpose.attributes.push_back(std::move(perm));
  node.inputs[input] = transpose.outputs[0];
  graph.nodes.push_back(std::move(transpose));
}

}  // namespace lathe::onnx
