#pragma once

#include <string>

#include "lathe/pass/rule.h"

namespace lathe {

/// Of a tensor.
inline ElementType ElementOf(Value value) { return value.type().cast<AnyTensorType>().element(); }

namespace pat {

/// Any value of floats, by name.
inline Pat Float(const std::string& name) {
  return Var(name).If([](Value v) { return IsFloat(ElementOf(v)); }, "it is of floats");
}

}  // namespace pat
}  // namespace lathe
