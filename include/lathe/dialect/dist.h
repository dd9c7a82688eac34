#pragma once

#include "lathe/ir/dialect.h"

namespace lathe {

/// Collectives: one operation takes part in them for all places of its process, with one operand or
/// result for each.
class DistDialect : public Dialect {
 public:
  static constexpr const char* kName = "dist";
  explicit DistDialect(IrContext& context);
};

}  // namespace lathe
