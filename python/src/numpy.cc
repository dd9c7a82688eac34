#include "python/src/numpy.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "lathe/support/error.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

struct NamedType {
  const char* dtype;
  ElementType element;
  const char* storage;  // null: numpy's own
};

constexpr std::array<NamedType, 27> kTypes = {{
    {"bool", ElementType::kBool, nullptr},
    {"int8", ElementType::kI8, nullptr},
    {"int16", ElementType::kI16, nullptr},
    {"int32", ElementType::kI32, nullptr},
    {"int64", ElementType::kI64, nullptr},
    {"uint8", ElementType::kU8, nullptr},
    {"uint16", ElementType::kU16, nullptr},
    {"uint32", ElementType::kU32, nullptr},
    {"uint64", ElementType::kU64, nullptr},
    {"float16", ElementType::kF16, nullptr},
    {"float32", ElementType::kF32, nullptr},
    {"float64", ElementType::kF64, nullptr},
    {"complex64", ElementType::kC64, nullptr},
    {"complex128", ElementType::kC128, nullptr},
    {"object", ElementType::kString, nullptr},
    {"int64", ElementType::kIndex, nullptr},
    {"bfloat16", ElementType::kBF16, "uint16"},
    {"float8_e4m3fn", ElementType::kF8E4M3FN, "uint8"},
    {"float8_e4m3fnuz", ElementType::kF8E4M3FNUZ, "uint8"},
    {"float8_e5m2", ElementType::kF8E5M2, "uint8"},
    {"float8_e5m2fnuz", ElementType::kF8E5M2FNUZ, "uint8"},
    {"float8_e8m0fnu", ElementType::kF8E8M0, "uint8"},
    {"float4_e2m1fn", ElementType::kF4E2M1, "uint8"},
    {"int4", ElementType::kI4, "int8"},
    {"uint4", ElementType::kU4, "int8"},
    {"int2", ElementType::kI2, "int8"},
    {"uint2", ElementType::kU2, "int8"},
}};

nb::object MlType(const NamedType& type) {
  try {
    return nb::module_::import_("ml_dtypes").attr(type.dtype);
  } catch (nb::python_error& error) {
    throw Error(ErrorCode::kUnsupported, "unsupported/ml-dtypes",
                StrCat("numpy has no ", Name(type.element), "; ml_dtypes has"))
        .Hint("pip install ml_dtypes");
  }
}

ArrayType MakeArrayType(ElementType element) {
  const auto* type = std::ranges::find(kTypes, element, &NamedType::element);
  if (type == kTypes.end()) {
    throw Error(ErrorCode::kType, "type/python", StrCat(Name(element), " has no numpy type"));
  }
  const nb::handle make = Numpy("dtype");
  if (type->storage == nullptr) return {make(type->dtype), {}};
  return {make(type->storage), make(MlType(*type))};
}

// Never freed: the interpreter may be gone when the process ends.
struct Known {
  nb::ft_mutex mutex;
  std::map<ElementType, ArrayType> types;
  std::map<std::string, nb::object, std::less<>> functions;
};
Known& KnownTypes() {
  static Known* known = new Known;
  return *known;
}

}  // namespace

ElementType ElementOf(nb::handle dtype) {
  const auto kind = nb::cast<std::string>(dtype.attr("kind"));
  if (kind == "U" || kind == "S" || kind == "T" || kind == "O") return ElementType::kString;
  const auto name = nb::cast<std::string>(dtype.attr("name"));
  const auto* type =
      std::ranges::find_if(kTypes, [&](const NamedType& t) { return name == t.dtype; });
  return type == kTypes.end() ? ElementType::kUndefined : type->element;
}

const ArrayType& ArrayTypeOf(ElementType element) {
  Known& known = KnownTypes();
  {
    const nb::ft_lock_guard lock(known.mutex);
    if (const auto it = known.types.find(element); it != known.types.end()) return it->second;
  }
  ArrayType made = MakeArrayType(element);
  const nb::ft_lock_guard lock(known.mutex);
  return known.types.try_emplace(element, std::move(made)).first->second;
}

nb::handle Numpy(const char* function) {
  Known& known = KnownTypes();
  {
    const nb::ft_lock_guard lock(known.mutex);
    if (const auto it = known.functions.find(function); it != known.functions.end()) {
      return it->second;
    }
  }
  nb::object found = nb::module_::import_("numpy").attr(function);
  const nb::ft_lock_guard lock(known.mutex);
  return known.functions.try_emplace(function, std::move(found)).first->second;
}

bool IsArray(nb::handle object) {
  static const nb::handle ndarray = Numpy("ndarray");
  return PyObject_TypeCheck(object.ptr(), reinterpret_cast<PyTypeObject*>(ndarray.ptr())) != 0;
}

}  // namespace lathe::python
