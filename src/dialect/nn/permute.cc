#include <algorithm>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/norm.h"
#include "lathe/dialect/nn/order.h"
#include "lathe/dialect/nn/pool.h"
#include "lathe/dialect/nn/quantize.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/dialect/nn/resize.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/layout.h"

// How each op commutes with a permutation of the axes of its data: see permute_interface.h.
namespace lathe::nn {

namespace {

using Ints = std::vector<int64_t>;

std::optional<Ints> ConstantInts(const PermuteContext& c, size_t i) {
  const Tensor* t = c.Constant(i);
  return t == nullptr ? std::nullopt : std::optional(ToInt64s(*t));
}

/// The permutation of what is left when `axes` (of the operand) go.
Permutation Without(const PermuteContext& c, const Ints& axes) {
  const auto rank = static_cast<int64_t>(c.perm().size());
  std::vector<bool> gone(c.perm().size());
  for (const int64_t a : axes) gone[static_cast<size_t>(a < 0 ? a + rank : a)] = true;
  Ints place(c.perm().size());
  for (size_t i = 0, next = 0; i < place.size(); ++i) {
    if (!gone[i]) place[i] = static_cast<int64_t>(next++);
  }
  Permutation left;
  for (const int64_t p : c.perm()) {
    if (!gone[static_cast<size_t>(p)]) left.push_back(place[static_cast<size_t>(p)]);
  }
  return left;
}

Ints AllAxes(size_t count) {
  Ints axes(count);
  for (size_t i = 0; i < count; ++i) axes[i] = static_cast<int64_t>(i);
  return axes;
}

/// Operand `axes` names axes of the data; absent, the first `count` are meant.
bool MoveAxesOperand(PermuteContext& c, size_t axes, size_t count) {
  Ints moved;
  if (!c.HasInput(axes)) {
    moved = c.NewAxes(AllAxes(count));
  } else if (const auto given = ConstantInts(c, axes)) {
    moved = c.NewAxes(*given);
  } else {
    return false;
  }
  c.SetInts(axes, moved);
  return true;
}

/// Reductions over the axes of operand 1, with `keepdims`.
bool PermuteReduction(PermuteContext& c) {
  const auto keeps = c.op()->attribute("keepdims").dyn_cast<BoolAttribute>();
  if (c.operand() != 0 || !keeps) return false;
  Ints axes = AllAxes(c.perm().size());
  if (c.HasInput(1)) {
    const auto given = ConstantInts(c, 1);
    if (!given || given->empty()) return false;
    axes = *given;
    c.SetInts(1, c.NewAxes(axes));
  } else if (c.op()->attribute("noop_with_empty_axes").cast<BoolAttribute>().value()) {
    return PermuteSame(c);
  }
  c.Operand(0, c.perm());
  c.Result(0, keeps.value() ? c.perm() : Without(c, axes));
  return true;
}

bool PermuteArg(PermuteContext& c) {
  const int64_t axis = c.op()->attribute("axis").cast<IntAttribute>().value();
  const bool keeps = c.op()->attribute("keepdims").cast<BoolAttribute>().value();
  if (c.operand() != 0) return false;
  c.SetAttribute("axis", c.NewAxis(axis));
  c.Operand(0, c.perm());
  c.Result(0, keeps ? c.perm() : Without(c, {axis}));
  return true;
}

/// Scale and zero point are for all of the tensor, whatever `axis` is, or for each index of it.
bool PermuteQuantized(PermuteContext& c) {
  const auto blocks = c.op()->attribute("block_size").dyn_cast<IntAttribute>();
  const auto type = c.op()->operand(1).type().dyn_cast<AnyTensorType>();
  if (!blocks || blocks.value() != 0 || !type || !type.has_rank() || type.rank() > 1) return false;
  const bool is_one = type.rank() == 0 || type.dims()[0].IsConstant(1);
  return is_one ? PermuteSame(c) : PermuteAlongAxis(c);
}

/// `values` has one entry, or several runs of entries, for each axis.
Ints Reordered(const Ints& values, const Permutation& perm) {
  Ints moved;
  for (size_t run = 0; run < values.size(); run += perm.size()) {
    for (const int64_t axis : perm) moved.push_back(values[run + static_cast<size_t>(axis)]);
  }
  return moved;
}

}  // namespace

// ---- element by element ----

bool CastOp::Permute(PermuteContext& c) { return PermuteSame(c); }
bool IdentityOp::Permute(PermuteContext& c) { return PermuteSame(c); }
bool ClipOp::Permute(PermuteContext& c) { return PermuteSame(c); }
bool PreluOp::Permute(PermuteContext& c) {
  const auto slope = c.op()->operand(kSlope).type().dyn_cast<AnyTensorType>();
  if (!slope || !slope.has_rank() || !PermuteSame(c)) return false;
  if (slope.rank() > 0) c.Operand(kSlope, c.perm());
  return true;
}
bool QuantizeLinearOp::Permute(PermuteContext& c) { return PermuteQuantized(c); }
bool DequantizeLinearOp::Permute(PermuteContext& c) { return PermuteQuantized(c); }

// ---- along an axis ----

bool SoftmaxOp::Permute(PermuteContext& c) { return PermuteAlongAxis(c); }
bool LogSoftmaxOp::Permute(PermuteContext& c) { return PermuteAlongAxis(c); }
bool HardmaxOp::Permute(PermuteContext& c) { return PermuteAlongAxis(c); }
bool LpNormalizationOp::Permute(PermuteContext& c) { return PermuteAlongAxis(c); }
bool ArgMaxOp::Permute(PermuteContext& c) { return PermuteArg(c); }
bool ArgMinOp::Permute(PermuteContext& c) { return PermuteArg(c); }
bool CumSumOp::Permute(PermuteContext& c) {
  const auto axis = ConstantInts(c, kAxis);
  if (!axis || axis->size() != 1) return false;
  c.SetConstant(kAxis, Tensor::Scalar<int64_t>(c.NewAxis((*axis)[0])));
  return PermuteSame(c);
}

// ---- reductions ----

bool ReduceSumOp::Permute(PermuteContext& c) { return PermuteReduction(c); }
bool ReduceMeanOp::Permute(PermuteContext& c) { return PermuteReduction(c); }
bool ReduceMaxOp::Permute(PermuteContext& c) { return PermuteReduction(c); }
bool ReduceMinOp::Permute(PermuteContext& c) { return PermuteReduction(c); }
bool ReduceProdOp::Permute(PermuteContext& c) { return PermuteReduction(c); }
bool ReduceL1Op::Permute(PermuteContext& c) { return PermuteReduction(c); }
bool ReduceL2Op::Permute(PermuteContext& c) { return PermuteReduction(c); }
bool ReduceLogSumOp::Permute(PermuteContext& c) { return PermuteReduction(c); }
bool ReduceLogSumExpOp::Permute(PermuteContext& c) { return PermuteReduction(c); }
bool ReduceSumSquareOp::Permute(PermuteContext& c) { return PermuteReduction(c); }

// ---- pieces ----

bool ConcatOp::Permute(PermuteContext& c) {
  for (size_t i = 0; i < c.op()->num_operands(); ++i) c.Operand(i, c.perm());
  c.SetAttribute("axis", c.NewAxis(ConcatOp(c.op()).axis()));
  c.Result(kConcatResult, c.perm());
  return true;
}

bool SplitOp::Permute(PermuteContext& c) {
  if (c.operand() != kInput) return false;
  c.Operand(kInput, c.perm());
  c.SetAttribute("axis", c.NewAxis(SplitOp(c.op()).axis()));
  for (size_t i = 0; i < c.op()->num_results(); ++i) c.Result(i, c.perm());
  return true;
}

bool SliceOp::Permute(PermuteContext& c) {
  const auto starts = c.op()->operand(kStarts).type().dyn_cast<AnyTensorType>();
  if (!starts || !starts.is_static() || starts.rank() != 1) return false;
  const auto count = static_cast<size_t>(starts.dims()[0].value());
  return MoveAxesOperand(c, kAxes, count) && PermuteSame(c);
}

bool PadOp::Permute(PermuteContext& c) {
  if (c.HasInput(kAxes)) return MoveAxesOperand(c, kAxes, 0) && PermuteSame(c);
  const auto pads = ConstantInts(c, kPads);
  if (!pads || pads->size() != 2 * c.perm().size()) return false;
  c.SetInts(kPads, Reordered(*pads, c.perm()));
  return PermuteSame(c);
}

bool TileOp::Permute(PermuteContext& c) {
  const auto repeats = ConstantInts(c, kRepeats);
  if (!repeats || repeats->size() != c.perm().size()) return false;
  c.SetInts(kRepeats, Reordered(*repeats, c.perm()));
  return PermuteSame(c);
}

/// The axes of the indices stand together where the axis that they pick from stood.
bool GatherOp::Permute(PermuteContext& c) {
  const auto indices = c.op()->operand(kIndices).type().dyn_cast<AnyTensorType>();
  if (c.operand() != kData || !indices || !indices.has_rank()) return false;
  const auto added = static_cast<int64_t>(indices.rank());
  int64_t axis = GatherOp(c.op()).axis();
  if (axis < 0) axis += static_cast<int64_t>(c.perm().size());
  Permutation result;
  for (const int64_t p : c.perm()) {
    if (p != axis) {
      result.push_back(p < axis ? p : p - 1 + added);
      continue;
    }
    for (int64_t i = 0; i < added; ++i) result.push_back(axis + i);
  }
  c.Operand(kData, c.perm());
  c.SetAttribute("axis", c.NewAxis(axis));
  c.Result(kOutput, result);
  return true;
}

// ---- ranks ----

bool SqueezeOp::Permute(PermuteContext& c) {
  const auto axes = ConstantInts(c, kAxes);
  if (c.operand() != kData || !axes) return false;
  c.Operand(kData, c.perm());
  c.SetInts(kAxes, c.NewAxes(*axes));
  c.Result(kSqueezed, Without(c, *axes));
  return true;
}

/// The new axes stay where they are.
bool UnsqueezeOp::Permute(PermuteContext& c) {
  const auto axes = ConstantInts(c, kAxes);
  if (c.operand() != kData || !axes) return false;
  const auto rank = static_cast<int64_t>(c.perm().size() + axes->size());
  std::vector<bool> added(static_cast<size_t>(rank));
  for (const int64_t a : *axes) added[static_cast<size_t>(a < 0 ? a + rank : a)] = true;
  Ints places;
  for (int64_t i = 0; i < rank; ++i) {
    if (!added[static_cast<size_t>(i)]) places.push_back(i);
  }
  Permutation result;
  for (size_t i = 0, next = 0; i < added.size(); ++i) {
    result.push_back(added[i] ? static_cast<int64_t>(i)
                              : places[static_cast<size_t>(c.perm()[next++])]);
  }
  c.Operand(kData, c.perm());
  c.Result(kExpanded, result);
  return true;
}

// ---- channels ----

bool ConvOp::Permute(PermuteContext& c) { return PermuteChannels(c, ConvOp(c.op()).layout()); }
bool MaxPoolOp::Permute(PermuteContext& c) {
  return PermuteChannels(c, MaxPoolOp(c.op()).layout());
}
bool AveragePoolOp::Permute(PermuteContext& c) {
  return PermuteChannels(c, AveragePoolOp(c.op()).layout());
}
bool GlobalMaxPoolOp::Permute(PermuteContext& c) {
  return PermuteChannels(c, GlobalMaxPoolOp(c.op()).layout());
}
bool GlobalAveragePoolOp::Permute(PermuteContext& c) {
  return PermuteChannels(c, GlobalAveragePoolOp(c.op()).layout());
}
bool BatchNormalizationOp::Permute(PermuteContext& c) {
  return PermuteChannels(c, BatchNormalizationOp(c.op()).layout());
}

/// One entry for each axis in scales or sizes.
bool ResizeOp::Permute(PermuteContext& c) {
  const ResizeOp op(c.op());
  if (c.HasInput(kRoi)) return false;
  if (const auto axes = op.axes()) {
    const Ints moved = c.NewAxes(*axes);
    c.SetAttribute("axes",
                   ArrayAttribute::Get(*c.op()->context(), std::span<const int64_t>(moved)));
    return PermuteSame(c);
  }
  const size_t which = c.HasInput(kScales) ? kScales : kSizes;
  const Tensor* t = c.Constant(which);
  if (t == nullptr || t->num_elements() != static_cast<int64_t>(c.perm().size())) return false;
  const std::vector<double> given = ToDoubles(*t);
  std::vector<double> moved;
  for (const int64_t axis : c.perm()) moved.push_back(given[static_cast<size_t>(axis)]);
  c.SetConstant(which, Cast(Tensor::Of<double>(t->shape(), moved), t->element_type()));
  return PermuteSame(c);
}

}  // namespace lathe::nn
