#pragma once

#include <string>
#include <vector>

#include "lathe/driver/executable.h"

namespace lathe {

/// Inputs and outputs of a program, in its order.
std::vector<Port> InputPorts(const Program& program);
std::vector<Port> OutputPorts(const Program& program);

/// "f32[N,1,8,8]".
std::string TypeOf(const Port& port);

}  // namespace lathe
