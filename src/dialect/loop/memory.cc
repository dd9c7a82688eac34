#include "lathe/dialect/loop/memory.h"

#include <algorithm>
#include <optional>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/error.h"
#include "src/dialect/cf/regions.h"
#include "src/dialect/loop/indices.h"
#include "src/dialect/loop/scalars.h"
#include "src/dialect/move.h"

namespace lathe::loop {
namespace {

// The elements that a load or a store touches: the place of the first one, how far apart they lie,
// and how many they are.
struct Span {
  int64_t begin;
  int64_t step;
  int64_t count;
};

struct Direction {
  int64_t axis;
  int64_t stride;
};

// `lanes` elements, or the first `live` of them, from the indices that begin with operand `first`.
Span SpanOf(EvalContext& c, const Tensor& memory, int64_t lanes, Direction along, size_t live,
            size_t first) {
  const Shape& shape = memory.shape();
  const auto rank = static_cast<int64_t>(shape.size());
  if (static_cast<int64_t>(c.num_inputs() - std::min(first, c.num_inputs())) != rank) {
    c.Fail("loop/indices", StrCat("there must be ", rank, " indices, one per axis"));
  }
  if (rank == 0) return {0, 1, c.HasInput(live) ? std::min(ScalarOf(c, live), lanes) : lanes};
  const int64_t axis = eval::NormalizeAxis(along.axis, rank);
  Span span{0, 1, c.HasInput(live) ? ScalarOf(c, live) : lanes};
  if (span.count < 0 || span.count > lanes) {
    c.Fail("loop/live", StrCat(span.count, " live lanes of ", lanes));
  }
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t extent = shape[static_cast<size_t>(i)];
    const int64_t index = ScalarOf(c, first + static_cast<size_t>(i));
    const int64_t last = i == axis ? index + (span.count - 1) * along.stride : index;
    if (span.count > 0 && (index < 0 || last >= extent)) {
      c.Fail("loop/bounds", StrCat("elements ", index, " to ", last, " are outside axis ", i,
                                   " of extent ", extent));
    }
    span.begin = span.begin * extent + index;
    span.step = i == axis ? along.stride : span.step * extent;
  }
  return span;
}

}  // namespace

// ---- alloc ----

void AllocOp::Eval(EvalContext& c) {
  const auto type = c.op()->result(kMemory).type().cast<AnyTensorType>();
  Shape shape;
  for (size_t i = 0; i < type.rank(); ++i) {
    const Dim& dim = type.dims()[i];
    shape.push_back(c.num_inputs() == 0 ? dim.value() : ScalarOf(c, i));
  }
  c.SetOutput(kMemory, Tensor(type.element(), std::move(shape)));
}

void AllocOp::Verify(Operation* op) {
  const auto type = op->result(kMemory).type().dyn_cast<TensorType>();
  if (!type || !type.has_rank()) {
    cf::VerifyFail(op, "loop/alloc", "the result is a mutable tensor of known rank");
  }
  if (op->num_operands() == 0 ? !type.is_static() : op->num_operands() != type.rank()) {
    cf::VerifyFail(op, "loop/alloc", "takes a size per axis, unless the type is static");
  }
}

// ---- load ----

void LoadOp::InferShape(InferShapeContext& c) {
  CheckIndexCount(c, kIndices);
  CheckScalars(c, kLive);
  const int64_t lanes = LoadOp(c.op()).lanes();
  std::vector<Dim> dims;
  if (lanes > 0) dims.emplace_back(lanes);
  c.SetType(kValue, VTensorType::Get(c.context(), SymShape(dims), c.element(kMemory)));
}

void LoadOp::Eval(EvalContext& c) {
  const LoadOp op(c.op());
  const int64_t lanes = op.lanes();
  const Tensor& memory = c.input(kMemory);
  Tensor value(memory.element_type(), lanes > 0 ? Shape{lanes} : Shape{});
  const Span span =
      SpanOf(c, memory, std::max<int64_t>(lanes, 1), {op.axis(), op.stride()}, kLive, kIndices);
  eval::ElementMover(memory, value).CopyApart(0, 1, span.begin, span.step, span.count);
  c.SetOutput(kValue, std::move(value));
}

// ---- gather ----

void GatherOp::InferShape(InferShapeContext& c) {
  CheckIndexCount(c, kIndices);
  std::optional<Dim> lanes;
  bool known = true;
  for (size_t i = kIndices; i < c.num_inputs(); ++i) {
    const SymShape shape = c.shape(i);
    known = known && shape.ranked;
    if (!shape.ranked || shape.rank() == 0) continue;
    if (shape.rank() > 1 || (lanes && !(*lanes == shape.dims[0]))) {
      c.Fail("loop/indices",
             StrCat("operand ", i, " is neither a scalar nor a vector like others"));
    }
    lanes = shape.dims[0];
  }
  if (!lanes && !known) {
    return c.SetType(kValue, VTensorType::Get(c.context(), SymShape(), c.element(kMemory)));
  }
  if (!lanes) c.Fail("loop/indices", "no index is a vector", "a scalar is read by loop.load");
  c.SetType(kValue,
            VTensorType::Get(c.context(), SymShape(std::vector<Dim>{*lanes}), c.element(kMemory)));
}

void GatherOp::Eval(EvalContext& c) {
  const Tensor& memory = c.input(kMemory);
  std::vector<std::vector<int64_t>> indices;
  int64_t lanes = 1;
  for (size_t i = kIndices; i < c.num_inputs(); ++i) {
    indices.push_back(ToInt64s(c.input(i)));
    if (!c.input(i).shape().empty()) lanes = c.input(i).num_elements();
  }
  const int64_t live = c.HasInput(kLive) ? ScalarOf(c, kLive) : lanes;
  if (live < 0 || live > lanes) c.Fail("loop/live", StrCat(live, " live lanes of ", lanes));
  Tensor value(memory.element_type(), Shape{lanes});
  const eval::ElementMover mover(memory, value);
  for (int64_t lane = 0; lane < live; ++lane) {
    int64_t at = 0;
    for (size_t a = 0; a < indices.size(); ++a) {
      const int64_t extent = memory.shape()[a];
      const int64_t index = indices[a][indices[a].size() == 1 ? 0 : static_cast<size_t>(lane)];
      if (index < 0 || index >= extent) {
        c.Fail("loop/bounds", StrCat("index ", index, " of lane ", lane, " is outside axis ", a,
                                     " of extent ", extent));
      }
      at = at * extent + index;
    }
    mover.Copy(lane, at);
  }
  c.SetOutput(kValue, std::move(value));
}

// ---- store ----

void StoreOp::InferShape(InferShapeContext& c) {
  CheckIndexCount(c, kIndices);
  CheckScalars(c, kLive);
  if (const SymShape value = c.shape(kValue); value.ranked && value.rank() > 1) {
    c.Fail("loop/value", "the value is neither a scalar nor a vector");
  }
  c.SetShape(kResult, c.shape(kMemory));
}

void StoreOp::Eval(EvalContext& c) {
  Tensor memory = c.TakeInput(kMemory);
  const Tensor& value = c.input(kValue);
  const StoreOp op(c.op());
  const Span span =
      SpanOf(c, memory, value.num_elements(), {op.axis(), op.stride()}, kLive, kIndices);
  eval::ElementMover(value, memory).CopyApart(span.begin, span.step, 0, 1, span.count);
  c.SetOutput(kResult, std::move(memory));
}

// ---- prefetch ----

void PrefetchOp::InferShape(InferShapeContext& c) {
  CheckIndexCount(c, kIndices);
  CheckScalars(c, kIndices);
}

void PrefetchOp::Eval(EvalContext&) {}

// ---- expect ----

void ExpectOp::InferShape(InferShapeContext& c) {
  for (const size_t i : {kExtent, kLive}) {
    if (i >= c.num_inputs() || !c.HasInput(i)) continue;
    const SymShape shape = c.shape(i);
    if (shape.ranked && shape.rank() != 0) {
      c.Fail("loop/indices", StrCat("operand ", i, " is not a scalar"));
    }
  }
}

void ExpectOp::Eval(EvalContext& c) {
  std::vector<int64_t> indices = ToInt64s(c.input(kIndex));
  if (c.HasInput(kLive)) {
    const auto lanes = static_cast<int64_t>(indices.size());
    indices.resize(static_cast<size_t>(std::clamp<int64_t>(ScalarOf(c, kLive), 0, lanes)));
  }
  for (const int64_t index : indices) (void)eval::CheckIndex(index, ScalarOf(c, kExtent), "index");
}

}  // namespace lathe::loop
