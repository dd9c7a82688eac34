#pragma once

#include <vector>

#include "lathe/driver/executable.h"

namespace lathe {

/// Inputs and outputs of a program, in its order.
std::vector<Port> InputPorts(const Program& program);
std::vector<Port> OutputPorts(const Program& program);

}  // namespace lathe
