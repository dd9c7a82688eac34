#include "src/transform/view_values.h"

#include <algorithm>
#include <numeric>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/ir/context.h"

namespace lathe {

namespace {

using nn::ViewReshapeOp;
using nn::ViewSelectOp;
using nn::ViewSliceOp;
using nn::ViewTransposeOp;

Value Call(Rewriter& r, const char* name, std::span<const Value> operands,
           std::span<const NamedAttribute> attributes = {}) {
  return r.Create(name, operands, attributes)->result(0);
}

Value IntList(Rewriter& r, const std::vector<int64_t>& values) {
  return r.Constant(Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values));
}

Value Slice(Rewriter& r, ViewSliceOp op, Value base) {
  const std::vector<int64_t> starts = op.starts();
  std::vector<int64_t> axes(starts.size());
  std::iota(axes.begin(), axes.end(), 0);
  const Value operands[] = {base, IntList(r, starts), IntList(r, op.ends()),
                            IntList(r, op.axes().value_or(axes)),
                            IntList(r, op.steps().value_or(std::vector<int64_t>(axes.size(), 1)))};
  return Call(r, nn::kSlice, operands);
}

Value Select(Rewriter& r, ViewSelectOp op, Value base) {
  const Value operands[] = {base, r.Constant(Tensor::Scalar<int64_t>(op.index()))};
  const NamedAttribute axis = r.Named("axis", r.Attr(op.axis()));
  return Call(r, nn::kGather, operands, {&axis, 1});
}

Value Reshape(Rewriter& r, Value x, Value shape, bool allow_zero) {
  const Value operands[] = {x, shape};
  if (!allow_zero) return Call(r, nn::kReshape, operands);
  const NamedAttribute attribute = r.Named("allowzero", r.Attr(true));
  return Call(r, nn::kReshape, operands, {&attribute, 1});
}

Value Reshape(Rewriter& r, Value x, const std::vector<int64_t>& shape) {
  const bool zero = std::find(shape.begin(), shape.end(), 0) != shape.end();
  return Reshape(r, x, IntList(r, shape), zero);
}

Value ReshapeLike(Rewriter& r, Value x, Value like) {
  const auto type = like.type().cast<AnyTensorType>();
  if (type.is_static()) {
    const Shape shape = *type.shape().Constants();
    return Reshape(r, x, {shape.begin(), shape.end()});
  }
  return Reshape(r, x, Call(r, nn::kShape, {&like, 1}), true);
}

Value Transpose(Rewriter& r, Value x, std::span<const int64_t> perm) {
  const NamedAttribute attribute = r.Named("perm", r.Attr(perm));
  return Call(r, nn::kTranspose, {&x, 1}, {&attribute, 1});
}

std::vector<int64_t> InversePermutation(const std::vector<int64_t>& perm) {
  const auto rank = static_cast<int64_t>(perm.size());
  std::vector<int64_t> inverse(perm.size());
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t axis = perm[static_cast<size_t>(i)];
    inverse[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = i;
  }
  return inverse;
}

Value Scatter(Rewriter& r, const char* name, Operation* view, Value base, Value value) {
  const Value operands[] = {base, value};
  return Call(r, name, operands, view->attributes().entries());
}

}  // namespace

std::string ValueTwin(const Operation* op) {
  std::string name(op->name());
  if (!name.ends_with('_') || op->num_results() != 1) return {};
  name.pop_back();
  const OpInfo info = op->context()->FindOp(name);
  return info && info.is_registered() && info.HasTrait<HasValueSemantics>() ? name : std::string();
}

bool IsKnownView(const Operation* view) {
  return view->isa<ViewSliceOp>() || view->isa<ViewSelectOp>() || view->isa<ViewTransposeOp>() ||
         (view->isa<ViewReshapeOp>() && !view->attribute("groups"));
}

bool ShowsEverything(const Operation* view) {
  return view->isa<ViewReshapeOp>() || view->isa<ViewTransposeOp>();
}

Value ReadView(Rewriter& r, Operation* view, Value base) {
  if (const auto slice = view->dyn_cast<ViewSliceOp>()) return Slice(r, slice, base);
  if (const auto select = view->dyn_cast<ViewSelectOp>()) return Select(r, select, base);
  if (const auto reshape = view->dyn_cast<ViewReshapeOp>()) {
    return Reshape(r, base, reshape.shape());
  }
  return Transpose(r, base, view->cast<ViewTransposeOp>().perm());
}

Value WriteView(Rewriter& r, Operation* view, Value base, Value value) {
  if (view->isa<ViewSliceOp>()) return Scatter(r, nn::kSliceScatter, view, base, value);
  if (view->isa<ViewSelectOp>()) return Scatter(r, nn::kSelectScatter, view, base, value);
  if (view->isa<ViewReshapeOp>()) return ReshapeLike(r, value, base);
  return Transpose(r, value, InversePermutation(view->cast<ViewTransposeOp>().perm()));
}

}  // namespace lathe
