#include "lathe/ir/op_def.h"
#include "lathe/support/error.h"
#include "src/frontend/onnx/importer.h"

namespace lathe::onnx {

namespace {

const char* KindName(AttrType type) {
  static constexpr const char* kNames[] = {"undefined",      "float",   "int",    "string",
                                           "tensor",         "graph",   "floats", "ints",
                                           "strings",        "tensors", "graphs", "sparse tensor",
                                           "sparse tensors", "type",    "types"};
  const auto i = static_cast<size_t>(type);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

AttrType ExpectedType(AttrKind kind) {
  switch (kind) {
    case AttrKind::kBool:
    case AttrKind::kInt:
    case AttrKind::kType:
      return AttrType::kInt;
    case AttrKind::kFloat:
      return AttrType::kFloat;
    case AttrKind::kStr:
      return AttrType::kString;
    case AttrKind::kInts:
      return AttrType::kInts;
    case AttrKind::kFloats:
      return AttrType::kFloats;
    case AttrKind::kStrs:
      return AttrType::kStrings;
    case AttrKind::kTensor:
      return AttrType::kTensor;
    default:
      return AttrType::kUndefined;
  }
}

const AttrDef* FindDef(const OpDef& def, Text name) {
  for (const AttrDef& attr : def.attributes) {
    if (attr.name == name) return &attr;
  }
  return nullptr;
}

// Element type 0, UNDEFINED, stands for an absent attribute (output_dtype of QuantizeLinear).
bool IsUndefinedType(const AttributeMsg& a, const AttrDef& def) {
  return def.kind == AttrKind::kType && def.optional && a.type == AttrType::kInt && a.i == 0;
}

bool IsRegion(const OpDef& def, Text name) {
  for (const RegionDef& region : def.regions) {
    if (region.name == name) return true;
  }
  return false;
}

std::string NamesOf(const OpDef& def) {
  std::string names;
  for (const AttrDef& attr : def.attributes) {
    names += names.empty() ? "" : ", ";
    names += attr.name;
  }
  return names.empty() ? "none" : names;
}

}  // namespace

Attribute Importer::ConvertAttribute(const AttributeMsg& a, const AttrDef& def,
                                     const NodeMsg& node) {
  // Without a kind to go by, the attribute says what it is.
  const bool any = ExpectedType(def.kind) == AttrType::kUndefined;
  const AttrType wanted = any ? a.type : ExpectedType(def.kind);
  if (a.type != wanted) {
    Fail(ErrorCode::kInvalidArgument, "onnx/attribute",
         StrCat(Operator(node), ": attribute ", Shown(a.name), " is of kind ", KindName(a.type),
                ", expected ", KindName(wanted)));
  }
  switch (wanted) {
    case AttrType::kInt:
      if (def.kind == AttrKind::kBool) return builder_.Attr(a.i != 0);
      if (def.kind == AttrKind::kType) {
        if (const auto element = ElementTypeFromOnnx(a.i)) {
          return TypeAttribute::Get(ElemType::Get(context_, *element));
        }
        Fail(ErrorCode::kInvalidArgument, "onnx/attribute",
             StrCat(Operator(node), ": attribute ", Shown(a.name), " is ", a.i,
                    ", which is not an element type"));
      }
      return builder_.Attr(a.i);
    case AttrType::kFloat:
      return builder_.Attr(static_cast<double>(a.f));
    case AttrType::kString:
      return builder_.Attr(a.s);
    case AttrType::kInts:
      return builder_.Attr(std::span<const int64_t>(a.ints));
    case AttrType::kFloats:
      return ArrayAttribute::Get(context_, std::span<const double>(a.floats));
    case AttrType::kStrings:
      return ArrayAttribute::Get(context_, std::span<const std::string>(std::vector<std::string>(
                                               a.strings.begin(), a.strings.end())));
    case AttrType::kTensor:
      if (a.made.is_defined()) return builder_.Attr(a.made);
      if (a.tensors.size() == 1) return builder_.Attr(DecodeTensor(*a.tensors[0], source_));
      break;
    case AttrType::kTypeProto:
      if (a.types.size() == 1) return TypeAttribute::Get(ConvertType(a.types[0], a.name));
      break;
    default:
      break;
  }
  Fail(ErrorCode::kUnsupported, "onnx/attribute",
       StrCat(Operator(node), ": attribute ", Shown(a.name), " of kind ", KindName(a.type),
              " is not supported"));
}

std::vector<NamedAttribute> Importer::Attributes(OpInfo info, const NodeMsg& node) {
  std::vector<NamedAttribute> result;
  const OpDef& def = *info.def();
  std::unordered_set<Text> seen;
  for (const AttributeMsg& a : node.attributes) {
    if (!seen.insert(a.name).second) {
      Fail(ErrorCode::kInvalidArgument, "onnx/attribute",
           StrCat(Operator(node), ": attribute ", Shown(a.name), " is given twice"));
    }
    if (IsRegion(def, a.name)) continue;
    const AttrDef* attr = FindDef(def, a.name);
    if (attr == nullptr) {
      Fail(ErrorCode::kUnsupported, "onnx/attribute",
           StrCat(Operator(node), ": attribute ", Shown(a.name), " is not known"),
           StrCat("known are: ", NamesOf(def)));
    }
    if (IsUndefinedType(a, *attr)) continue;
    result.push_back(builder_.Named(a.name, ConvertAttribute(a, *attr, node)));
  }
  for (const AttrDef& attr : def.attributes) {
    if (attr.optional || attr.default_text != nullptr || seen.count(attr.name) != 0) continue;
    Fail(ErrorCode::kInvalidArgument, "onnx/attribute",
         StrCat(Operator(node), ": attribute '", attr.name, "' is missing"));
  }
  return result;
}

}  // namespace lathe::onnx
