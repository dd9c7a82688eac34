#include <algorithm>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/sequence.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/fold_util.h"

namespace lathe::nn {

namespace {

Attribute ToAttribute(const FoldContext& c, const Tensor& value) {
  return TensorAttribute::Get(*c.op()->context(), value);
}

/// The axes [0, 1, ..., n - 1] of something with n of them.
bool CountsUp(const std::vector<int64_t>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// Where the rank is not known, an operation still refuses axes and amounts for others.
bool HasRank(Value v) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  return type && type.has_rank();
}

}  // namespace

// ---- shapes ----

void ShapeOp::Fold(FoldContext& c) {
  const auto type = c.op()->operand(kData).type().dyn_cast<AnyTensorType>();
  if (!type || !type.is_static()) return;
  const auto rank = static_cast<int64_t>(type.rank());
  const auto clamp = [rank](int64_t axis) {
    return std::clamp<int64_t>(axis < 0 ? axis + rank : axis, 0, rank);
  };
  const int64_t start = clamp(ShapeOp(c.op()).start());
  const int64_t end = std::max(start, clamp(ShapeOp(c.op()).end().value_or(rank)));
  std::vector<int64_t> extents;
  for (int64_t i = start; i < end; ++i) {
    extents.push_back(type.dims()[static_cast<size_t>(i)].value());
  }
  c.Replace(kExtents, ToAttribute(c, Tensor::Of<int64_t>({end - start}, extents)));
}

void SizeOp::Fold(FoldContext& c) {
  const auto type = c.op()->operand(kData).type().dyn_cast<AnyTensorType>();
  if (!type || !type.is_static()) return;
  const Dim count = type.shape().NumElements();
  if (count.is_constant()) {
    c.Replace(kCount, ToAttribute(c, Tensor::Scalar<int64_t>(count.value())));
  }
}

void ReshapeOp::Fold(FoldContext& c) { FoldTold(c, kShape); }
void ExpandOp::Fold(FoldContext& c) { FoldTold(c, kShape); }
void FlattenOp::Fold(FoldContext& c) { FoldSameShape(c); }
void SqueezeOp::Fold(FoldContext& c) { FoldSameShape(c); }
void TileOp::Fold(FoldContext& c) { FoldSameShape(c); }

void TransposeOp::Fold(FoldContext& c) {
  const TransposeOp op(c.op());
  const auto type = op.data().type().dyn_cast<AnyTensorType>();
  const auto perm = op.perm();
  if (!HasRank(op.data())) return;
  if (perm ? CountsUp(*perm) : type.rank() < 2) c.Replace(kTransposed, op.data());
}

// ---- pieces ----

void ConcatOp::Fold(FoldContext& c) {
  const Value first = c.op()->operand(0);
  if (c.op()->num_operands() == 1 && HasRank(first)) c.Replace(kConcatResult, first);
}
void SplitOp::Fold(FoldContext& c) {
  const Value whole = c.op()->operand(kInput);
  if (c.op()->num_results() == 1 && HasRank(whole)) c.Replace(0, whole);
}

/// Steps of one and the shape of the input: the whole of it.
void SliceOp::Fold(FoldContext& c) {
  const SliceOp op(c.op());
  if (!op.steps() || IsFilledWith(FoldConstant(c, kSteps), 1)) FoldSameShape(c);
}

void PadOp::Fold(FoldContext& c) {
  const Value data = c.op()->operand(kData);
  if (HasRank(data) && IsFilledWith(FoldConstant(c, kPads), 0)) c.Replace(kOutput, data);
}

/// Equal values, or a condition that is known.
void WhereOp::Fold(FoldContext& c) {
  const WhereOp op(c.op());
  const auto replace = [&](Value value) {
    if (HasShapeOfResult(value, c.op())) c.Replace(kOutput, value);
  };
  if (op.x() == op.y()) return replace(op.x());
  const Tensor* condition = FoldConstant(c, kCondition);
  if (IsFilledWith(condition, 1)) return replace(op.x());
  if (IsFilledWith(condition, 0)) return replace(op.y());
}

/// All of the axis, in order.
void GatherOp::Fold(FoldContext& c) {
  const GatherOp op(c.op());
  const Tensor* indices = FoldConstant(c, kIndices);
  if (indices == nullptr || indices->rank() != 1 || !CountsUp(ToInt64s(*indices))) return;
  FoldSameShape(c);
}

// ---- types ----

void CastOp::Fold(FoldContext& c) {
  const auto type = c.op()->operand(kInput).type().dyn_cast<AnyTensorType>();
  if (type && type.element() == CastOp(c.op()).to()) c.Replace(kOutput, c.op()->operand(kInput));
}

void CastLikeOp::Fold(FoldContext& c) {
  const auto type = c.op()->operand(kInput).type().dyn_cast<AnyTensorType>();
  const auto like = c.op()->operand(kTargetType).type().dyn_cast<AnyTensorType>();
  if (type && like && type.element() == like.element()) c.Replace(kOutput, c.op()->operand(kInput));
}

// ---- lists and optionals ----

void SequenceAtOp::Fold(FoldContext& c) {
  const SequenceAtOp op(c.op());
  const Operation* made = op.input_sequence().defining_op();
  const Tensor* position = FoldConstant(c, kPosition);
  if (made == nullptr || made->name() != SequenceConstructOp::kName || position == nullptr) return;
  if (position->num_elements() != 1) return;
  const auto count = static_cast<int64_t>(made->num_operands());
  int64_t at = ToInt64s(*position)[0];
  if (at < 0) at += count;
  if (at >= 0 && at < count) c.Replace(kValue, made->operand(static_cast<size_t>(at)));
}

void SequenceLengthOp::Fold(FoldContext& c) {
  const Operation* made = c.op()->operand(kInputSequence).defining_op();
  if (made == nullptr || made->name() != SequenceConstructOp::kName) return;
  const auto count = static_cast<int64_t>(made->num_operands());
  c.Replace(kLength, ToAttribute(c, Tensor::Scalar<int64_t>(count)));
}

namespace {

/// An optional that is known to hold something: what it holds. A plain value is itself.
Value HeldBy(Value value) {
  if (!value.type().isa<OptionalType>()) return value;
  const Operation* made = value.defining_op();
  if (made == nullptr || made->name() != OptionalOp::kName || made->num_operands() == 0) return {};
  return made->operand(0);
}

}  // namespace

void OptionalGetElementOp::Fold(FoldContext& c) {
  if (const Value held = HeldBy(c.op()->operand(kInput))) c.Replace(kOutput, held);
}

void OptionalHasElementOp::Fold(FoldContext& c) {
  const Value input = OptionalHasElementOp(c.op()).input();
  if (!input || HeldBy(input)) {
    c.Replace(kOutput, ToAttribute(c, Tensor::Scalar<bool>(static_cast<bool>(input))));
  }
}

}  // namespace lathe::nn
