#include "src/transform/slices.h"

#include <algorithm>
#include <vector>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/divide.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

/// Operand `i` as integers; `absent` if it is not there, nothing if it is no constant.
std::optional<std::vector<int64_t>> Ints(const Program& program, const Operation* op, size_t i,
                                         std::vector<int64_t> absent) {
  if (i >= op->num_operands() || !op->operand(i)) return absent;
  const Tensor* constant = ConstantValue(program, op->operand(i));
  return constant == nullptr ? std::nullopt : std::optional(ToInt64s(*constant));
}

std::optional<int64_t> Extent(Value value, int64_t axis) {
  const Dim& d = value.type().cast<AnyTensorType>().dims()[static_cast<size_t>(axis)];
  return d.is_constant() ? std::optional(d.value()) : std::nullopt;
}

std::optional<SliceOf> FromSlice(const Program& program, const Operation* op) {
  const auto starts = Ints(program, op, 1, {}), ends = Ints(program, op, 2, {}),
             axes = Ints(program, op, 3, {0}), steps = Ints(program, op, 4, {1});
  if (!starts || !ends || !axes || !steps || starts->size() != 1 || axes->size() != 1) return {};
  const Value whole = op->operand(0);
  const std::optional<int64_t> axis = AxisFromFront(axes->front(), whole);
  if (!axis || steps->front() < 1) return std::nullopt;
  const std::optional<int64_t> extent = Extent(whole, *axis);
  if (!extent) return std::nullopt;
  const auto clamped = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + *extent : at, 0, *extent);
  };
  const int64_t begin = clamped(starts->front()), end = clamped(ends->front());
  const int64_t step = steps->front();
  return SliceOf{whole, *axis, begin, std::max<int64_t>(0, CeilDiv(end - begin, step)), step};
}

std::optional<SliceOf> FromSplit(Value piece) {
  const Operation* op = piece.defining_op();
  const Value whole = op->operand(0);
  const auto attribute = op->attribute("axis").dyn_cast<IntAttribute>();
  const std::optional<int64_t> axis = AxisFromFront(attribute ? attribute.value() : 0, whole);
  if (!axis || !Extent(whole, *axis)) return std::nullopt;
  int64_t begin = 0;
  for (size_t i = 0; i < piece.index(); ++i) {
    const std::optional<int64_t> before = Extent(op->result(i), *axis);
    if (!before) return std::nullopt;
    begin += *before;
  }
  const std::optional<int64_t> count = Extent(piece, *axis);
  return count ? std::optional(SliceOf{whole, *axis, begin, *count, 1}) : std::nullopt;
}

}  // namespace

std::optional<SliceOf> AsSlice(const Program& program, Value value) {
  const Operation* op = value.defining_op();
  const bool cuts = op != nullptr && (op->name() == nn::kSlice || op->name() == nn::kSplit);
  if (!cuts || !RankOf(value) || !RankOf(op->operand(0))) return std::nullopt;
  return op->name() == nn::kSlice ? FromSlice(program, op) : FromSplit(value);
}

}  // namespace lathe
