// Slices, pads and triangles of the movement family: parts of a tensor put elsewhere.
#include <algorithm>
#include <limits>

#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "src/dialect/contents.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/slice.h"

namespace lathe::nn {

using eval::Concrete;
using eval::FailShape;

// ---- slice ----

SliceSpan SliceRange(int64_t extent, int64_t start, int64_t end, int64_t step) {
  if (extent == 0) return {};
  const int64_t s = start < 0 ? start + extent : start;
  const int64_t e = end < 0 ? end + extent : end;
  if (step > 0) {
    const int64_t first = std::clamp<int64_t>(s, 0, extent);
    const int64_t stop = std::clamp<int64_t>(e, 0, extent);
    return {first, stop > first ? (stop - first - 1) / step + 1 : 0};
  }
  const int64_t first = std::clamp<int64_t>(s, 0, extent - 1);
  // -1, one before the first element, can only be written as something below -extent.
  const int64_t stop = std::clamp<int64_t>(e, -1, extent - 1);
  const uint64_t stride = uint64_t{0} - static_cast<uint64_t>(step);
  return {first, first > stop
                     ? static_cast<int64_t>(static_cast<uint64_t>(first - stop - 1) / stride) + 1
                     : 0};
}

namespace {

void CheckStep(const Dim& step) {
  if (step.IsConstant(0)) FailShape("shape/slice-step", "a slice has step 0");
}

// Exporters write these for "to the end" and "to the beginning".
constexpr int64_t kFar = std::numeric_limits<int32_t>::max();
bool IsFarEnd(const Dim& x) { return x.is_constant() && x.value() >= kFar; }
bool IsFarBegin(const Dim& x) { return x.is_constant() && x.value() <= -kFar; }

// A bound of a slice with a positive step, clamped to [0, extent].
Dim ClampedBound(const Dim& bound, const Dim& extent) {
  if (IsFarEnd(bound)) return extent;
  if (IsFarBegin(bound)) return 0;
  if (bound.is_unknown() || extent.is_unknown()) return bound.IsConstant(0) ? bound : Dim();
  if (bound.is_constant() && bound.value() < 0) return Max(extent + bound, 0);
  if (const auto low = bound.LowerBound(); low && *low >= 0) return Min(bound, extent);
  return {};
}

// A bound of a slice with a negative step, clamped to [least, extent - 1].
Dim BoundFromBehind(const Dim& bound, const Dim& extent, int64_t least) {
  const Dim last = extent - 1;
  if (IsFarEnd(bound)) return last;
  if (IsFarBegin(bound)) return Min(least, last);
  if (bound.is_unknown()) return {};
  if (bound.is_constant() && bound.value() < 0) return Min(Max(extent + bound, least), last);
  if (const auto low = bound.LowerBound(); low && *low >= 0) return Min(bound, last);
  return {};
}

Dim SymbolicCount(const Dim& extent, const Dim& start, const Dim& end, const Dim& step) {
  if (!step.is_constant()) return {};
  if (step.value() < 0) {
    const bool whole = (start.IsConstant(-1) || IsFarEnd(start)) && IsFarBegin(end);
    if (whole) return CeilDiv(extent, DimNeg(step));
    const Dim first = BoundFromBehind(start, extent, 0), stop = BoundFromBehind(end, extent, -1);
    return CeilDiv(Max(first - stop, 0), DimNeg(step));
  }
  // A beginning that counts from the front need not be clamped: beyond the extent it is behind any
  // end, which makes the same none.
  const bool is_plain = start.is_constant() && start.value() >= 0 && !IsFarEnd(start);
  const Dim stop = ClampedBound(end, extent),
            first = is_plain ? start : ClampedBound(start, extent);
  if (first.is_unknown() || stop.is_unknown()) return {};
  return CeilDiv(Max(stop - first, 0), step);
}

}  // namespace

Dim SliceCount(const Dim& extent, const Dim& start, const Dim& end, const Dim& step) {
  CheckStep(step);
  const bool all_known =
      extent.is_constant() && start.is_constant() && end.is_constant() && step.is_constant();
  if (all_known) return SliceRange(extent.value(), start.value(), end.value(), step.value()).count;
  return SymbolicCount(extent, start, end, step);
}

namespace {

void CheckSliceCounts(size_t starts, size_t ends, size_t axes, size_t steps) {
  if (starts == ends && starts == axes && starts == steps) return;
  FailShape("shape/slice",
            StrCat("starts, ends, axes and steps have ", starts, ", ", ends, ", ", axes, " and ",
                   steps, " entries"),
            "all must have the same number");
}

// Operands of a slice as dims; axes are what they must be to say anything about the shape.
struct SliceArguments {
  std::vector<Dim> starts, ends, steps;
  std::vector<int64_t> axes;
};

std::vector<int64_t> DefaultAxes(size_t count) {
  std::vector<int64_t> axes(count);
  for (size_t i = 0; i < count; ++i) axes[i] = static_cast<int64_t>(i);
  return axes;
}

void Finish(SliceArguments& a, size_t rank) {
  CheckSliceCounts(a.starts.size(), a.ends.size(), a.axes.size(), a.steps.size());
  a.axes = eval::NormalizeAxes(a.axes, static_cast<int64_t>(rank));
}

std::optional<std::vector<int64_t>> KnownAxes(const InferShapeContext& c, size_t rank) {
  if (c.HasInput(SliceOp::kAxes)) return c.ConstantInts(SliceOp::kAxes);
  for (const size_t operand : {SliceOp::kStarts, SliceOp::kEnds}) {
    const SymShape shape = c.shape(operand);
    if (!shape.ranked || shape.rank() != 1 || !shape.dims[0].is_constant()) continue;
    const auto count = static_cast<size_t>(shape.dims[0].value());
    if (count > rank) FailShape("shape/slice", StrCat(count, " starts for ", rank, " axes"));
    return DefaultAxes(count);
  }
  return std::nullopt;
}

// Nothing if it is not even known which axes are cut. What only a run knows is an unknown dim.
std::optional<SliceArguments> KnownArguments(const InferShapeContext& c, size_t rank) {
  const auto axes = KnownAxes(c, rank);
  if (!axes) return std::nullopt;
  const std::vector<Dim> unknown(axes->size());
  SliceArguments a{c.Contents(SliceOp::kStarts).value_or(unknown),
                   c.Contents(SliceOp::kEnds).value_or(unknown), std::vector<Dim>(axes->size(), 1),
                   *axes};
  if (c.HasInput(SliceOp::kSteps)) a.steps = c.Contents(SliceOp::kSteps).value_or(unknown);
  Finish(a, rank);
  return a;
}

// Of operands whose numbers only a run knows, and how many there are.
void AssumeSameCounts(const InferShapeContext& c) {
  const auto count_of = [&](size_t operand) {
    const SymShape shape = c.HasInput(operand) ? c.shape(operand) : SymShape::Unranked();
    return shape.ranked && shape.rank() == 1 ? shape.dims[0] : Dim::Unknown();
  };
  const Dim starts = count_of(SliceOp::kStarts);
  for (const size_t operand : {SliceOp::kEnds, SliceOp::kAxes, SliceOp::kSteps}) {
    const Dim count = count_of(operand);
    if (starts.is_unknown() || count.is_unknown()) continue;
    Assume(SizeCondition::Equal(starts, count), "shape/slice", [&] {
      return StrCat("starts and operand ", operand, " have ", starts.ToString(), " and ",
                    count.ToString(), " entries");
    });
  }
}

void PublishSlice(InferShapeContext& c, const SliceArguments& a) {
  const auto array = SmallArrayOf(c, SliceOp::kData);
  if (!array || a.axes.size() != 1) return;
  if (!a.starts[0].is_constant() || !a.ends[0].is_constant() || !a.steps[0].is_constant()) return;
  const int64_t step = a.steps[0].value();
  const auto axis = static_cast<size_t>(a.axes[0]);
  const int64_t extent = array->extents[axis];
  const int64_t inner = eval::Product(array->extents, axis + 1, array->extents.size());
  const SliceSpan range = SliceRange(extent, a.starts[0].value(), a.ends[0].value(), step);
  std::vector<Dim> result;
  for (int64_t outer = 0; outer < eval::Product(array->extents, 0, axis); ++outer) {
    for (int64_t i = 0; i < range.count; ++i) {
      const int64_t at = outer * extent + range.first + (i == 0 ? 0 : i * step);
      const auto first = array->elements.begin() + at * inner;
      result.insert(result.end(), first, first + inner);
    }
  }
  c.SetContents(SliceOp::kOutput, std::move(result));
}

}  // namespace

void SliceOp::InferShape(InferShapeContext& c) {
  AssumeSameCounts(c);
  const SymShape in = c.shape(kData);
  if (!in.ranked) return c.SetShape(kOutput, {});
  const auto a = KnownArguments(c, in.rank());
  if (!a) return c.SetShape(kOutput, SymShape::OfRank(in.rank()));
  SymShape out = in;
  for (size_t i = 0; i < a->axes.size(); ++i) {
    Dim& dim = out.dims[static_cast<size_t>(a->axes[i])];
    dim = SliceCount(dim, a->starts[i], a->ends[i], a->steps[i]);
  }
  c.SetShape(kOutput, out);
  PublishSlice(c, *a);
}

void SliceOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kData);
  SliceArguments a{ToDims(ToInt64s(c.input(kStarts))), ToDims(ToInt64s(c.input(kEnds))), {}, {}};
  a.axes = c.HasInput(kAxes) ? ToInt64s(c.input(kAxes)) : DefaultAxes(a.starts.size());
  a.steps =
      c.HasInput(kSteps) ? ToDims(ToInt64s(c.input(kSteps))) : std::vector<Dim>(a.starts.size(), 1);
  Finish(a, x.shape().size());
  eval::View view = eval::View::Of(x);
  Shape shape = x.shape();
  for (size_t i = 0; i < a.axes.size(); ++i) {
    CheckStep(a.steps[i]);
    const auto axis = static_cast<size_t>(a.axes[i]);
    const int64_t step = a.steps[i].value();
    const SliceSpan range = SliceRange(shape[axis], a.starts[i].value(), a.ends[i].value(), step);
    shape[axis] = range.count;
    view.Advance(axis, range.first);
    // A step may exceed the tensor by far where only one element is taken.
    view.strides[axis] = range.count > 1 ? view.strides[axis] * step : 0;
  }
  c.SetOutput(kOutput, eval::Materialize(x, view, std::move(shape)));
}

// ---- pad ----

namespace {

struct PadAmounts {
  std::vector<Dim> begin, end;  // per axis of the data
};

PadAmounts SpreadPads(size_t rank, const std::vector<Dim>& pads, std::span<const int64_t> axes) {
  if (pads.size() != 2 * axes.size()) {
    FailShape("shape/pad", StrCat("pads has ", pads.size(), " entries for ", axes.size(), " axes"),
              "pads holds a begin per axis, then an end per axis");
  }
  PadAmounts result{std::vector<Dim>(rank, 0), std::vector<Dim>(rank, 0)};
  const auto normal = eval::NormalizeAxes(axes, static_cast<int64_t>(rank));
  for (size_t i = 0; i < normal.size(); ++i) {
    result.begin[static_cast<size_t>(normal[i])] = pads[i];
    result.end[static_cast<size_t>(normal[i])] = pads[normal.size() + i];
  }
  return result;
}

SymShape PadRule(const SymShape& in, const PadAmounts& pads) {
  std::vector<Dim> dims;
  for (size_t i = 0; i < in.rank(); ++i) {
    dims.push_back(in.dims[i] + pads.begin[i] + pads.end[i]);
    for (const Dim& left : {in.dims[i] + pads.begin[i], in.dims[i] + pads.end[i], dims.back()}) {
      Assume(SizeCondition::AtLeast(left, 0), "shape/pad", [&] {
        return StrCat("padding axis ", i, " by ", pads.begin[i].ToString(), " and ",
                      pads.end[i].ToString(), " removes more than its extent ",
                      in.dims[i].ToString());
      });
    }
  }
  return dims;
}

// The first `count` elements of the axis and the rest of the padding read these.
int64_t PadSource(int64_t at, int64_t count, std::string_view mode) {
  if (mode == "edge") return std::clamp<int64_t>(at, 0, count - 1);
  const int64_t period = mode == "wrap" ? count : std::max<int64_t>(2 * (count - 1), 1);
  const int64_t place = (at % period + period) % period;
  return place < count ? place : period - place;
}

// Where each element of a padded axis comes from. What a negative pad removes is never read.
std::vector<int64_t> PadIndices(int64_t extent, int64_t begin, int64_t end, std::string_view mode) {
  const int64_t skipped = std::max<int64_t>(-begin, 0);
  const int64_t count = extent - skipped - std::max<int64_t>(-end, 0);
  if (count <= 0) {
    FailShape("shape/pad", StrCat("there is nothing to fill the padding from in mode ", mode),
              "use mode constant");
  }
  std::vector<int64_t> indices;
  const int64_t first = -std::max<int64_t>(begin, 0);
  for (int64_t at = first; at < count + std::max<int64_t>(end, 0); ++at) {
    indices.push_back(skipped + PadSource(at, count, mode));
  }
  return indices;
}

// Where padding is to be filled from the input, there is something left of it.
void AssumeSources(const SymShape& in, const SymShape& out, const PadAmounts& pads) {
  const Dim any = Min(out.NumElements(), 1);
  for (size_t i = 0; i < in.rank(); ++i) {
    if (pads.begin[i].IsConstant(0) && pads.end[i].IsConstant(0)) continue;
    const Dim left = in.dims[i] + Min(pads.begin[i], 0) + Min(pads.end[i], 0);
    Assume(
        SizeCondition::AtLeast(left, any), "shape/pad",
        [] { return std::string("there is nothing to fill the padding from"); },
        "use mode constant");
  }
}

Tensor PadByCopies(const Tensor& x, const Shape& shape, const PadAmounts& pads,
                   std::string_view mode) {
  eval::CheckSize(x.element_type(), shape);
  if (NumElements(shape) == 0) return Tensor(x.element_type(), shape);
  Tensor result = x;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const int64_t begin = pads.begin[axis].value();
    const int64_t end = pads.end[axis].value();
    if (begin == 0 && end == 0) continue;
    result = eval::Take(result, axis, PadIndices(x.shape()[axis], begin, end, mode));
  }
  return result;
}

// Copies `x` into `out` so that element 0 of each axis lands at begin[axis], cut at both ends.
void Place(const Tensor& x, std::span<const int64_t> begin, Tensor& out) {
  eval::View from = eval::View::Of(x);
  eval::View to = eval::View::Of(out);
  std::vector<int64_t> extents;
  for (size_t axis = 0; axis < begin.size(); ++axis) {
    const int64_t skipped = std::max<int64_t>(-begin[axis], 0);
    const int64_t at = std::max<int64_t>(begin[axis], 0);
    const int64_t left = std::min(x.shape()[axis] - skipped, out.shape()[axis] - at);
    extents.push_back(std::max<int64_t>(left, 0));
    if (extents.back() == 0) return;
    from.Advance(axis, skipped);
    to.Advance(axis, at);
  }
  eval::CopyView(x, from, out, to, extents);
}

}  // namespace

void PadOp::InferShape(InferShapeContext& c) {
  const SymShape in = c.shape(kData);
  if (!in.ranked) return c.SetShape(kOutput, {});
  const auto pads = c.Contents(kPads);
  const auto axes = c.HasInput(kAxes) ? c.ConstantInts(kAxes) : DefaultAxes(in.rank());
  if (!pads || !axes) return c.SetShape(kOutput, SymShape::OfRank(in.rank()));
  const PadAmounts amounts = SpreadPads(in.rank(), *pads, *axes);
  const SymShape out = PadRule(in, amounts);
  if (PadOp(c.op()).mode() != "constant") AssumeSources(in, out, amounts);
  c.SetShape(kOutput, out);
}

void PadOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kData);
  const size_t rank = x.shape().size();
  const auto axes = c.HasInput(kAxes) ? ToInt64s(c.input(kAxes)) : DefaultAxes(rank);
  const PadAmounts pads = SpreadPads(rank, ToDims(ToInt64s(c.input(kPads))), axes);
  const Shape shape = Concrete(PadRule(SymShape::FromConstants(x.shape()), pads));
  const std::string_view mode = PadOp(c.op()).mode();
  if (mode != "constant") return c.SetOutput(kOutput, PadByCopies(x, shape, pads, mode));
  Tensor out(x.element_type(), shape);
  if (c.HasInput(kConstantValue) && c.input(kConstantValue).num_elements() > 0) {
    eval::Fill(out, c.input(kConstantValue));
  }
  std::vector<int64_t> begin;
  for (const Dim& dim : pads.begin) begin.push_back(dim.value());
  Place(x, begin, out);
  c.SetOutput(kOutput, std::move(out));
}

// ---- center_crop_pad ----

namespace {

SymShape CenterRule(const SymShape& in, const std::vector<Dim>& target,
                    const std::optional<std::vector<int64_t>>& axes_attribute) {
  const auto axes = axes_attribute.value_or(DefaultAxes(in.rank()));
  if (axes.size() != target.size()) {
    FailShape("shape/center-crop-pad",
              StrCat("shape has ", target.size(), " entries for ", axes.size(), " axes"));
  }
  SymShape out = in;
  const auto normal = eval::NormalizeAxes(axes, static_cast<int64_t>(in.rank()));
  for (size_t i = 0; i < normal.size(); ++i) {
    out.dims[static_cast<size_t>(normal[i])] = target[i];
    Assume(SizeCondition::AtLeast(target[i], 0), "shape/negative-dim",
           [&] { return StrCat("an extent of the shape is ", target[i].ToString()); });
  }
  return out;
}

}  // namespace

void CenterCropPadOp::InferShape(InferShapeContext& c) {
  const SymShape in = c.shape(kInputData);
  if (!in.ranked) return c.SetShape(kOutputData, {});
  const auto target = c.Contents(kShape);
  c.SetShape(kOutputData, target ? CenterRule(in, *target, CenterCropPadOp(c.op()).axes())
                                 : SymShape::OfRank(in.rank()));
}

void CenterCropPadOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kInputData);
  const SymShape rule =
      CenterRule(SymShape::FromConstants(x.shape()), ToDims(ToInt64s(c.input(kShape))),
                 CenterCropPadOp(c.op()).axes());
  Tensor out(x.element_type(), Concrete(rule));
  std::vector<int64_t> begin;
  for (size_t i = 0; i < x.shape().size(); ++i) {
    const int64_t have = x.shape()[i];
    const int64_t want = out.shape()[i];
    begin.push_back(want >= have ? (want - have) / 2 : -((have - want) / 2));
  }
  Place(x, begin, out);
  c.SetOutput(kOutputData, std::move(out));
}

// ---- reverse_sequence ----

namespace {

void CheckSequenceAxes(ReverseSequenceOp op) {
  const int64_t batch = op.batch_axis();
  const int64_t time = op.time_axis();
  if ((batch == 0 && time == 1) || (batch == 1 && time == 0)) return;
  FailShape("shape/reverse-sequence", StrCat("batch_axis is ", batch, " and time_axis is ", time),
            "one must be 0 and the other 1");
}

void AssumeLengths(const Dim& lengths, const Dim& sequences) {
  Assume(SizeCondition::Equal(lengths, sequences), "shape/reverse-sequence", [&] {
    return StrCat("there are ", lengths.ToString(), " lengths for ", sequences.ToString(),
                  " sequences");
  });
}

void CheckLengths(std::span<const int64_t> lengths, int64_t extent) {
  for (const int64_t length : lengths) {
    if (length >= 0 && length <= extent) continue;
    throw Error(ErrorCode::kInvalidArgument, "run/index",
                StrCat("a sequence length is ", length, ", but there are ", extent, " steps"));
  }
}

std::vector<int64_t> ReversedSteps(int64_t length, int64_t extent) {
  std::vector<int64_t> steps(static_cast<size_t>(extent));
  for (int64_t t = 0; t < extent; ++t) {
    steps[static_cast<size_t>(t)] = t < length ? length - 1 - t : t;
  }
  return steps;
}

}  // namespace

void ReverseSequenceOp::InferShape(InferShapeContext& c) {
  CheckSequenceAxes(ReverseSequenceOp(c.op()));
  const SymShape in = c.shape(kInput);
  if (in.ranked && in.rank() < 2) {
    c.Fail("shape/reverse-sequence", "the input must have a batch and a time axis");
  }
  if (in.ranked && c.shape(kSequenceLens).ranked) {
    const Dim count = c.shape(kSequenceLens).NumElements();
    AssumeLengths(count, in.dims[static_cast<size_t>(ReverseSequenceOp(c.op()).batch_axis())]);
  }
  c.SetShape(kOutput, in);
}

void ReverseSequenceOp::Eval(EvalContext& c) {
  const ReverseSequenceOp op(c.op());
  CheckSequenceAxes(op);
  const Tensor& x = c.input(kInput);
  if (x.rank() < 2) FailShape("shape/reverse-sequence", "the input must have rank 2 or more");
  const auto batch = static_cast<size_t>(op.batch_axis());
  const auto time = static_cast<size_t>(op.time_axis());
  const auto lengths = ToInt64s(c.input(kSequenceLens));
  AssumeLengths(std::ssize(lengths), x.shape()[batch]);
  CheckLengths(lengths, x.shape()[time]);
  if (x.num_elements() == 0) return c.SetOutput(kOutput, x);
  std::vector<Tensor> parts;
  for (size_t b = 0; b < lengths.size(); ++b) {
    const Tensor part = eval::Narrow(x, batch, static_cast<int64_t>(b), 1);
    parts.push_back(eval::Take(part, time, ReversedSteps(lengths[b], x.shape()[time])));
  }
  c.SetOutput(kOutput, eval::Concatenate(parts, batch));
}

// ---- trilu ----

void TriluOp::InferShape(InferShapeContext& c) {
  const SymShape in = c.shape(kInput);
  if (in.ranked && in.rank() < 2) {
    c.Fail("shape/trilu", StrCat("the input must have rank 2 or more, not ", in.rank()));
  }
  c.SetShape(kOutput, in);
}

void TriluOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kInput);
  if (x.rank() < 2) FailShape("shape/trilu", "the input must have rank 2 or more");
  const int64_t rows = x.dim(-2);
  const int64_t columns = x.dim(-1);
  const int64_t given = c.HasInput(kK) ? eval::ScalarInt(c.input(kK), "k") : 0;
  // A diagonal that far off leaves all or nothing; clamped, the sums below cannot overflow.
  const int64_t k = std::clamp(given, -rows - 1, columns + 1);
  Tensor out(x.element_type(), x.shape());
  const eval::ElementMover mover(x, out);
  const bool upper = TriluOp(c.op()).upper();
  for (int64_t at = 0, row = 0; at < x.num_elements(); at += columns, ++row) {
    const int64_t diagonal = row % rows + k;
    const int64_t begin = upper ? std::clamp<int64_t>(diagonal, 0, columns) : 0;
    const int64_t end = upper ? columns : std::clamp<int64_t>(diagonal + 1, 0, columns);
    mover.Copy(at + begin, at + begin, end - begin);
  }
  c.SetOutput(kOutput, std::move(out));
}

}  // namespace lathe::nn
