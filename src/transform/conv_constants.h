#pragma once

#include <vector>

#include "lathe/pass/rule.h"

namespace lathe {

/// Name of the parameter that `value` reads, else `otherwise`: a base for the name of a new one.
std::string ParameterBase(Value value, const char* otherwise);
/// `tensor` with every element of output channel m (dim 0) multiplied by factors[m], in double.
Tensor ScaledChannels(const Tensor& tensor, const std::vector<double>& factors);
/// A tensor [n] of `type`.
Tensor FromDoubles(ElementType type, const std::vector<double>& values);

}  // namespace lathe
