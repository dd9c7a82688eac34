// Writing into copies: what the scatter ops share, and the cache update.
#include <algorithm>

#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/scatter.h"
#include "src/dialect/wide.h"

namespace lathe::nn {

using eval::FailShape;

namespace {

template <class C>
C Combine(std::string_view reduction, C a, C b) {
  if (reduction == "add") return eval::WrapAdd(a, b);
  if (reduction == "mul") return eval::WrapMul(a, b);
  return reduction == "max" ? eval::NanMax(a, b) : eval::NanMin(a, b);
}

template <class C>
Tensor Reduced(const Tensor& data, const Tensor& updates, std::span<const int64_t> places,
               std::string_view reduction) {
  std::vector<C> values = eval::LoadAll<C>(data);
  const std::vector<C> added = eval::LoadAll<C>(updates);
  for (size_t i = 0; i < places.size(); ++i) {
    C& value = values[static_cast<size_t>(places[i])];
    value = Combine<C>(reduction, value, added[i]);
  }
  return eval::MakeTensor<C>(data.element_type(), data.shape(), values);
}

}  // namespace

Tensor Scatter(const Tensor& data, const Tensor& updates, std::span<const int64_t> places,
               std::string_view reduction) {
  if (reduction != "none") {
    return eval::VisitWide(data.element_type(), [&]<class C>(std::type_identity<C>) {
      return Reduced<C>(data, updates, places, reduction);
    });
  }
  Tensor out = data.Clone();
  const eval::ElementMover mover(updates, out);
  for (size_t i = 0; i < places.size(); ++i) mover.Copy(places[i], static_cast<int64_t>(i));
  return out;
}

// ---- tensor_scatter ----

namespace {

size_t CacheAxis(const TensorScatterOp& op, const SymShape& cache, const SymShape& update) {
  const int64_t axis = eval::NormalizeAxis(op.axis(), static_cast<int64_t>(cache.rank()));
  if (axis == 0) FailShape("shape/tensor-scatter", "axis 0 is the batch and cannot hold the steps");
  if (update.rank() != cache.rank()) {
    FailShape("shape/tensor-scatter",
              StrCat("the update has rank ", update.rank(), ", the cache has rank ", cache.rank()));
  }
  for (size_t i = 0; i < cache.rank(); ++i) {
    if (i == static_cast<size_t>(axis)) continue;
    Assume(SizeCondition::Equal(cache.dims[i], update.dims[i]), "shape/tensor-scatter", [&] {
      return StrCat("the update of shape ", update.ToString(), " does not fit the cache of shape ",
                    cache.ToString(), " at axis ", i);
    });
  }
  const auto steps = static_cast<size_t>(axis);
  if (op.mode() == "circular") return steps;
  const auto message = [&] {
    return StrCat(update.dims[steps].ToString(), " steps do not fit into a cache of ",
                  cache.dims[steps].ToString());
  };
  Assume(SizeCondition::AtLeast(cache.dims[steps], update.dims[steps]), "shape/tensor-scatter",
         message, "mode circular wraps around");
  return steps;
}

void AssumePositions(const Dim& positions, const Dim& batches) {
  Assume(SizeCondition::Equal(positions, batches), "shape/tensor-scatter", [&] {
    return StrCat("there are ", positions.ToString(), " write indices for ", batches.ToString(),
                  " batch entries");
  });
}

std::vector<int64_t> WritePositions(const EvalContext& c, int64_t batches) {
  if (!c.HasInput(TensorScatterOp::kWriteIndices)) {
    return std::vector<int64_t>(static_cast<size_t>(batches), 0);
  }
  const auto positions = ToInt64s(c.input(TensorScatterOp::kWriteIndices));
  AssumePositions(std::ssize(positions), batches);
  return positions;
}

// Throws unless the steps that are written from there lie in the cache. Loops check it of an empty
// update, too.
void CheckPosition(int64_t position, int64_t steps, int64_t extent, bool circular) {
  if (position >= 0 && (circular ? extent > 0 : position <= extent - steps)) return;
  throw Error(ErrorCode::kInvalidArgument, "run/index",
              StrCat(steps, " steps written from ", position, " lie outside the cache of ", extent,
                     " steps"))
      .Hint("mode circular wraps around");
}

}  // namespace

void TensorScatterOp::InferShape(InferShapeContext& c) {
  const SymShape cache = c.shape(kPastCache);
  const SymShape update = c.shape(kUpdate);
  if (cache.ranked && update.ranked) CacheAxis(TensorScatterOp(c.op()), cache, update);
  if (c.HasInput(kWriteIndices) && c.shape(kWriteIndices).ranked && cache.ranked) {
    AssumePositions(c.shape(kWriteIndices).NumElements(), cache.dims[0]);
  }
  c.SetShape(kPresentCache, cache);
}

void TensorScatterOp::Eval(EvalContext& c) {
  const TensorScatterOp op(c.op());
  const Tensor& update = c.input(kUpdate);
  Tensor out = c.input(kPastCache).Clone();
  const size_t axis =
      CacheAxis(op, SymShape::FromConstants(out.shape()), SymShape::FromConstants(update.shape()));
  const bool circular = op.mode() == "circular";
  const auto positions = WritePositions(c, out.shape()[0]);
  const int64_t extent = out.shape()[axis];
  if (c.HasInput(kWriteIndices)) {
    for (int64_t p : positions) CheckPosition(p, update.shape()[axis], extent, circular);
  }
  if (update.num_elements() == 0) return c.SetOutput(kPresentCache, std::move(out));
  const eval::Lines lines(update.shape(), axis);
  const int64_t per_batch = lines.outer / out.shape()[0];
  const eval::ElementMover mover(update, out);
  for (int64_t o = 0; o < lines.outer; ++o) {
    const int64_t position = positions[static_cast<size_t>(o / per_batch)];
    for (int64_t i = 0; i < lines.extent; ++i) {
      mover.Copy((o * extent + (position % extent + i) % extent) * lines.inner,
                 (o * lines.extent + i) * lines.inner, lines.inner);
    }
  }
  c.SetOutput(kPresentCache, std::move(out));
}

}  // namespace lathe::nn
