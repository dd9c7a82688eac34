#pragma once

#include <string>
#include <vector>

#include "lathe/ir/block.h"
#include "lathe/lower/lower_function.h"

namespace lathe::lower {

/// A function that a strategy is asked to lower.
struct Lowering {
  const Block& function;
  Block* body;  ///< empty; its arguments are those of the function
  const Machine& machine;
  const std::vector<bool>& constant;
  std::string why = {};  ///< why the strategy refuses
  std::vector<PackedLayout> packed = {};

  /// Whether a value of `function` is an argument that may be packed.
  bool IsConstant(Value v) const;
  /// Has argument `layout.argument` packed; returns the body's argument, of its new type.
  Value Pack(PackedLayout layout);
};

}  // namespace lathe::lower
