#include "python/src/attributes.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <vector>

#include "lathe/support/error.h"
#include "python/src/numpy.h"
#include "python/src/ports.h"
#include "python/src/values.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

[[noreturn]] void Refuse(nb::handle object, const char* wanted, const std::string& what) {
  throw Error(ErrorCode::kType, "type/python",
              StrCat(what, " takes ", wanted, ", not ", nb::cast<std::string>(nb::repr(object))));
}

bool IsBool(nb::handle object) {
  if (PyBool_Check(object.ptr())) return true;
  const nb::handle type = object.type();  // by attributes: types are opaque to the stable ABI
  const auto name = nb::cast<std::string>(type.attr("__name__"));
  return (name == "bool" || name == "bool_") &&
         nb::cast<std::string>(nb::str(type.attr("__module__"))) == "numpy";
}

// Also integers and floats of numpy.
bool IsInt(nb::handle object) { return !IsBool(object) && PyIndex_Check(object.ptr()) != 0; }
bool IsNumber(nb::handle object) {
  return !IsBool(object) && !PyComplex_Check(object.ptr()) && PyNumber_Check(object.ptr()) != 0 &&
         !IsArray(object);
}
bool IsText(nb::handle object) { return PyUnicode_Check(object.ptr()) != 0; }

int64_t IntOf(nb::handle object) {
  const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (overflow == 0) return value;
  throw Error(ErrorCode::kType, "type/python",
              StrCat(nb::cast<std::string>(nb::str(index)), " is not an integer of 64 bits"));
}

double FloatOf(nb::handle object) {
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}

// A list, a tuple, or an array.
bool IsList(nb::handle object) {
  return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()) ||
         (IsArray(object) && nb::cast<int>(object.attr("ndim")) == 1);
}

template <class T>
Attribute ListOf(IrContext& context, nb::handle object, AttrKind kind, const std::string& what,
                 bool (*fits)(nb::handle), T (*convert)(nb::handle)) {
  if (!IsList(object)) Refuse(object, Describe(kind), what);
  std::vector<T> values;
  for (const nb::handle item : object) {
    if (!fits(item)) Refuse(object, Describe(kind), what);
    values.push_back(convert(item));
  }
  return ArrayAttribute::Get(context, std::span<const T>(values));
}

Attribute TensorOf(IrContext& context, nb::handle object, const std::string& what) {
  return TensorAttribute::Get(context,
                              ArrayInput(object, ElementType::kUndefined, what).ToTensor());
}

Attribute DictOf(IrContext& context, nb::handle object, const std::string& what) {
  std::vector<NamedAttribute> entries;
  for (const auto& [key, item] : nb::borrow<nb::dict>(object)) {
    if (!IsText(key)) Refuse(object, "a dict with keys of text", what);
    entries.push_back({StrAttribute::Get(context, nb::cast<std::string>(key)),
                       AttributeOf(context, item, nullptr, what)});
  }
  return DictionaryAttribute::Get(context, entries);
}

Attribute Guess(IrContext& context, nb::handle object, const std::string& what) {
  if (IsBool(object)) return BoolAttribute::Get(context, nb::cast<bool>(nb::bool_(object)));
  if (IsText(object)) return StrAttribute::Get(context, nb::cast<std::string>(object));
  if (PyDict_Check(object.ptr())) return DictOf(context, object, what);
  if (IsArray(object)) return TensorOf(context, object, what);
  if (IsInt(object)) return IntAttribute::Get(context, IntOf(object));
  if (IsNumber(object)) return FloatAttribute::Get(context, FloatOf(object));
  if (!IsList(object)) Refuse(object, "a bool, a number, text, an array, a list or a dict", what);
  std::vector<Attribute> items;
  for (const nb::handle item : object) items.push_back(Guess(context, item, what));
  return ArrayAttribute::Get(context, items);
}

Attribute Declared(IrContext& context, nb::handle object, AttrKind kind, const std::string& what) {
  const auto need = [&](bool fits) {
    if (!fits) Refuse(object, Describe(kind), what);
  };
  switch (kind) {
    case AttrKind::kBool:
      need(IsBool(object) || IsInt(object));
      return BoolAttribute::Get(context, nb::cast<bool>(nb::bool_(object)));
    case AttrKind::kInt:
      need(IsInt(object) || IsBool(object));
      return IntAttribute::Get(context, IntOf(object));
    case AttrKind::kFloat:
      need(IsNumber(object));
      return FloatAttribute::Get(context, FloatOf(object));
    case AttrKind::kStr:
      need(IsText(object));
      return StrAttribute::Get(context, nb::cast<std::string>(object));
    case AttrKind::kInts:
      return ListOf<int64_t>(context, object, kind, what, IsInt, IntOf);
    case AttrKind::kFloats:
      return ListOf<double>(context, object, kind, what, IsNumber, FloatOf);
    case AttrKind::kStrs:
      return ListOf<std::string>(context, object, kind, what, IsText,
                                 [](nb::handle text) { return nb::cast<std::string>(text); });
    case AttrKind::kType:
      return TypeAttribute::Get(ElemType::Get(context, ElementTypeOf(object)));
    case AttrKind::kTensor:
      return TensorOf(context, object, what);
    case AttrKind::kDict:
      need(PyDict_Check(object.ptr()));
      return DictOf(context, object, what);
    default:
      return Guess(context, object, what);
  }
}

}  // namespace

const char* Describe(AttrKind kind) {
  switch (kind) {
    case AttrKind::kBool:
      return "a bool";
    case AttrKind::kInt:
      return "an integer";
    case AttrKind::kFloat:
      return "a number";
    case AttrKind::kStr:
      return "a str";
    case AttrKind::kInts:
      return "a list of integers";
    case AttrKind::kFloats:
      return "a list of numbers";
    case AttrKind::kStrs:
      return "a list of str";
    case AttrKind::kType:
      return "an element type";
    case AttrKind::kTensor:
      return "an array";
    case AttrKind::kArray:
      return "a list";
    case AttrKind::kDict:
      return "a dict";
    default:
      return "an object";
  }
}

nb::object AttributeObject(Attribute a) {
  if (const auto b = a.dyn_cast<BoolAttribute>()) return nb::bool_(b.value());
  if (const auto i = a.dyn_cast<IntAttribute>()) return nb::int_(i.value());
  if (const auto f = a.dyn_cast<FloatAttribute>()) return nb::float_(f.value());
  if (const auto s = a.dyn_cast<StrAttribute>()) return nb::cast(s.value());
  if (const auto d = a.dyn_cast<DimAttribute>()) return DimObject(d.value());
  if (const auto t = a.dyn_cast<TensorAttribute>()) return ObjectOf(RtValue(t.value()));
  if (const auto list = a.dyn_cast<ArrayAttribute>()) {
    nb::list items;
    for (const Attribute item : list.values()) items.append(AttributeObject(item));
    return items;
  }
  if (const auto dict = a.dyn_cast<DictionaryAttribute>()) {
    nb::dict items;
    for (const NamedAttribute& entry : dict.entries()) {
      items[nb::cast(entry.name.value())] = AttributeObject(entry.value);
    }
    return items;
  }
  return nb::cast(a.ToString());
}

Attribute AttributeOf(IrContext& context, nb::handle object, const AttrDef* def,
                      const std::string& what) {
  return def == nullptr ? Guess(context, object, what) : Declared(context, object, def->kind, what);
}

ElementType ElementTypeOf(nb::handle object) {
  if (IsText(object)) {
    const auto name = nb::cast<std::string>(object);
    if (name == "str") return ElementType::kString;
    if (const auto element = ParseElementType(name)) return *element;
  }
  ElementType element = ElementType::kUndefined;
  try {
    element = ElementOf(Numpy("dtype")(object));
  } catch (nb::python_error&) {  // numpy does not know it either
  }
  if (element != ElementType::kUndefined) return element;
  throw Error(ErrorCode::kType, "type/python",
              StrCat(nb::cast<std::string>(nb::repr(object)), " is not an element type"))
      .Hint("it is 'f32', 'i64', 'bool', 'str', ..., or a dtype of numpy or ml_dtypes");
}

}  // namespace lathe::python
