#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lathe/support/element_type.h"

/// The declaration of an op as data: what the YAML entry says. Emitted by the op generator as
/// constant tables and read by the verifier, the builders, the docs and the test samplers.
namespace lathe {

/// A named set of element types, such as T of `nn.conv`.
struct TypeSetDef {
  const char* name;                       ///< "T"
  std::span<const ElementType> elements;  ///< allowed, in declaration order
};

/// Which type an operand or a result has.
struct TypeRule {
  enum class Kind : uint8_t {
    kAny,       ///< any type at all
    kTensor,    ///< a tensor of any element type
    kVariable,  ///< a tensor whose element type is the type variable `index`
    kElement,   ///< a tensor of `element`
    kFromAttr,  ///< a tensor whose element type attribute `index` names (results only)
    kList,      ///< list of tensors; element rule as `inner`
    kOptional,  ///< optional of `inner`
    kToken,     ///< a control dependency
  };
  Kind kind = Kind::kAny;
  ElementType element = ElementType::kUndefined;
  uint16_t index = 0;
  const TypeRule* inner = nullptr;
};

struct ValueDef {
  const char* name;
  TypeRule type;
  bool optional = false;       ///< may be absent (null operand, or `none` result)
  bool variadic = false;       ///< only the last operand or result; `min_count` or more
  bool heterogeneous = false;  ///< variadic entries need not share the type variable
  uint16_t min_count = 0;
  const char* doc = "";
};

enum class AttrKind : uint8_t {
  kBool,
  kInt,
  kFloat,
  kStr,
  kInts,
  kFloats,
  kStrs,
  kType,    ///< an element type such as f32
  kTensor,  ///< small dense tensor
  kArray,
  kDict,
  kAny,
};

struct AttrDef {
  const char* name;
  AttrKind kind;
  bool optional = false;               ///< may be absent and has no default
  const char* default_text = nullptr;  ///< in the text form, e.g. "[1, 1]"; filled in when absent
  std::span<const char* const> one_of = {};  ///< allowed strings; empty: any
  bool has_min = false;                      ///< integers (each of them): lower bound `min`
  int64_t min = 0;
  const char* doc = "";
};

struct RegionDef {
  const char* name;
  const char* doc = "";
};

struct OpDef {
  const char* name;  ///< "nn.conv"
  const char* summary;
  const char* description;
  std::span<const TypeSetDef> type_sets;
  std::span<const ValueDef> operands;
  std::span<const ValueDef> results;
  std::span<const AttrDef> attributes;  ///< the required attributes, in order
  std::span<const RegionDef> regions;
  const char* onnx_name;    ///< "Conv", or null if the op has no ONNX counterpart
  const char* onnx_domain;  ///< "" is ai.onnx
  int onnx_since;           ///< opset whose semantics the op follows
};

}  // namespace lathe
