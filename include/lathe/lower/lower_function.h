#pragma once

#include <functional>
#include <string>

#include "lathe/ir/operation.h"
#include "lathe/support/element_type.h"

/// From functions of operations to functions of loops.
namespace lathe::lower {

/// What loops are made for. The driver fills it from the code generator's target.
struct Machine {
  int vector_bytes = 16;
  int vector_registers = 16;
  bool has_fma = false;
  int64_t l1_bytes = 32 << 10;
  int64_t l2_bytes = 512 << 10;
  /// Whether an elementwise operation has instructions on scalars and vectors of its element types.
  std::function<bool(const Operation& op)> has_instruction;

  int64_t lanes(ElementType element) const { return vector_bytes * 8 / BitWidth(element); }
};

/// What became of a function.
struct Lowered {
  bool done = false;
  std::string strategy;  ///< that made the loops
  std::string why_not;   ///< per strategy, why it could not: "elementwise: ...; matmul: ..."
};

/// Replaces the body of a `builtin.func` by loops that compute the same from the same arguments. A
/// function for which no strategy fits keeps its operations, but for those that were decomposed.
Lowered LowerFunction(Operation* function, const Machine& machine);

}  // namespace lathe::lower
