#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

#include "lathe/support/element_type.h"

/// What is used of numpy and ml_dtypes.
namespace lathe::python {

/// The element type of a numpy.dtype in native byte order, by its name: "float32", "bfloat16" (of
/// ml_dtypes). Undefined for those that Lathe has none for; strings of any kind are kString.
ElementType ElementOf(nanobind::handle dtype);

/// How elements of a type lie in numpy's arrays.
struct ArrayType {
  nanobind::object storage;  ///< numpy.dtype with a buffer: uint16 for bf16; object for strings
  nanobind::object shown;    ///< what users see: ml_dtypes.bfloat16; null if it is `storage`
};
/// Held for the life of the process. Throws unsupported/ml-dtypes if ml_dtypes is needed and not
/// installed, type/python for kUndefined.
const ArrayType& ArrayTypeOf(ElementType element);

/// numpy's function of that name. Held for the life of the process.
nanobind::handle Numpy(const char* function);

/// Whether the object is a numpy.ndarray.
bool IsArray(nanobind::handle object);

}  // namespace lathe::python
