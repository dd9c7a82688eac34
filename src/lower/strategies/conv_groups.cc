#include "src/lower/strategies/conv_groups.h"

#include "lathe/ir/tensor_of.h"

namespace lathe::lower {
namespace {

constexpr int64_t kLeastChannels = 8;   // of fewer, sums take less than to turn them
constexpr int64_t kManyRegisters = 32;  // with fewer, tiles of positions read a weight too often

}  // namespace

Condition FiltersFillVectors(const Lowering& l, const Operation& conv, int64_t channels,
                             int64_t filters, const Dim& columns) {
  const ElementType element = TensorOf(conv.operand(0)).element();
  const int64_t lanes = l.machine.lanes(element);
  if (element != ElementType::kF32 || !l.IsConstant(conv.operand(1)) || channels < kLeastChannels ||
      filters % lanes != 0) {
    return Condition::Always(false);
  }
  if (l.machine.vector_registers < kManyRegisters) return Condition::Always(true);
  return Condition::AtMost(columns, lanes / 2);
}

}  // namespace lathe::lower
