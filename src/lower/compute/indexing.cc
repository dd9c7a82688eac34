#include "lathe/dialect/nn/indexing.h"

#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"

// Elements at places that are read from tensors.
namespace lathe::lower {
namespace {

Value Gathered(const ElementOf& c) {
  const nn::GatherOp op(c.op);
  const std::vector<Dim> dims = c.Dims(nn::GatherOp::kData);
  const size_t axis = AxisOf(op.axis(), dims.size());
  const auto from = c.at.begin() + static_cast<std::ptrdiff_t>(axis);
  const auto to = from + static_cast<std::ptrdiff_t>(c.Dims(nn::GatherOp::kIndices).size());
  Place place(c.at.begin(), from);
  place.push_back(IndexAt(c, nn::GatherOp::kIndices, Place(from, to), dims[axis]));
  place.insert(place.end(), to, c.at.end());
  return c.Operand(nn::GatherOp::kData, place);
}

Value GatheredElement(const ElementOf& c) {
  const nn::GatherElementsOp op(c.op);
  const std::vector<Dim> dims = c.Dims(nn::GatherElementsOp::kData);
  const size_t axis = AxisOf(op.axis(), dims.size());
  Place place = c.at;
  place[axis] = IndexAt(c, nn::GatherElementsOp::kIndices, c.at, dims[axis]);
  return c.Operand(nn::GatherElementsOp::kData, place);
}

Value GatheredSlice(const ElementOf& c) {
  const nn::GatherNdOp op(c.op);
  const std::vector<Dim> dims = c.Dims(nn::GatherNdOp::kData);
  const std::vector<Dim> tuples = c.Dims(nn::GatherNdOp::kIndices);
  const auto batch = static_cast<size_t>(op.batch_dims());
  const auto count = static_cast<size_t>(tuples.back().value());
  const auto split = c.at.begin() + static_cast<std::ptrdiff_t>(tuples.size() - 1);
  Place tuple(c.at.begin(), split);
  tuple.emplace_back(0);
  Place place(c.at.begin(), c.at.begin() + static_cast<std::ptrdiff_t>(batch));
  for (size_t i = 0; i < count; ++i) {
    tuple.back() = static_cast<int64_t>(i);
    place.push_back(IndexAt(c, nn::GatherNdOp::kIndices, tuple, dims[batch + i]));
  }
  place.insert(place.end(), split, c.at.end());
  return c.Operand(nn::GatherNdOp::kData, place);
}

std::string RefuseGatheredSlice(const Operation& op) {
  const std::vector<Dim> tuples = DimsOf(op.operand(nn::GatherNdOp::kIndices));
  return !tuples.empty() && tuples.back().is_constant() ? "" : "tuples of symbolic length";
}

Value OneHot(const ElementOf& c) {
  Builder& b = c.e.lb().b();
  const nn::OneHotOp op(c.op);
  const size_t axis = AxisOf(op.axis(), c.at.size());
  Place place = c.at;
  place.erase(place.begin() + static_cast<std::ptrdiff_t>(axis));
  const Value loaded = ToInt64(c.e, c.Operand(nn::OneHotOp::kIndices, place));
  const Value depth = c.e.Int(c.ResultDims()[axis]);
  const Value is_negative = nn::LessOp::Create(b, loaded, c.e.lb().Int(0)).c();
  const Value index = Where(c.e, is_negative, nn::AddOp::Create(b, loaded, depth).c(), loaded);
  const Value is_on = nn::EqualOp::Create(b, index, c.e.Int(c.at[axis])).c();
  return Where(c.e, is_on, c.Operand(nn::OneHotOp::kValues, {1}),
               c.Operand(nn::OneHotOp::kValues, {0}));
}

// That indices do not go beyond the data along other axes is a condition on the sizes of each run.
std::string RefuseElements(const Operation& op) {
  using Op = nn::GatherElementsOp;
  return Fits(op).Known(Op::kData).Known(Op::kIndices).why();
}

// ---- what must be an index ----

template <class OpT>
std::vector<IndexUse> AlongAxis(const ElementOf& c) {
  const std::vector<Dim> dims = c.Dims(OpT::kData);
  const size_t axis = AxisOf(OpT(c.op).axis(), dims.size());
  return {{OpT::kIndices, axis, dims[axis]}};
}

std::vector<IndexUse> OfTuples(const ElementOf& c) {
  using Op = nn::GatherNdOp;
  const std::vector<Dim> dims = c.Dims(Op::kData);
  const auto batch = static_cast<size_t>(Op(c.op).batch_dims());
  std::vector<IndexUse> uses;
  for (int64_t i = 0; i < c.Dims(Op::kIndices).back().value(); ++i) {
    const size_t axis = batch + static_cast<size_t>(i);
    uses.push_back({Op::kIndices, axis, dims[axis], i});
  }
  return uses;
}

constexpr Compute kIndexingComputes[] = {
    {nn::kGather, Gathered, nullptr, AlongAxis<nn::GatherOp>},
    {nn::kGatherElements, GatheredElement, RefuseElements, AlongAxis<nn::GatherElementsOp>},
    {nn::kGatherNd, GatheredSlice, RefuseGatheredSlice, OfTuples},
    {nn::kOneHot, OneHot},
};

}  // namespace

std::span<const Compute> IndexingComputes() { return kIndexingComputes; }

}  // namespace lathe::lower
