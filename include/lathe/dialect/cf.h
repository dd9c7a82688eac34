#pragma once

#include "lathe/ir/dialect.h"

namespace lathe {

/// Structured control flow: `if`, `while`, `scan` and their `yield`.
class CfDialect : public Dialect {
 public:
  static constexpr const char* kName = "cf";
  explicit CfDialect(IrContext& context);
};

}  // namespace lathe
