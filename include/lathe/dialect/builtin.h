#pragma once

#include "lathe/ir/dialect.h"

namespace lathe {

/// Modules, parameters, constants, and copies between mutable and immutable tensors.
class BuiltinDialect : public Dialect {
 public:
  static constexpr const char* kName = "builtin";
  explicit BuiltinDialect(IrContext& context);
};

}  // namespace lathe
