#include "lathe/dialect/arithmetic.h"

#include "lathe/dialect/op_kind.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/tensor_of.h"

namespace lathe {
namespace {

bool IsFloating(Value v) {
  const AnyTensorType type = TensorOrNull(v);
  return type && IsFloat(type.element());
}

}  // namespace

Dim ElementsOf(Type type) {
  const auto tensor = type.dyn_cast<AnyTensorType>();
  return tensor ? tensor.shape().NumElements() : Dim::Unknown();
}

Dim ArithmeticOf(Operation* op) {
  if (const auto counted = op->dyn_cast<FlopsInterface>()) return counted.Flops();
  if (op->num_operands() == 0 || !IsFloating(op->operand(0))) return 0;
  switch (KindOf(op)) {
    case OpKind::kElementwise:
    case OpKind::kBroadcast:
      return ElementsOf(op->result(0).type());
    case OpKind::kReduction:
      return ElementsOf(op->operand(0).type());
    default:
      return 0;
  }
}

}  // namespace lathe
