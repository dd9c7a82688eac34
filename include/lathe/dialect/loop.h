#pragma once

#include <cstdint>

#include "lathe/ir/dialect.h"
#include "lathe/support/float_types.h"

namespace lathe {

namespace loop {
/// What processors with tile registers have, at least.
inline constexpr int64_t kTileRows = 16, kTileRowBytes = 64, kTileRegisters = 8;
/// Bytes whose products `loop.dot` adds up.
inline constexpr int64_t kDotGroup = 4;
/// What `loop.narrow` makes of a number.
BFloat16 Narrow(float x);
}  // namespace loop

/// Loops and memory: what operations become before they become machine code.
///
/// A lowered function has the signature of the function it was lowered from. In it, `loop.for`,
/// `loop.load` and `loop.store_` move through memory, which is a mutable `tensor`; what is computed
/// are the elementwise operations of `nn`, on scalars (tensors of rank 0) and on vectors (tensors
/// of rank 1). So a lowered program prints, verifies and runs in the interpreter like any other.
class LoopDialect : public Dialect {
 public:
  static constexpr const char* kName = "loop";
  explicit LoopDialect(IrContext& context);
};

}  // namespace lathe
