#include "lathe/dialect/nn/indexing.h"

#include <algorithm>
#include <complex>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/dispatch.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "src/dialect/contents.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/scatter.h"

namespace lathe::nn {

using eval::CheckIndex;
using eval::Concrete;
using eval::FailShape;

// ---- gather ----

namespace {

SymShape GatherRule(const SymShape& data, const SymShape& indices, int64_t axis_attribute) {
  if (!data.ranked) return {};
  const int64_t axis = eval::NormalizeAxis(axis_attribute, static_cast<int64_t>(data.rank()));
  if (!indices.ranked) return {};
  std::vector<Dim> dims(data.dims.begin(), data.dims.begin() + axis);
  dims.insert(dims.end(), indices.dims.begin(), indices.dims.end());
  dims.insert(dims.end(), data.dims.begin() + axis + 1, data.dims.end());
  return dims;
}

void PublishGather(InferShapeContext& c) {
  const auto contents = SmallContents(c, GatherOp::kData);
  const auto indices = c.ConstantInts(GatherOp::kIndices);
  if (!contents || !indices || indices->size() > kMaxContents) return;
  const auto count = static_cast<int64_t>(contents->size());
  std::vector<Dim> result;
  for (const int64_t index : *indices) {
    if (index < -count || index >= count) return;
    result.push_back((*contents)[static_cast<size_t>(index < 0 ? index + count : index)]);
  }
  c.SetContents(GatherOp::kOutput, std::move(result));
}

}  // namespace

void GatherOp::InferShape(InferShapeContext& c) {
  const SymShape out = GatherRule(c.shape(kData), c.shape(kIndices), GatherOp(c.op()).axis());
  c.SetShape(kOutput, out);
  if (out.ranked && out.rank() <= 1) PublishGather(c);
}

void GatherOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kData);
  const Tensor& picks = c.input(kIndices);
  const int64_t attribute = GatherOp(c.op()).axis();
  const SymShape out = GatherRule(SymShape::FromConstants(x.shape()),
                                  SymShape::FromConstants(picks.shape()), attribute);
  const auto axis = static_cast<size_t>(eval::NormalizeAxis(attribute, x.rank()));
  auto indices = ToInt64s(picks);
  for (int64_t& index : indices) index = CheckIndex(index, x.shape()[axis], "index");
  c.SetOutput(kOutput, eval::Take(x, axis, indices).Reshaped(Concrete(out)));
}

// ---- gather_elements, scatter_elements ----

namespace {

// The operands must agree in rank, and `indices` must lie within the data but for the axis.
size_t CheckElementwise(const SymShape& data, const SymShape& indices, int64_t axis_attribute) {
  const auto rank = static_cast<int64_t>(data.rank());
  const auto axis = static_cast<size_t>(eval::NormalizeAxis(axis_attribute, rank));
  if (indices.rank() != data.rank()) {
    FailShape("shape/gather-elements",
              StrCat("indices have rank ", indices.rank(), ", the data has rank ", data.rank()));
  }
  for (size_t i = 0; i < data.rank(); ++i) {
    if (i == axis) continue;
    Assume(SizeCondition::AtLeast(data.dims[i], indices.dims[i]), "shape/gather-elements", [&] {
      return StrCat("indices of shape ", indices.ToString(), " exceed the data of shape ",
                    data.ToString(), " at axis ", i);
    });
  }
  return axis;
}

// For each index, in row-major order, the place in the data of its own coordinates with that of the
// axis replaced.
std::vector<int64_t> ElementPlaces(const Tensor& data, const Tensor& indices, int64_t attribute) {
  const size_t axis = CheckElementwise(SymShape::FromConstants(data.shape()),
                                       SymShape::FromConstants(indices.shape()), attribute);
  const auto strides = eval::RowMajorStrides(data.shape());
  std::vector<int64_t> places = ToInt64s(indices);
  std::vector<int64_t> at(indices.shape().size(), 0);
  for (int64_t& place : places) {
    place = CheckIndex(place, data.shape()[axis], "index") * strides[axis];
    for (size_t i = 0; i < at.size(); ++i) {
      if (i != axis) place += at[i] * strides[i];
    }
    (void)eval::NextIndex(indices.shape(), at);
  }
  return places;
}

}  // namespace

void GatherElementsOp::InferShape(InferShapeContext& c) {
  const SymShape data = c.shape(kData);
  const SymShape indices = c.shape(kIndices);
  if (data.ranked && indices.ranked) {
    CheckElementwise(data, indices, GatherElementsOp(c.op()).axis());
  }
  c.SetShape(kOutput, indices.ranked || !data.ranked ? indices : SymShape::OfRank(data.rank()));
}

void GatherElementsOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kData);
  const auto places = ElementPlaces(x, c.input(kIndices), GatherElementsOp(c.op()).axis());
  Tensor out(x.element_type(), c.input(kIndices).shape());
  const eval::ElementMover mover(x, out);
  for (size_t i = 0; i < places.size(); ++i) mover.Copy(static_cast<int64_t>(i), places[i]);
  c.SetOutput(kOutput, std::move(out));
}

// ---- gather_nd ----

namespace {

// How many leading axes of the data one tuple of coordinates names, after the batch axes.
int64_t TupleLength(const SymShape& data, const SymShape& indices, int64_t batch) {
  if (indices.rank() == 0) FailShape("shape/gather-nd", "indices must have rank 1 or more");
  const Dim& last = indices.dims.back();
  const auto rank = static_cast<int64_t>(data.rank());
  if (batch >= static_cast<int64_t>(indices.rank()) || batch > rank) {
    FailShape("shape/gather-nd", StrCat("batch_dims ", batch, " is too large for data of rank ",
                                        rank, " and indices of rank ", indices.rank()));
  }
  Assume(SizeCondition::AtLeast(rank - batch, last), "shape/gather-nd", [&] {
    return StrCat("tuples of ", last.ToString(), " coordinates into data of rank ", rank, " with ",
                  batch, " batch axes");
  });
  return last.is_constant() ? last.value() : -1;
}

void CheckBatch(const SymShape& data, const SymShape& indices, int64_t batch) {
  for (size_t i = 0; i < static_cast<size_t>(batch); ++i) {
    Assume(SizeCondition::Equal(data.dims[i], indices.dims[i]), "shape/gather-nd", [&] {
      return StrCat("batch axis ", i, " has extent ", data.dims[i].ToString(), " in the data and ",
                    indices.dims[i].ToString(), " in the indices");
    });
  }
}

SymShape GatherNdRule(const SymShape& data, const SymShape& indices, int64_t batch) {
  if (!data.ranked || !indices.ranked) return {};
  const int64_t length = TupleLength(data, indices, batch);
  CheckBatch(data, indices, batch);
  if (length < 0) return {};
  std::vector<Dim> dims(indices.dims.begin(), indices.dims.end() - 1);
  dims.insert(dims.end(), data.dims.begin() + batch + length, data.dims.end());
  return dims;
}

// Where the slice that each tuple names begins in the data.
std::vector<int64_t> TuplePlaces(const Tensor& data, const Tensor& indices, size_t batch) {
  const auto strides = eval::RowMajorStrides(data.shape());
  const auto coordinates = ToInt64s(indices);
  const Shape& shape = indices.shape();
  const auto length = static_cast<size_t>(shape.back());
  const int64_t count = NumElements(std::span(shape).first(shape.size() - 1));
  const int64_t batches = NumElements(std::span(shape).first(batch));
  const int64_t per_batch = batches == 0 ? 1 : count / batches;
  const int64_t batch_stride = batch == 0 ? 0 : strides[batch - 1];
  std::vector<int64_t> places(static_cast<size_t>(count));
  for (size_t t = 0; t < places.size(); ++t) {
    places[t] = static_cast<int64_t>(t) / per_batch * batch_stride;
    for (size_t k = 0; k < length; ++k) {
      const int64_t extent = data.shape()[batch + k];
      places[t] += CheckIndex(coordinates[t * length + k], extent, "index") * strides[batch + k];
    }
  }
  return places;
}

}  // namespace

void GatherNdOp::InferShape(InferShapeContext& c) {
  c.SetShape(kOutput,
             GatherNdRule(c.shape(kData), c.shape(kIndices), GatherNdOp(c.op()).batch_dims()));
}

void GatherNdOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kData);
  const Tensor& indices = c.input(kIndices);
  const int64_t batch = GatherNdOp(c.op()).batch_dims();
  const Shape shape = Concrete(GatherNdRule(SymShape::FromConstants(x.shape()),
                                            SymShape::FromConstants(indices.shape()), batch));
  Tensor out(x.element_type(), shape);
  const bool nothing = out.num_elements() == 0;
  if (nothing && indices.num_elements() == 0) return c.SetOutput(kOutput, std::move(out));
  const auto places = TuplePlaces(x, indices, static_cast<size_t>(batch));
  if (nothing) return c.SetOutput(kOutput, std::move(out));
  const int64_t inner = out.num_elements() / static_cast<int64_t>(places.size());
  const eval::ElementMover mover(x, out);
  for (size_t t = 0; t < places.size(); ++t) {
    mover.Copy(static_cast<int64_t>(t) * inner, places[t], inner);
  }
  c.SetOutput(kOutput, std::move(out));
}

// ---- one_hot ----

namespace {

size_t OneHotAxis(int64_t axis, size_t rank) {
  return static_cast<size_t>(eval::NormalizeAxis(axis, static_cast<int64_t>(rank) + 1));
}

SymShape OneHotRule(const SymShape& indices, const Dim& depth, int64_t axis) {
  if (!indices.ranked) return {};
  Assume(SizeCondition::AtLeast(depth, 0), "shape/negative-dim",
         [&] { return StrCat("the depth is ", depth.ToString()); });
  std::vector<Dim> dims = indices.dims;
  const size_t at = OneHotAxis(axis, indices.rank());
  dims.insert(dims.begin() + static_cast<ptrdiff_t>(at), depth);
  return dims;
}

// The class of each index, or -1 if it is outside [-depth, depth).
std::vector<int64_t> Classes(const Tensor& indices, int64_t depth) {
  std::vector<int64_t> classes = ToInt64s(indices);
  const bool is_signed = IsSigned(indices.element_type());
  for (int64_t& value : classes) {
    const bool inside = value < depth && (is_signed ? value >= -depth : value >= 0);
    if (!inside) {
      value = -1;
    } else if (value < 0) {
      value += depth;
    }
  }
  return classes;
}

}  // namespace

void OneHotOp::InferShape(InferShapeContext& c) {
  if (c.shape(kValues).ranked) {
    Assume(SizeCondition::Equal(c.shape(kValues).NumElements(), 2), "shape/one-hot",
           [&] { return StrCat("values must be [off, on], not ", c.shape(kValues).ToString()); });
  }
  Dim depth;
  if (const Tensor* constant = c.Constant(kDepth); constant && constant->num_elements() == 1) {
    depth = ToInt64s(*constant)[0];
  } else if (const auto contents = SmallContents(c, kDepth); contents && contents->size() == 1) {
    depth = contents->front();
  }
  c.SetShape(kOutput, OneHotRule(c.shape(kIndices), depth, OneHotOp(c.op()).axis()));
}

void OneHotOp::Eval(EvalContext& c) {
  const Tensor& indices = c.input(kIndices);
  const Tensor& values = c.input(kValues);
  if (values.num_elements() != 2) {
    FailShape("shape/one-hot", StrCat("values must be [off, on], not ", values.TypeString()));
  }
  const int64_t depth = eval::ScalarInt(c.input(kDepth), "depth");
  const int64_t attribute = OneHotOp(c.op()).axis();
  Tensor out(values.element_type(),
             Concrete(OneHotRule(SymShape::FromConstants(indices.shape()), depth, attribute)));
  eval::Fill(out, values);
  const size_t axis = OneHotAxis(attribute, indices.shape().size());
  const int64_t inner = eval::Product(indices.shape(), axis, indices.shape().size());
  const auto classes = Classes(indices, depth);
  const eval::ElementMover mover(values, out);
  for (size_t i = 0; i < classes.size(); ++i) {
    if (classes[i] < 0) continue;
    const int64_t o = static_cast<int64_t>(i) / inner;
    const int64_t rest = static_cast<int64_t>(i) % inner;
    mover.Copy((o * depth + classes[i]) * inner + rest, 1);
  }
  c.SetOutput(kOutput, std::move(out));
}

// ---- non_zero ----

namespace {

// Whether each element differs from zero (or from the empty string).
std::vector<bool> NonZeros(const Tensor& x) {
  std::vector<bool> result;
  const auto test = [&result](const auto& values, const auto& is_zero) {
    for (const auto& value : values) result.push_back(!is_zero(value));
  };
  switch (x.element_type()) {
    case ElementType::kString:
      test(x.data<std::string>(), [](const std::string& s) { return s.empty(); });
      break;
    case ElementType::kC64:
      test(x.data<std::complex<float>>(), [](auto z) { return z.real() == 0 && z.imag() == 0; });
      break;
    case ElementType::kC128:
      test(x.data<std::complex<double>>(), [](auto z) { return z.real() == 0 && z.imag() == 0; });
      break;
    default:
      test(ToDoubles(x), [](double v) { return v == 0; });
  }
  return result;
}

}  // namespace

void NonZeroOp::InferShape(InferShapeContext& c) {
  const SymShape in = c.shape(kX);
  c.SetShape(kY, {in.ranked ? Dim(static_cast<int64_t>(in.rank())) : Dim(), Dim()});
}

void NonZeroOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kX);
  const auto flags = NonZeros(x);
  const auto count = std::count(flags.begin(), flags.end(), true);
  Tensor out(ElementType::kI64, {x.rank(), count});
  auto coordinates = out.mutable_data<int64_t>();
  std::vector<int64_t> index(x.shape().size(), 0);
  size_t found = 0;
  for (const bool flag : flags) {
    for (size_t axis = 0; flag && axis < index.size(); ++axis) {
      coordinates[axis * static_cast<size_t>(count) + found] = index[axis];
    }
    found += flag ? 1 : 0;
    (void)eval::NextIndex(x.shape(), index);
  }
  c.SetOutput(kY, std::move(out));
}

// ---- scatter_elements, scatter_nd ----

namespace {

SymShape BetterOf(const SymShape& a, const SymShape& b) { return a.ranked ? a : b; }

void AssumeUpdates(const SymShape& updates, const SymShape& expected) {
  const auto message = [&] {
    return StrCat("updates have shape ", updates.ToString(), ", but ", expected.ToString(),
                  " is expected");
  };
  if (expected.rank() != updates.rank()) FailShape("shape/scatter", message());
  for (size_t i = 0; i < expected.rank(); ++i) {
    Assume(SizeCondition::Equal(expected.dims[i], updates.dims[i]), "shape/scatter", message);
  }
}

// The ranks say how long tuples are.
void AssumeTuples(const SymShape& data, SymShape& indices, const SymShape& updates) {
  if (!data.ranked || !updates.ranked || !indices.ranked || indices.rank() == 0) return;
  Dim& last = indices.dims.back();
  const auto length =
      static_cast<int64_t>(indices.rank() - 1 + data.rank()) - static_cast<int64_t>(updates.rank());
  if (last.is_constant() || length < 0 || length > static_cast<int64_t>(data.rank())) return;
  Assume(SizeCondition::Equal(last, length), "shape/scatter", [&] {
    return StrCat("updates have shape ", updates.ToString(), ", so that tuples have ", length,
                  " coordinates, and not ", last.ToString());
  });
  last = length;
}

}  // namespace

void ScatterElementsOp::InferShape(InferShapeContext& c) {
  const SymShape data = c.shape(kData);
  const SymShape updates = c.shape(kUpdates);
  const SymShape indices = BetterOf(c.shape(kIndices), updates);
  if (indices.ranked && updates.ranked) AssumeUpdates(updates, indices);
  if (data.ranked && indices.ranked) {
    CheckElementwise(data, indices, ScatterElementsOp(c.op()).axis());
  }
  c.SetShape(kOutput, data);
}

void ScatterElementsOp::Eval(EvalContext& c) {
  const ScatterElementsOp op(c.op());
  const Tensor& indices = c.input(kIndices);
  const Tensor& updates = c.input(kUpdates);
  if (updates.shape() != indices.shape()) {
    FailShape("shape/scatter",
              StrCat("updates are ", updates.TypeString(), ", indices are ", indices.TypeString()),
              "both must have the same shape");
  }
  const auto places = ElementPlaces(c.input(kData), indices, op.axis());
  c.SetOutput(kOutput, Scatter(c.input(kData), updates, places, op.reduction()));
}

void ScatterNdOp::InferShape(InferShapeContext& c) {
  const SymShape data = c.shape(kData), updates = c.shape(kUpdates);
  SymShape indices = c.shape(kIndices);
  AssumeTuples(data, indices, updates);
  const SymShape expected = GatherNdRule(data, indices, 0);
  if (expected.ranked && updates.ranked) AssumeUpdates(updates, expected);
  c.SetShape(kOutput, data);
}

void ScatterNdOp::Eval(EvalContext& c) {
  const Tensor& data = c.input(kData);
  const Tensor& indices = c.input(kIndices);
  const Tensor& updates = c.input(kUpdates);
  const Shape expected = Concrete(GatherNdRule(SymShape::FromConstants(data.shape()),
                                               SymShape::FromConstants(indices.shape()), 0));
  if (updates.shape() != expected) {
    FailShape("shape/scatter", StrCat("updates are ", updates.TypeString(), ", but shape ",
                                      ShapeToString(expected), " is expected"));
  }
  if (updates.num_elements() == 0 && indices.num_elements() == 0) {
    return c.SetOutput(kOutput, data);
  }
  const auto tuples = TuplePlaces(data, indices, 0);
  std::vector<int64_t> places;
  if (updates.num_elements() != 0) {
    const int64_t inner = updates.num_elements() / static_cast<int64_t>(tuples.size());
    for (const int64_t tuple : tuples) {
      for (int64_t i = 0; i < inner; ++i) places.push_back(tuple + i);
    }
  }
  c.SetOutput(kOutput, Scatter(data, updates, places, ScatterNdOp(c.op()).reduction()));
}

}  // namespace lathe::nn
