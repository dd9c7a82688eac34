#include "src/lower/same_shapes.h"

#include "lathe/dialect/op_kind.h"

namespace lathe {

bool IsScalar(Value v) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  return type && type.has_rank() && type.rank() == 0;
}

SameShapes::SameShapes(const Dataflow& flow) : flow_(flow), like_(flow.size()) {
  for (uint32_t i = 0; i < flow.size(); ++i) like_[i] = Like(i);
}

bool SameShapes::Same(Value a, Value b) const {
  a = Representative(a);
  b = Representative(b);
  if (a == b) return true;
  const auto x = a.type().dyn_cast<AnyTensorType>(), y = b.type().dyn_cast<AnyTensorType>();
  if (!x || !y || !x.has_rank() || !y.has_rank() || x.rank() != y.rank()) return false;
  for (size_t d = 0; d < x.rank(); ++d) {
    if (!ProvablyEqual(x.dims()[d], y.dims()[d])) return false;
  }
  return true;
}

// The value whose shape result 0 has by the kind of the op.
Value SameShapes::Like(uint32_t id) const {
  const Operation* op = flow_.op(id);
  const OpKind kind = KindOf(op);
  if (kind > OpKind::kBroadcast || op->num_operands() == 0 || !op->operand(0)) return {};
  Value found;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const Value v = op->operand(i);
    if (!v || NeedsWhole(op, i) || IsScalar(v)) continue;
    if (found && kind == OpKind::kBroadcast) return {};
    if (!found) found = Representative(v, flow_.inputs(id)[i]);
  }
  return found;
}

}  // namespace lathe
