#include <algorithm>

#include "lathe/ir/op_def.h"
#include "lathe/support/error.h"
#include "src/frontend/onnx/importer.h"

namespace lathe::onnx {

namespace {

// Exporters write all of these for "unknown".
bool IsOpen(const DimMsg& dim) {
  return dim.has_value ? dim.value <= 0 : dim.param.empty() || dim.param == "?";
}

bool IsAbsurd(const TypeMsg& type) {
  constexpr size_t kMaxRank = 256;
  constexpr size_t kMaxDimName = 1024;
  return type.dims.size() > kMaxRank ||
         std::any_of(type.dims.begin(), type.dims.end(),
                     [](const DimMsg& dim) { return dim.param.size() > kMaxDimName; });
}

}  // namespace

Dim Importer::ConvertDim(const DimMsg& dim) const {
  if (IsOpen(dim) || open_dims_.contains(dim.param)) return Dim::Unknown();
  if (!dim.has_value && options_.separate_dims) return Dim::Unknown();
  return dim.has_value ? Dim(dim.value) : Dim::Symbol(dim.param);
}

SymShape Importer::ConvertShape(const TypeMsg& type) const {
  if (!type.has_shape) return SymShape::Unranked();
  std::vector<Dim> dims;
  dims.reserve(type.dims.size());
  for (const DimMsg& dim : type.dims) dims.push_back(ConvertDim(dim));
  return SymShape(std::move(dims));
}

// No two of them need be the same size; as symbols they say so, and what follows from one is known.
Type Importer::NameOpenDims(Type type, Text input) {
  const auto tensor = type.dyn_cast<AnyTensorType>();
  if (!tensor || !tensor.has_rank()) return type;
  SymShape shape = tensor.shape();
  for (size_t axis = 0; axis < shape.rank(); ++axis) {
    if (!shape.dims[axis].is_unknown()) continue;
    std::string name = StrCat(input, ".", axis);
    while (named_dims_.contains(name)) name += "_";
    shape.dims[axis] = Dim::Symbol(name);
    open_dims_.insert(Keep(std::move(name)));
  }
  return tensor.With(tensor.element(), shape);
}

Type Importer::ConvertType(const TypeMsg& type, std::string_view name) {
  const auto element = [&] {
    if (const auto known = ElementTypeFromOnnx(type.elem_type)) return *known;
    Fail(ErrorCode::kInvalidArgument, "onnx/type",
         StrCat(Shown(name), " has element type ", type.elem_type, ", which is not known"));
  };
  const auto inner = [&]() -> Type {
    if (type.inner != nullptr) return ConvertType(*type.inner, name);
    Fail(ErrorCode::kInvalidArgument, "onnx/type", StrCat(Shown(name), " has no element type"));
  };
  if (IsAbsurd(type)) {
    Fail(ErrorCode::kLimit, "onnx/type",
         StrCat(Shown(name), " has more than 256 dims, or a dim with a name of more than 1 KiB"));
  }
  switch (type.kind) {
    case TypeMsg::kTensor:
      return VTensorType::Get(context_, ConvertShape(type), element());
    case TypeMsg::kSequence: {
      const Type elements[] = {inner()};
      return ListType::Get(context_, elements);
    }
    case TypeMsg::kOptional: {
      const Type elements[] = {inner()};
      return OptionalType::Get(context_, elements);
    }
    case TypeMsg::kMap: {
      const Type elements[] = {ElemType::Get(context_, element()), inner()};
      return DictType::Get(context_, elements);
    }
    case TypeMsg::kNone:
      Fail(ErrorCode::kInvalidArgument, "onnx/type", StrCat(Shown(name), " has no type"),
           "every input of a model needs one; run onnx.checker on it");
    default:
      Fail(ErrorCode::kUnsupported, "onnx/type",
           StrCat(Shown(name), " is a sparse tensor or an opaque value; these are not supported"));
  }
}

namespace {

std::string ListOf(std::span<const ElementType> elements) {
  std::string list;
  for (const ElementType element : elements)
    list += StrCat(list.empty() ? "" : ", ", Name(element));
  return list;
}

// The element type within lists and optionals; kUndefined if there is none to speak of.
ElementType ElementWithin(Type type) {
  while (type.isa<ListType>() || type.isa<OptionalType>()) {
    type = type.cast<ContainerType>().elements()[0];
  }
  return type.isa<AnyTensorType>() ? type.cast<AnyTensorType>().element() : ElementType::kUndefined;
}

const TypeRule& Innermost(const TypeRule& rule) {
  const TypeRule* at = &rule;
  while (at->inner != nullptr) at = at->inner;
  return *at;
}

bool HasKind(Type type, const TypeRule& rule) {
  switch (rule.kind) {
    case TypeRule::Kind::kList:
      return type.isa<ListType>();
    case TypeRule::Kind::kVariable:
    case TypeRule::Kind::kElement:
    case TypeRule::Kind::kTensor:
      return type.isa<AnyTensorType>();
    default:
      return true;
  }
}

// The element types that an operand may have; empty: any.
std::span<const ElementType> Allowed(const OpDef& def, const TypeRule& rule) {
  if (rule.kind == TypeRule::Kind::kVariable) return def.type_sets[rule.index].elements;
  if (rule.kind == TypeRule::Kind::kElement) return {&rule.element, 1};
  return {};
}

}  // namespace

void Importer::CheckOperandTypes(OpInfo info, const NodeMsg& node,
                                 const std::vector<Value>& operands) const {
  const OpDef& def = *info.def();
  std::vector<ElementType> variables(def.type_sets.size(), ElementType::kUndefined);
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i]) continue;
    const ValueDef& declared = def.operands[std::min(i, def.operands.size() - 1)];
    const Type type = operands[i].type();
    const auto is = [&] {
      return StrCat(Operator(node), ": input '", declared.name, "' is ", type.ToString());
    };
    if (!HasKind(type, declared.type)) {
      Fail(ErrorCode::kInvalidArgument, "onnx/input-type",
           StrCat(is(), ", which is the wrong kind of value"));
    }
    const TypeRule& rule = Innermost(declared.type);
    const ElementType element = ElementWithin(type);
    const auto allowed = Allowed(def, rule);
    if (element == ElementType::kUndefined || allowed.empty()) continue;
    if (std::find(allowed.begin(), allowed.end(), element) == allowed.end()) {
      const bool fixed = rule.kind == TypeRule::Kind::kElement;
      Fail(fixed ? ErrorCode::kInvalidArgument : ErrorCode::kUnsupported, "onnx/input-type",
           StrCat(is(), "; it may be ", ListOf(allowed)));
    }
    if (rule.kind != TypeRule::Kind::kVariable || declared.heterogeneous) continue;
    ElementType& bound = variables[rule.index];
    if (bound == ElementType::kUndefined) bound = element;
    if (bound != element) {
      Fail(ErrorCode::kInvalidArgument, "onnx/input-type",
           StrCat(is(), ", another one of the same type is ", Name(bound)),
           "insert a Cast, or fix the exporter");
    }
  }
}

void Importer::Fail(ErrorCode code, std::string id, std::string message, std::string hint) const {
  Error error(code, std::move(id), std::move(message));
  error.At(where_.empty() ? file_ : StrCat(file_, ": ", where_));
  if (!hint.empty()) error.Hint(std::move(hint));
  throw error;
}

}  // namespace lathe::onnx
