#include "lathe/dialect/loop/memory.h"

#include <algorithm>
#include <cstring>

#include "lathe/support/error.h"
#include "src/dialect/cf/regions.h"
#include "src/dialect/eval_util.h"
#include "src/dialect/loop/scalars.h"

namespace lathe::loop {
namespace {

// Throws unless there is an index per axis of operand 0, from operand `first` on, and these and
// operand `live` are scalars.
void CheckIndices(InferShapeContext& c, size_t live, size_t first) {
  const SymShape memory = c.shape(0);
  const size_t indices = c.num_inputs() - std::min(first, c.num_inputs());
  if (memory.ranked && indices != memory.rank()) {
    c.Fail("loop/indices",
           StrCat("there must be ", memory.rank(), " indices, one per axis, not ", indices));
  }
  for (size_t i = live; i < c.num_inputs(); ++i) {
    if (!c.HasInput(i)) continue;
    const SymShape shape = c.shape(i);
    if (shape.ranked && shape.rank() != 0) {
      c.Fail("loop/indices", StrCat("operand ", i, " is no scalar"));
    }
  }
}

// The neighbours that a load or a store touches: where they begin, in elements, and how many.
struct Span {
  int64_t begin;
  int64_t count;
};

// `lanes` elements, or the first `live` of them, at the indices that begin with operand `first`.
Span SpanOf(EvalContext& c, const Tensor& memory, int64_t lanes, size_t live, size_t first) {
  const Shape& shape = memory.shape();
  if (c.num_inputs() - std::min(first, c.num_inputs()) != shape.size()) {
    c.Fail("loop/indices", StrCat("there must be ", shape.size(), " indices, one per axis"));
  }
  Span span{0, c.HasInput(live) ? ScalarOf(c, live) : lanes};
  if (span.count < 0 || span.count > lanes) {
    c.Fail("loop/live", StrCat(span.count, " live lanes of ", lanes));
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t index = ScalarOf(c, first + i);
    const int64_t last = i + 1 == shape.size() ? index + span.count : index + 1;
    if (span.count > 0 && (index < 0 || last > shape[i])) {
      c.Fail("loop/bounds", StrCat("index ", index, " (", last - index,
                                   " elements) is outside axis ", i, " of extent ", shape[i]));
    }
    span.begin = span.begin * shape[i] + index;
  }
  return span;
}

size_t ElementBytes(const Tensor& tensor) {
  return static_cast<size_t>(BitWidth(tensor.element_type()) / 8);
}

void CopyElements(const Tensor& from, int64_t from_begin, Tensor& to, int64_t to_begin,
                  int64_t count) {
  const size_t width = ElementBytes(from);
  std::memcpy(to.mutable_raw() + static_cast<size_t>(to_begin) * width,
              from.raw() + static_cast<size_t>(from_begin) * width,
              static_cast<size_t>(count) * width);
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
  CheckIndices(c, kLive, kIndices);
  const int64_t lanes = LoadOp(c.op()).lanes();
  std::vector<Dim> dims;
  if (lanes > 0) dims.emplace_back(lanes);
  c.SetType(kValue, VTensorType::Get(c.context(), SymShape(dims), c.element(kMemory)));
}

void LoadOp::Eval(EvalContext& c) {
  const int64_t lanes = LoadOp(c.op()).lanes();
  const Tensor& memory = c.input(kMemory);
  Tensor value(memory.element_type(), lanes > 0 ? Shape{lanes} : Shape{});
  const Span span = SpanOf(c, memory, std::max<int64_t>(lanes, 1), kLive, kIndices);
  CopyElements(memory, span.begin, value, 0, span.count);
  c.SetOutput(kValue, std::move(value));
}

// ---- store ----

void StoreOp::InferShape(InferShapeContext& c) {
  CheckIndices(c, kLive, kIndices);
  if (const SymShape value = c.shape(kValue); value.ranked && value.rank() > 1) {
    c.Fail("loop/value", "the value is neither a scalar nor a vector");
  }
  c.SetShape(kResult, c.shape(kMemory));
}

void StoreOp::Eval(EvalContext& c) {
  Tensor memory = c.input(kMemory);
  const Tensor& value = c.input(kValue);
  const Span span = SpanOf(c, memory, value.num_elements(), kLive, kIndices);
  CopyElements(value, 0, memory, span.begin, span.count);
  c.SetOutput(kResult, std::move(memory));
}

}  // namespace lathe::loop
