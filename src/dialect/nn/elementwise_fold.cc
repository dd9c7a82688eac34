#include "lathe/dialect/nn/activation.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "src/dialect/fold_util.h"

// Every rule here gives the same bits as the computation: x + 0.0 is no rule (-0.0 + 0.0 is 0.0),
// x + -0.0 is one, x * 0 is none (NaN, infinity).
namespace lathe::nn {

namespace {

ElementType ElementOf(Value v) { return v.type().cast<AnyTensorType>().element(); }

}  // namespace

void AddOp::Fold(FoldContext& c) {
  FoldNeutral(c, IsFloat(ElementOf(c.op()->result(0))) ? -0.0 : 0.0);
}
void SubOp::Fold(FoldContext& c) { FoldNeutralRight(c, 0); }
void MulOp::Fold(FoldContext& c) { FoldNeutral(c, 1); }
void DivOp::Fold(FoldContext& c) { FoldNeutralRight(c, 1); }
void PowOp::Fold(FoldContext& c) { FoldNeutralRight(c, 1); }
void MinOp::Fold(FoldContext& c) { FoldAllEqual(c); }
void MaxOp::Fold(FoldContext& c) { FoldAllEqual(c); }
void SumOp::Fold(FoldContext& c) {
  if (c.op()->num_operands() == 1) FoldAllEqual(c);
}
void MeanOp::Fold(FoldContext& c) {
  if (c.op()->num_operands() == 1) FoldAllEqual(c);
}
void BitwiseAndOp::Fold(FoldContext& c) { FoldAllEqual(c); }
void BitwiseOrOp::Fold(FoldContext& c) {
  FoldAllEqual(c);
  FoldNeutral(c, 0);
}

void AndOp::Fold(FoldContext& c) {
  FoldAllEqual(c);
  FoldNeutral(c, 1);
}
void OrOp::Fold(FoldContext& c) {
  FoldAllEqual(c);
  FoldNeutral(c, 0);
}
void NotOp::Fold(FoldContext& c) { FoldInvolution(c); }

void ReluOp::Fold(FoldContext& c) { FoldIdempotent(c); }
void AbsOp::Fold(FoldContext& c) { FoldIdempotent(c); }
void SignOp::Fold(FoldContext& c) { FoldIdempotent(c); }
void FloorOp::Fold(FoldContext& c) { FoldIdempotent(c); }
void CeilOp::Fold(FoldContext& c) { FoldIdempotent(c); }
void RoundOp::Fold(FoldContext& c) { FoldIdempotent(c); }
void NegOp::Fold(FoldContext& c) { FoldInvolution(c); }
void BitwiseNotOp::Fold(FoldContext& c) { FoldInvolution(c); }

/// Without bounds, or within its own.
void ClipOp::Fold(FoldContext& c) {
  const ClipOp op(c.op());
  if (!op.min() && !op.max()) return c.Replace(kY, op.x());
  const ClipOp inner = ClipOp::DynCast(op.x().defining_op());
  if (inner && inner.min() == op.min() && inner.max() == op.max()) c.Replace(kY, op.x());
}

}  // namespace lathe::nn
