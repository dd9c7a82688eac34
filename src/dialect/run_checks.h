#pragma once

#include <string>
#include <vector>

#include "lathe/dialect/interpreter.h"

namespace lathe {

/// Whether a value at run time may stand where the type is declared: kind, element type, rank and
/// constant dims.
bool Fits(const RtValue& value, Type type);
/// "f32[2,3]", "list", ...
std::string Describe(const RtValue& value);
/// Throws unless `inputs` are exactly what the program's feeds ask for.
void CheckInputs(const std::vector<Operation*>& feeds, const NamedValues& inputs);

}  // namespace lathe
