#pragma once

#include <string>
#include <vector>

#include "lathe/ir/program.h"

/// Two programs, compared operation by operation.
namespace lathe {

/// A difference between two programs. Without `a` it is only in the second, without `b` in the
/// first.
struct ProgramDifference {
  std::string what;  ///< "input", "output", "parameter", "operation", "operand", "type"
  std::string a, b;
};

/// Inputs, outputs and parameters by name, then operations in program order: those that have the
/// same name and attributes are matched, as many as keep the order, and compared by what they read
/// and by the types that they give. Names of values and locations do not count. Empty if the
/// programs compute the same in the same way.
std::vector<ProgramDifference> ComparePrograms(const Program& a, const Program& b);

}  // namespace lathe
