#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "lathe/ir/attribute.h"
#include "lathe/ir/op_def.h"

/// Attributes of operations from and to Python objects. All functions need the interpreter's lock.
namespace lathe::python {

/// bool, int, float, str, an array, a list of these, a dict; "f32" for an element type; the text of
/// what Python has no object for.
nanobind::object AttributeObject(Attribute attribute);

/// The attribute of an object. `def` says what it has to be; null: what the object looks like.
/// `what` names it in messages, as "attribute 'axis' of nn.concat". Errors: type/python.
Attribute AttributeOf(IrContext& context, nanobind::handle object, const AttrDef* def,
                      const std::string& what);

/// "an integer", "a list of strings".
const char* Describe(AttrKind kind);

/// Of "f32", "str", numpy.float32, ml_dtypes.bfloat16, numpy.dtype("f4"). Errors: type/python, with
/// the nearest names.
ElementType ElementTypeOf(nanobind::handle object);

}  // namespace lathe::python
