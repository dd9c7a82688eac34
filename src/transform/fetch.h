#pragma once

#include <string>

#include "lathe/ir/program.h"

namespace lathe {

/// Makes `value` an output of that name, behind those that are there.
void Fetch(Program& program, const std::string& name, Value value);

}  // namespace lathe
