#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/scalars.h"

// Copies into which elements are written at places that are read. What goes to the same place is
// combined in the order of the updates, whatever the threads do.
namespace lathe::lower {
namespace {

Value Combined(const Scalars& s, std::string_view reduction, Value old, Value update) {
  if (TensorOf(old).element() == ElementType::kBool) {
    const bool either = reduction == "add" || reduction == "max";
    return either ? s.Or(old, update) : s.And(old, update);
  }
  if (reduction == "add") return s.Add(old, update);
  if (reduction == "mul") return s.Mul(old, update);
  if (reduction == "max") return s.Max(old, update);
  if (reduction == "min") return s.Min(old, update);
  return update;
}

void CopyData(const WholeTensorEmitter& w) {
  w.Fill(0, [&](Elements& e, const Place& at) { return e.At(w.op->operand(0), at); });
}

void Put(const WholeTensorEmitter& w, std::string_view reduction, const Dim& flat, Value update) {
  if (reduction != "none") {
    update = Combined(Scalars(w.e), reduction, w.e.LoadFrom(w.memory[0], flat), update);
  }
  w.e.Store(w.memory[0], flat, update);
}

void Put(const WholeTensorEmitter& w, std::string_view reduction, const Place& place,
         Value update) {
  Put(w, reduction, w.e.space().Flatten(place, w.ResultDims(0)), update);
}

// An index that is checked, counted from the front.
Dim FromFront(Elements& e, Value index, const Dim& extent) {
  const Scalars s(e);
  const Value wide = ToInt64(e, index);
  const Value is_negative = s.Less(wide, e.lb().Int(0));
  return e.Loaded(s.Select(is_negative, s.Add(wide, e.Int(extent)), wide), extent);
}

// Lines along the axis do not meet.
void ScatterElements(const WholeTensorEmitter& w) {
  using Op = nn::ScatterElementsOp;
  const Op op(w.op);
  CopyData(w);
  const std::vector<Dim> data = w.Dims(Op::kData), indices = w.Dims(Op::kIndices);
  const size_t axis = AxisOf(op.axis(), data.size());
  std::vector<Dim> others = indices;
  others[axis] = 1;
  w.e.For(ProductOf(others), WholeTensorEmitter::IsWorthParallelizing(ProductOf(indices)),
          [&](const Dim& line) {
            const Place at_line = w.e.space().Unflatten(line, others);
            w.e.For(indices[axis], false, [&](const Dim& i) {
              Place at = at_line;
              at[axis] = i;
              Place place = at;
              place[axis] = FromFront(w.e, w.Operand(Op::kIndices, at), data[axis]);
              Put(w, op.reduction(), place, w.Operand(Op::kUpdates, at));
            });
          });
}

// Of slices, threads take parts; each goes over all tuples.
void ScatterSlices(const WholeTensorEmitter& w) {
  using Op = nn::ScatterNdOp;
  const Op op(w.op);
  CopyData(w);
  const std::vector<Dim> data = w.Dims(Op::kData), tuples = w.Dims(Op::kIndices);
  const auto length = static_cast<size_t>(tuples.back().value());
  const std::vector<Dim> outer(tuples.begin(), tuples.end() - 1);
  const auto first_of_slice = data.begin() + static_cast<std::ptrdiff_t>(length);
  const std::vector<Dim> indexed(data.begin(), first_of_slice), slice(first_of_slice, data.end());
  constexpr int64_t kPart = 1 << 10;
  const Dim size = ProductOf(slice);
  const Dim parts = CeilDiv(size, kPart);
  w.e.For(parts, WholeTensorEmitter::IsWorthParallelizing(size * ProductOf(outer)),
          [&](const Dim& part) {
            const Dim count = w.e.Loaded(w.e.Int(Min(size - part * kPart, kPart)), kPart + 1);
            w.e.For(ProductOf(outer), false, [&](const Dim& number) {
              const Place tuple = w.e.space().Unflatten(number, outer);
              Place to;
              for (size_t i = 0; i < length; ++i) {
                Place at = tuple;
                at.emplace_back(static_cast<int64_t>(i));
                to.push_back(FromFront(w.e, w.Operand(Op::kIndices, at), data[i]));
              }
              const Dim from = number * size + part * kPart;
              const Dim into = w.e.space().Flatten(to, indexed) * size + part * kPart;
              w.ForLanes(count, [&](const Dim& i) {
                Put(w, op.reduction(), into + i, w.e.AtFlat(op->operand(Op::kUpdates), from + i));
              });
            });
          });
}

std::string RefuseElements(const Operation& op) {
  using Op = nn::ScatterElementsOp;
  Fits fits(op);
  fits.Same(Op::kIndices, Op::kUpdates);
  const std::vector<Dim> data = fits.Dims(Op::kData), indices = fits.Dims(Op::kIndices);
  const size_t axis = AxisOf(Op(&op).axis(), data.size());
  for (size_t a = 0; a < data.size(); ++a) {
    if (a != axis) fits.AtMost(indices[a], data[a]);
  }
  return fits.why();
}

std::string RefuseTuples(const Operation& op) {
  using Op = nn::ScatterNdOp;
  Fits fits(op);
  const std::vector<Dim> data = fits.Dims(Op::kData), tuples = fits.Dims(Op::kIndices);
  if (tuples.empty() || !tuples.back().is_constant()) return "tuples of symbolic length";
  std::vector<Dim> updates(tuples.begin(), tuples.end() - 1);
  updates.insert(updates.end(), data.begin() + static_cast<std::ptrdiff_t>(tuples.back().value()),
                 data.end());
  return fits.Is(Op::kUpdates, updates).why();
}

std::string RefuseSteps(const Operation& op) {
  using Op = nn::TensorScatterOp;
  Fits fits(op);
  std::vector<Dim> cache = fits.Dims(Op::kPastCache);
  const std::vector<Dim> update = fits.Dims(Op::kUpdate);
  const size_t axis = AxisOf(Op(&op).axis(), cache.size());
  fits.Is(Op::kWriteIndices, {cache[0]});
  if (axis < update.size()) cache[axis] = update[axis];
  return fits.Is(Op::kUpdate, cache).why();
}

// Steps of a cache from a position of each batch on.
void ScatterSteps(const WholeTensorEmitter& w) {
  using Op = nn::TensorScatterOp;
  const Op op(w.op);
  CopyData(w);
  const std::vector<Dim> cache = w.Dims(Op::kPastCache), update = w.Dims(Op::kUpdate);
  const size_t axis = AxisOf(op.axis(), cache.size());
  std::vector<Dim> others = update;
  others[axis] = 1;
  w.e.For(
      ProductOf(others), WholeTensorEmitter::IsWorthParallelizing(ProductOf(update)),
      [&](const Dim& line) {
        const Place at_line = w.e.space().Unflatten(line, others);
        Dim first = 0;
        if (w.Has(Op::kWriteIndices)) {
          const Value position = ToInt64(w.e, w.Operand(Op::kWriteIndices, {at_line[0]}));
          first = w.e.Loaded(w.e.Int(Mod(w.e.Loaded(position, cache[axis]), Max(cache[axis], 1))),
                             cache[axis]);
        }
        w.e.For(update[axis], false, [&](const Dim& i) {
          Place from = at_line, place = at_line;
          from[axis] = i;
          const Dim step = w.e.Loaded(w.e.Int(Mod(first + i, Max(cache[axis], 1))), cache[axis]);
          place[axis] = step;
          Put(w, "none", place, w.Operand(Op::kUpdate, from));
        });
      });
}

// ---- what must be an index ----

std::vector<IndexUse> ElementIndices(const ElementOf& c) {
  using Op = nn::ScatterElementsOp;
  const std::vector<Dim> dims = c.Dims(Op::kData);
  const size_t axis = AxisOf(Op(c.op).axis(), dims.size());
  return {{Op::kIndices, axis, dims[axis]}};
}

std::vector<IndexUse> TupleIndices(const ElementOf& c) {
  using Op = nn::ScatterNdOp;
  const std::vector<Dim> dims = c.Dims(Op::kData);
  std::vector<IndexUse> uses;
  for (int64_t i = 0; i < c.Dims(Op::kIndices).back().value(); ++i) {
    const auto axis = static_cast<size_t>(i);
    uses.push_back({Op::kIndices, axis, dims[axis], i});
  }
  return uses;
}

// The last step that is written, unless they go round; the first is not negative.
std::vector<IndexUse> StepIndices(const ElementOf& c) {
  using Op = nn::TensorScatterOp;
  const Op op(c.op);
  if (!c.Has(Op::kWriteIndices)) return {};
  const std::vector<Dim> cache = c.Dims(Op::kPastCache), update = c.Dims(Op::kUpdate);
  const size_t axis = AxisOf(op.axis(), cache.size());
  const Dim extent = cache[axis], steps = update[axis];
  const bool circular = op.mode() == "circular";
  const auto last = [extent, steps, circular](Elements& e, Value position) {
    const Scalars s(e);
    const Value end = circular ? e.lb().Int(0) : s.Add(position, e.Int(steps - 1));
    const Value is_negative = s.Less(position, e.lb().Int(0));
    return s.Select(is_negative, s.Sub(position, e.Int(extent)), end);
  };
  return {{Op::kWriteIndices, axis, extent, {}, last}};
}

constexpr Compute kScatterComputes[] = {
    {nn::kScatterElements, nullptr, RefuseElements, ElementIndices, ScatterElements},
    {nn::kScatterNd, nullptr, RefuseTuples, TupleIndices, ScatterSlices},
    {nn::kTensorScatter, nullptr, RefuseSteps, StepIndices, ScatterSteps},
};

}  // namespace

std::span<const Compute> ScatterComputes() { return kScatterComputes; }

}  // namespace lathe::lower
