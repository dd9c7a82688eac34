#pragma once

#include "lathe/ir/dialect.h"

namespace lathe {

/// Operators of neural networks, with the semantics of ONNX; inputs and outputs of programs.
class NnDialect : public Dialect {
 public:
  static constexpr const char* kName = "nn";
  explicit NnDialect(IrContext& context);
};

}  // namespace lathe
