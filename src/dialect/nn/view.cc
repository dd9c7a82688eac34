// Views of tensors and the values that stand for a write through one.
#include "lathe/dialect/nn/view.h"

#include <numeric>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "src/dialect/contents.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/reshape.h"
#include "src/dialect/nn/slice.h"

namespace lathe::nn {

using eval::FailShape;

namespace {

// The attributes of a slice, one entry per axis that it names.
struct Slice {
  std::vector<int64_t> starts, ends, steps, axes;
};

template <class OpT>
Slice SliceOf(OpT op, size_t rank) {
  Slice s{op.starts(), op.ends(), {}, {}};
  s.axes.resize(s.starts.size());
  std::iota(s.axes.begin(), s.axes.end(), 0);
  s.steps.assign(s.starts.size(), 1);
  if (const auto axes = op.axes()) s.axes = *axes;
  if (const auto steps = op.steps()) s.steps = *steps;
  const size_t n = s.starts.size();
  if (s.ends.size() != n || s.axes.size() != n || s.steps.size() != n) {
    FailShape("shape/slice", StrCat("starts, ends, axes and steps have ", n, ", ", s.ends.size(),
                                    ", ", s.axes.size(), " and ", s.steps.size(), " entries"));
  }
  s.axes = eval::NormalizeAxes(s.axes, static_cast<int64_t>(rank));
  return s;
}

template <class OpT>
SymShape SlicedShape(OpT op, SymShape in) {
  if (!in.ranked) return in;
  const Slice s = SliceOf(op, in.rank());
  for (size_t i = 0; i < s.axes.size(); ++i) {
    Dim& dim = in.dims[static_cast<size_t>(s.axes[i])];
    dim = SliceCount(dim, s.starts[i], s.ends[i], s.steps[i]);
  }
  return in;
}

// Where the elements of a view lie in the tensor, and its shape.
struct Place {
  eval::View view;
  Shape shape;
};

template <class OpT>
Place SlicePlace(OpT op, const Tensor& x) {
  const Slice s = SliceOf(op, x.shape().size());
  Place p{eval::View::Of(x), x.shape()};
  for (size_t i = 0; i < s.axes.size(); ++i) {
    if (s.steps[i] == 0) FailShape("shape/slice-step", "a slice has step 0");
    const auto axis = static_cast<size_t>(s.axes[i]);
    const SliceSpan span = SliceRange(p.shape[axis], s.starts[i], s.ends[i], s.steps[i]);
    p.shape[axis] = span.count;
    p.view.Advance(axis, span.first);
    // A step may exceed the tensor by far where only one element is taken.
    p.view.strides[axis] = span.count > 1 ? p.view.strides[axis] * s.steps[i] : 0;
  }
  return p;
}

template <class OpT>
SymShape SelectedShape(OpT op, SymShape in) {
  if (!in.ranked) return in;
  const auto axis =
      static_cast<size_t>(eval::NormalizeAxis(op.axis(), static_cast<int64_t>(in.rank())));
  const Dim& extent = in.dims[axis];
  const int64_t index = op.index();
  if (extent.is_constant()) (void)eval::CheckIndex(index, extent.value(), "the index");
  Assume(SizeCondition::AtLeast(extent, index < 0 ? Dim(0) - index : Dim(index) + 1), "run/index",
         [&] {
           return StrCat("the index ", index, " is out of range: there are ", extent.ToString());
         });
  in.dims.erase(in.dims.begin() + static_cast<std::ptrdiff_t>(axis));
  return in;
}

template <class OpT>
Place SelectPlace(OpT op, const Tensor& x) {
  const auto axis = static_cast<size_t>(eval::NormalizeAxis(op.axis(), x.rank()));
  Place p{eval::View::Of(x), x.shape()};
  p.view.Advance(axis, eval::CheckIndex(op.index(), x.shape()[axis], "the index"));
  p.view.strides.erase(p.view.strides.begin() + static_cast<std::ptrdiff_t>(axis));
  p.shape.erase(p.shape.begin() + static_cast<std::ptrdiff_t>(axis));
  return p;
}

void ExpectValueShape(const SymShape& value, const SymShape& view) {
  if (!value.ranked || !view.ranked) return;
  const auto message = [&] {
    return StrCat("the value has shape ", value.ToString(), ", the place it is written to ",
                  view.ToString());
  };
  if (value.rank() != view.rank()) FailShape("shape/scatter", message());
  for (size_t i = 0; i < view.rank(); ++i) {
    Assume(SizeCondition::Equal(value.dims[i], view.dims[i]), "shape/scatter", message);
  }
}

Tensor Written(const Tensor& x, const Tensor& value, const Place& place) {
  ExpectValueShape(SymShape::FromConstants(value.shape()), SymShape::FromConstants(place.shape));
  Tensor result = x.Clone();
  eval::CopyView(value, eval::View::Of(value), result, place.view, place.shape);
  return result;
}

std::vector<size_t> PermOf(ViewTransposeOp op, size_t rank) {
  const std::vector<int64_t> perm = op.perm();
  if (perm.size() != rank) {
    FailShape("shape/transpose",
              StrCat("perm has ", perm.size(), " entries for a tensor of rank ", rank));
  }
  const auto axes = eval::NormalizeAxes(perm, static_cast<int64_t>(rank));
  return {axes.begin(), axes.end()};
}

// Each axis takes the next `groups` axes of the operand.
SymShape GroupedShape(const SymShape& in, std::span<const int64_t> shape,
                      std::span<const int64_t> groups) {
  if (!in.ranked) return SymShape::OfRank(groups.size());
  const auto fail = [&](const std::string& why) {
    FailShape("shape/reshape", StrCat("a view of ", in.ToString(), " by groups of axes: ", why));
  };
  if (shape.size() != groups.size()) fail("shape and groups differ in length");
  SymShape out = SymShape::OfRank(groups.size());
  size_t next = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i] < 0 || groups[i] > static_cast<int64_t>(in.rank() - next)) {
      fail("there are fewer axes");
    }
    out.dims[i] = 1;
    for (int64_t k = 0; k < groups[i]; ++k) out.dims[i] *= in.dims[next++];
    if (shape[i] == -1) continue;
    Assume(SizeCondition::Equal(out.dims[i], shape[i]), "shape/reshape",
           [&] { return StrCat("a view of ", in.ToString(), " has no extent ", shape[i]); });
    out.dims[i] = shape[i];
  }
  if (next != in.rank()) fail("there are more axes");
  return out;
}

SymShape ReshapedShape(ViewReshapeOp op, const SymShape& in) {
  if (const auto groups = op.groups()) return GroupedShape(in, op.shape(), *groups);
  return ReshapeRule(in, ToDims(op.shape()), true);
}

}  // namespace

// ---- slice ----

void ViewSliceOp::InferShape(InferShapeContext& c) {
  c.SetShape(kY, SlicedShape(ViewSliceOp(c.op()), c.shape(kX)));
}

void ViewSliceOp::Eval(EvalContext& c) {
  Place p = SlicePlace(ViewSliceOp(c.op()), c.input(kX));
  c.SetOutput(kY, eval::Materialize(c.input(kX), p.view, std::move(p.shape)));
}

void SliceScatterOp::InferShape(InferShapeContext& c) {
  ExpectValueShape(c.shape(kValue), SlicedShape(SliceScatterOp(c.op()), c.shape(kX)));
  c.SetShape(kY, c.shape(kX));
}

void SliceScatterOp::Eval(EvalContext& c) {
  const Place p = SlicePlace(SliceScatterOp(c.op()), c.input(kX));
  c.SetOutput(kY, Written(c.input(kX), c.input(kValue), p));
}

// ---- select ----

void ViewSelectOp::InferShape(InferShapeContext& c) {
  c.SetShape(kY, SelectedShape(ViewSelectOp(c.op()), c.shape(kX)));
}

void ViewSelectOp::Eval(EvalContext& c) {
  Place p = SelectPlace(ViewSelectOp(c.op()), c.input(kX));
  c.SetOutput(kY, eval::Materialize(c.input(kX), p.view, std::move(p.shape)));
}

void SelectScatterOp::InferShape(InferShapeContext& c) {
  ExpectValueShape(c.shape(kValue), SelectedShape(SelectScatterOp(c.op()), c.shape(kX)));
  c.SetShape(kY, c.shape(kX));
}

void SelectScatterOp::Eval(EvalContext& c) {
  const Place p = SelectPlace(SelectScatterOp(c.op()), c.input(kX));
  c.SetOutput(kY, Written(c.input(kX), c.input(kValue), p));
}

// ---- reshape, transpose ----

void ViewReshapeOp::InferShape(InferShapeContext& c) {
  c.SetShape(kY, ReshapedShape(ViewReshapeOp(c.op()), c.shape(kX)));
}

void ViewReshapeOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kX);
  const SymShape in = SymShape::FromConstants(x.shape());
  c.SetOutput(kY, x.Reshaped(eval::Concrete(ReshapedShape(ViewReshapeOp(c.op()), in))));
}

void ViewTransposeOp::InferShape(InferShapeContext& c) {
  const SymShape in = c.shape(kX);
  const ViewTransposeOp op(c.op());
  if (!in.ranked) return c.SetShape(kY, SymShape::OfRank(op.perm().size()));
  std::vector<Dim> dims;
  for (const size_t axis : PermOf(op, in.rank())) dims.push_back(in.dims[axis]);
  c.SetShape(kY, std::move(dims));
}

void ViewTransposeOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kX);
  c.SetOutput(kY, eval::Permute(x, PermOf(ViewTransposeOp(c.op()), x.shape().size())));
}

// ---- copy ----

void CopyOp::InferShape(InferShapeContext& c) {
  ExpectBroadcastableTo(c, kB, c.shape(kA), "b");
  c.SetShape(kC, c.shape(kA));
}

void CopyOp::Eval(EvalContext& c) {
  c.SetOutput(kC, eval::BroadcastTo(c.input(kB), c.input(kA).shape()));
}

}  // namespace lathe::nn
