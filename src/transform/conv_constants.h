#pragma once

#include <vector>

#include "lathe/pass/rule.h"

namespace lathe {

/// Name of the parameter that `value` reads, else `otherwise`: a base for the name of a new one.
std::string ParameterBase(Value value, const char* otherwise);
/// Whether `op` casts a parameter of one integer to floats, a zero point say. Its result stays a
/// parameter when it is folded: kernels that differ in such numbers alone are the same.
bool IsNumberOfParameter(const Operation* op);
/// `tensor` with every element of output channel m (dim 0) multiplied by factors[m], in double.
Tensor ScaledChannels(const Tensor& tensor, const std::vector<double>& factors);
/// A tensor [n] of `type`.
Tensor FromDoubles(ElementType type, const std::vector<double>& values);

}  // namespace lathe
