#include "lathe/dialect/nn/movement.h"

#include <algorithm>

#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/shape.h"
#include "src/lower/compute/amounts.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/nest.h"

// Parts of tensors put elsewhere.
namespace lathe::lower {
namespace {

// ---- concat, split ----

// 1 if low <= expr < high, else 0.
Dim IsBetween(const Dim& expr, const Dim& low, const Dim& high) {
  return Min(Max(high - expr, 0), 1) * Min(Max(expr - low + 1, 0), 1);
}

Value Concatenated(const ElementOf& c) {
  const nn::ConcatOp op(c.op);
  const size_t axis = AxisOf(op.axis(), c.at.size());
  const size_t count = c.op->num_operands();
  Dim begin = 0;
  Value value;
  for (size_t i = 0; i < count; ++i) {
    const Dim end = begin + c.Dims(i)[axis];
    const auto below = c.e.space().Below(c.at[axis], end);
    const auto element = [&] {
      Place place = c.at;
      place[axis] = c.at[axis] - begin;
      return c.Operand(i, place);
    };
    const bool is_here = below.value_or(false) || i + 1 == count;
    if (is_here && !value) return element();
    if (below.value_or(true)) {
      value = c.e.Guarded(IsBetween(c.at[axis], begin, end), value ? value : c.Zero(), element);
    }
    if (below.value_or(false)) return value;
    begin = end;
  }
  return value;
}

// Each operand is put in its place where there are many, among which an element had to be sought,
// and where some are turned, whose indices are loops of their own.
bool IsPutTogether(const Operation& op) {
  constexpr size_t kMany = 12;
  if (op.num_operands() >= kMany) return true;
  for (size_t i = 0; i < op.num_operands(); ++i) {
    const Operation* maker = WithoutReshapes(op.operand(i)).defining_op();
    if (maker != nullptr && maker->isa<nn::TransposeOp>()) return true;
  }
  return false;
}

void ConcatenateAll(const WholeTensorEmitter& w) {
  const nn::ConcatOp op(w.op);
  const std::vector<Dim> all = w.ResultDims(0);
  const size_t axis = AxisOf(op.axis(), all.size());
  Dim begin = 0;
  for (size_t i = 0; i < w.op->num_operands(); ++i) {
    const std::vector<Dim> dims = w.Dims(i);
    Nest(w.e, w.function, w.body, w.machine)
        .Visit(dims, w.memory[0], [&](Elements& e, const Place& at, Value to) {
          Place place = at;
          place[axis] += begin;
          e.Store(to, e.space().Flatten(place, all), e.At(w.op->operand(i), at));
        });
    begin = w.e.Name(begin + dims[axis]);
  }
}

Value Piece(const ElementOf& c) {
  const nn::SplitOp op(c.op);
  const size_t axis = AxisOf(op.axis(), c.at.size());
  Place place = c.at;
  for (size_t i = 0; i < c.result; ++i) place[axis] += c.e.Dims(c.op->result(i))[axis];
  return c.Operand(0, place);
}

// ---- slice ----

// The first element that a slice takes, if it takes any.
Dim FirstOf(int64_t start, int64_t step, const Dim& extent) {
  const Dim first = start < 0 ? Max(extent + start, 0) : Dim(start);
  return step > 0 ? first : Min(first, extent - 1);
}

int64_t StepOf(const Operation& op, size_t entry) {
  const auto steps = ConstantInts(op, nn::SliceOp::kSteps);
  return steps ? (*steps)[entry] : 1;
}

// A computed bound, counted from the front and within the axis; backwards, the end lies before it.
Value BoundAt(Elements& e, const Operation& op, size_t operand, size_t entry, const Dim& extent) {
  Builder& b = e.lb().b();
  const int64_t before = StepOf(op, entry) < 0 ? 1 : 0;
  const Value given = ToInt64(e, e.At(op.operand(operand), {static_cast<int64_t>(entry)}));
  const Value from_back = nn::AddOp::Create(b, given, e.Int(extent)).c();
  const Value is_from_back = nn::LessOp::Create(b, given, e.lb().Int(0)).c();
  const Value bound = Where(e, is_from_back, from_back, given);
  const Value upper[] = {bound, e.Int(extent - before)};
  const Value lower[] = {nn::MinOp::Create(b, upper).y(), e.lb().Int(-before)};
  return nn::MaxOp::Create(b, lower).y();
}

// Amount number `i` of the operation, if it was named.
std::optional<Dim> Amount(const ElementOf& c, size_t i) {
  const auto& named = c.e.named();
  const auto found = std::ranges::find(named, AmountKey(*c.op, i), &std::pair<Dim, Dim>::first);
  return found == named.end() ? std::nullopt : std::optional(found->second);
}

Value Sliced(const ElementOf& c) {
  const auto starts = ConstantInts(*c.op, nn::SliceOp::kStarts);
  const std::vector<Dim> dims = c.Dims(0), taken = c.ResultDims();
  Place place = c.at;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    const auto entry = SliceEntry(*c.op, axis);
    if (!entry) continue;
    const int64_t step = StepOf(*c.op, *entry);
    const auto computed = [&]() {
      if (const auto amount = Amount(c, *entry)) return *amount;
      return c.e.Loaded(BoundAt(c.e, *c.op, nn::SliceOp::kStarts, *entry, dims[axis]),
                        dims[axis] + 1);
    };
    const Dim first = starts ? FirstOf((*starts)[*entry], step, dims[axis]) : computed();
    // A step may exceed the tensor by far where only one element is taken.
    place[axis] = taken[axis].IsConstant(1) ? first : first + Dim(step) * c.at[axis];
  }
  return c.Operand(0, place);
}

std::string RefuseSlice(const Operation& op) {
  if (std::string why = NeedConstants<nn::SliceOp::kAxes, nn::SliceOp::kSteps>(op); !why.empty()) {
    return why;
  }
  const auto steps = ConstantInts(op, nn::SliceOp::kSteps);
  const bool is_backwards = steps && std::ranges::any_of(*steps, [](int64_t s) { return s < 0; });
  const bool is_computed = ConstantOf(op.operand(nn::SliceOp::kStarts)) == nullptr;
  return is_backwards && is_computed ? "it goes backwards from a computed start" : "";
}

// ---- pad ----

// What a pad does to an axis; amounts that are computed are read when the loops run.
struct AxisPad {
  Dim before = 0;                     // elements that are put before the first one
  Dim cut_before = 0, cut_after = 0;  // those that are removed
  [[nodiscard]] bool is_none() const {
    return before.IsConstant(0) && cut_before.IsConstant(0) && cut_after.IsConstant(0);
  }
};

// The entry of the first amount of an axis, and how many axes there are entries for.
std::pair<std::optional<size_t>, size_t> PadEntry(const Operation& op, size_t axis) {
  const auto axes = ConstantInts(op, nn::PadOp::kAxes);
  const size_t rank = DimsOf(op.operand(0)).size();
  if (!axes) return {axis, rank};
  for (size_t i = 0; i < axes->size(); ++i) {
    if (AxisOf((*axes)[i], rank) == axis) return {i, axes->size()};
  }
  return {std::nullopt, axes->size()};
}

Value PadAmount(Elements& e, const Operation& op, size_t entry) {
  return ToInt64(e, e.At(op.operand(nn::PadOp::kPads), {static_cast<int64_t>(entry)}));
}

// max(sign * amount, 0)
Value PartOf(Elements& e, Value amount, int64_t sign) {
  const Value part = nn::MulOp::Create(e.lb().b(), amount, e.lb().Int(sign)).c();
  const Value positive[] = {part, e.lb().Int(0)};
  return nn::MaxOp::Create(e.lb().b(), positive).y();
}

// What is put there, of amount number 2 * entry, or removed, of the one behind it.
Dim PadPart(const ElementOf& c, size_t entry, int64_t sign, const Dim& most) {
  if (const auto amount = Amount(c, 2 * entry + (sign > 0 ? 0 : 1))) return *amount;
  return c.e.Loaded(PartOf(c.e, PadAmount(c.e, *c.op, entry), sign), most + 1);
}

std::vector<AxisPad> PadsOf(const ElementOf& c) {
  const auto pads = ConstantInts(*c.op, nn::PadOp::kPads);
  const std::vector<Dim> in = c.Dims(0), out = c.ResultDims();
  const bool cuts_end = nn::PadOp(c.op).mode() != "constant";
  std::vector<AxisPad> result(in.size());
  for (size_t a = 0; a < in.size(); ++a) {
    const auto [entry, count] = PadEntry(*c.op, a);
    if (!entry) continue;
    AxisPad& pad = result[a];
    if (pads) {
      const int64_t begin = (*pads)[*entry], end = (*pads)[*entry + count];
      pad = {std::max<int64_t>(begin, 0), std::max<int64_t>(-begin, 0), std::max<int64_t>(-end, 0)};
      continue;
    }
    pad.before = PadPart(c, *entry, 1, out[a]);
    pad.cut_before = PadPart(c, *entry, -1, in[a]);
    if (cuts_end) pad.cut_after = PadPart(c, *entry + count, -1, in[a]);
  }
  return result;
}

std::string RefusePad(const Operation& op) {
  if (std::string why = NeedConstants<nn::PadOp::kAxes>(op); !why.empty()) return why;
  const auto count = static_cast<int64_t>(PadEntry(op, 0).second);
  const bool fits = DimsOf(op.operand(nn::PadOp::kPads))[0].IsConstant(2 * count);
  return fits ? "" : "it is not known for how many axes there are amounts";
}

// Operand 0, which begins at `begin` of the result, and `fill` around it.
Value Placed(const ElementOf& c, const std::vector<Dim>& begin, Value fill) {
  const std::vector<Dim> dims = c.Dims(0);
  Place place = c.at;
  Dim inside = 1;
  for (size_t a = 0; a < dims.size(); ++a) {
    place[a] = c.at[a] - begin[a];
    const auto before = c.e.space().Below(c.at[a], begin[a]);
    const auto within = c.e.space().Below(c.at[a], begin[a] + dims[a]);
    if (before.value_or(false) || !within.value_or(true)) return fill;
    if (before && within) continue;
    inside *= IsBetween(c.at[a], begin[a], begin[a] + dims[a]);
  }
  return c.e.Guarded(inside, fill, [&] { return c.Operand(0, place); });
}

// Where the padding reads from on an axis of which `count` elements are left.
Dim PadSource(IndexSpace& space, const Dim& at, const Dim& count, std::string_view mode) {
  const auto before = space.Below(at, 0), within = space.Below(at, count);
  if (!before.value_or(true) && within.value_or(false)) return at;
  if (mode == "edge") {
    if (before.value_or(false)) return 0;
    if (!within.value_or(true)) return count - 1;
    return Max(Min(at, count - 1), 0);
  }
  // An axis of which nothing is left is refused before a kernel runs; it must not divide by it.
  if (mode == "wrap") return Mod(at, Max(count, 1));
  const Dim period = Max(2 * (count - 1), 1);
  const Dim place = Mod(at, period);
  return Min(place, period - place);
}

Value Padded(const ElementOf& c) {
  const nn::PadOp op(c.op);
  const std::vector<AxisPad> pads = PadsOf(c);
  if (op.mode() == "constant") {
    const Value fill =
        c.Has(nn::PadOp::kConstantValue) ? c.Scalar(nn::PadOp::kConstantValue) : c.Zero();
    std::vector<Dim> begin;
    for (const AxisPad& pad : pads) begin.push_back(pad.before - pad.cut_before);
    return Placed(c, begin, fill);
  }
  const std::vector<Dim> dims = c.Dims(0), padded = c.ResultDims();
  Place place = c.at;
  for (size_t a = 0; a < dims.size(); ++a) {
    const AxisPad& pad = pads[a];
    if (pad.is_none() && dims[a] == padded[a]) continue;
    Dim count = Max(dims[a] - pad.cut_before - pad.cut_after, 0);
    if (IsLong(count)) count = c.e.space().Short(count, dims[a] + 1);
    place[a] = PadSource(c.e.space(), c.at[a] - pad.before, count, op.mode()) + pad.cut_before;
  }
  return c.Operand(0, place);
}

Value Centered(const ElementOf& c) {
  const std::vector<Dim> have = c.Dims(0), want = c.ResultDims();
  std::vector<Dim> begin;
  for (size_t a = 0; a < have.size(); ++a) {
    const Dim more = want[a] - have[a];
    begin.push_back(FloorDiv(Max(more, 0), 2) - FloorDiv(Max(-1 * more, 0), 2));
  }
  return Placed(c, begin, c.Zero());
}

// ---- others ----

Value Tiled(const ElementOf& c) {
  const std::vector<Dim> dims = c.Dims(0), whole = c.ResultDims();
  Place place = c.at;
  for (size_t a = 0; a < dims.size(); ++a) {
    if (!(dims[a] == whole[a])) place[a] = c.e.space().Mod(c.at[a], dims[a]);
  }
  return c.Operand(0, place);
}

bool RepeatsAreComputed(const Operation& op) {
  const bool is_scalar = DimsOf(op.result(0)).empty();
  return !is_scalar && !ConstantInts(op, nn::TileOp::kRepeats) && NeedSizes(op).empty();
}

// A loop over the copies along an axis around one over the elements: there is nothing to divide.
class Tiles {
 public:
  explicit Tiles(const WholeTensorEmitter& w)
      : w_(w), e_(w.e), in_(w.Dims(0)), out_(w.ResultDims(0)) {}

  void Write() {
    const size_t lead = out_.size() - (out_.size() > 2 ? 2 : 1);
    const std::vector<Dim> outer(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(lead));
    Dim number = 1;
    for (const Dim& dim : outer) number *= dim;
    e_.For(number, WholeTensorEmitter::IsWorthParallelizing(number), [&](const Dim& i) {
      Place to = e_.space().Unflatten(i, outer), from;
      for (size_t a = 0; a < lead; ++a) from.push_back(e_.space().Mod(to[a], in_[a]));
      Along(std::move(from), std::move(to));
    });
  }

 private:
  Dim CopiesAlong(size_t axis) {
    const Place at{static_cast<int64_t>(axis)};
    const Value given = ToInt64(e_, w_.Operand(nn::TileOp::kRepeats, at));
    return e_.Loaded(e_.Int(Min(e_.Loaded(given, out_[axis] + 1), out_[axis])), out_[axis] + 1);
  }

  void Along(Place from, Place to) {
    const size_t axis = to.size();
    const Dim copies = CopiesAlong(axis);
    if (axis + 1 == out_.size()) return AlongLast(from, to, copies);
    e_.For(copies, false, [&](const Dim& copy) {
      e_.For(in_[axis], false, [&](const Dim& i) {
        Place inner = from, outer = to;
        inner.push_back(i);
        outer.push_back(copy * in_[axis] + i);
        Along(std::move(inner), std::move(outer));
      });
    });
  }

  // An axis of one element becomes vectors of it.
  void AlongLast(const Place& from, const Place& to, const Dim& copies) {
    const Dim extent = in_.back();
    Place first = to;
    first.emplace_back(0);
    const Dim begin = e_.Loaded(e_.Int(e_.space().Flatten(first, out_)), NumElements());
    const auto put = [&](const Dim& i, const Dim& at) {
      Place inner = from;
      inner.push_back(i);
      e_.Store(w_.memory[0], begin + at, w_.Operand(0, inner));
    };
    const Dim are_more = Min(extent - 1, 1), is_one = Dim(1) - are_more;
    w_.ForLanes(copies * is_one, [&](const Dim& copy) { put(0, copy); });
    e_.For(copies * are_more, false, [&](const Dim& copy) {
      w_.ForLanes(extent, [&](const Dim& i) { put(i, copy * extent + i); });
    });
  }

  Dim NumElements() const {
    Dim number = 1;
    for (const Dim& dim : out_) number *= dim;
    return number;
  }

  const WholeTensorEmitter& w_;
  Elements& e_;
  std::vector<Dim> in_, out_;
};

void WriteTiles(const WholeTensorEmitter& w) { Tiles(w).Write(); }

Value FromDepth(const ElementOf& c) {
  const nn::DepthToSpaceOp op(c.op);
  const Dim block = op.blocksize(), channels = c.ResultDims()[1];
  const auto [row, in_row] = c.e.space().Divide(c.at[2], block);
  const auto [column, in_column] = c.e.space().Divide(c.at[3], block);
  const Dim channel = op.mode() == "DCR" ? (in_row * block + in_column) * channels + c.at[1]
                                         : (c.at[1] * block + in_row) * block + in_column;
  return c.Operand(0, {c.at[0], channel, row, column});
}

Value ToDepth(const ElementOf& c) {
  const nn::SpaceToDepthOp op(c.op);
  const Dim block = op.blocksize(), channels = c.Dims(0)[1];
  Dim channel, in_row, in_column, place;
  if (op.mode() == "DCR") {
    std::tie(place, channel) = c.e.space().Divide(c.at[1], channels);
    std::tie(in_row, in_column) = c.e.space().Divide(place, block);
  } else {
    std::tie(place, in_column) = c.e.space().Divide(c.at[1], block);
    std::tie(channel, in_row) = c.e.space().Divide(place, block);
  }
  return c.Operand(0, {c.at[0], channel, c.at[2] * block + in_row, c.at[3] * block + in_column});
}

Value Reversed(const ElementOf& c) {
  const nn::ReverseSequenceOp op(c.op);
  const auto batch = static_cast<size_t>(op.batch_axis());
  const auto time = static_cast<size_t>(op.time_axis());
  Builder& b = c.e.lb().b();
  const Value length = ToInt64(c.e, c.Operand(nn::ReverseSequenceOp::kSequenceLens, {c.at[batch]}));
  const Value step = c.e.Int(c.at[time]);
  const Value one = c.e.lb().Int(1);
  const Value last = nn::SubOp::Create(b, length, one).c();
  const Value mirrored = nn::SubOp::Create(b, last, step).c();
  const Value from = Where(c.e, nn::LessOp::Create(b, step, length).c(), mirrored, step);
  const Dim extent = c.ResultDims()[time];
  const Value bounded[] = {from, c.e.Int(extent - 1)};
  Place place = c.at;
  place[time] = c.e.Loaded(nn::MinOp::Create(b, bounded).y(), extent);
  return c.Operand(0, place);
}

// Lengths are 0 to the number of steps: one more than there are places along an axis.
std::vector<IndexUse> LengthUses(const ElementOf& c) {
  const auto time = static_cast<size_t>(nn::ReverseSequenceOp(c.op).time_axis());
  const Dim most = c.Dims(0)[time] + 1;
  const auto made = [most](Elements& e, Value length) {
    const Value negative = nn::LessOp::Create(e.lb().b(), length, e.lb().Int(0)).c();
    return Where(e, negative, e.Int(most), length);
  };
  return {{nn::ReverseSequenceOp::kSequenceLens, time, most, {}, made}};
}

Value Triangle(const ElementOf& c) {
  Builder& b = c.e.lb().b();
  const size_t rank = c.at.size();
  const Value row = c.e.Int(c.at[rank - 2]), column = c.e.Int(c.at[rank - 1]);
  const bool has_k = c.Has(nn::TriluOp::kK);
  const Value k =
      has_k ? ToInt64(c.e, c.Operand(nn::TriluOp::kK, Place(c.Dims(nn::TriluOp::kK).size(), 0)))
            : c.e.lb().Int(0);
  const Value offset = nn::SubOp::Create(b, column, row).c();
  const bool upper = nn::TriluOp(c.op).upper();
  const Value keeps = upper ? nn::GreaterOrEqualOp::Create(b, offset, k).c()
                            : nn::LessOrEqualOp::Create(b, offset, k).c();
  return Where(c.e, keeps, c.Operand(0, c.at), c.Zero());
}

constexpr Compute kMovementComputes[] = {
    {.op = nn::kConcat,
     .element = Concatenated,
     .whole = ConcatenateAll,
     .prefers_whole = IsPutTogether},
    {nn::kSplit, Piece},
    {nn::kSlice, Sliced, RefuseSlice},
    {nn::kPad, Padded, RefusePad},
    {nn::kCenterCropPad, Centered},
    {.op = nn::kTile, .element = Tiled, .whole = WriteTiles, .prefers_whole = RepeatsAreComputed},
    {nn::kDepthToSpace, FromDepth},
    {nn::kSpaceToDepth, ToDepth},
    {nn::kReverseSequence, Reversed, nullptr, LengthUses},
    {nn::kTrilu, Triangle},
};

}  // namespace

std::optional<size_t> SliceEntry(const Operation& op, size_t axis) {
  if (!RefuseSlice(op).empty()) return std::nullopt;
  const size_t rank = DimsOf(op.operand(0)).size();
  const auto axes = ConstantInts(op, nn::SliceOp::kAxes);
  const Dim count = DimsOf(op.operand(nn::SliceOp::kStarts))[0];
  if (!axes) {
    return count.is_constant() && static_cast<int64_t>(axis) < count.value() ? std::optional(axis)
                                                                             : std::nullopt;
  }
  for (size_t i = 0; i < axes->size(); ++i) {
    if (AxisOf((*axes)[i], rank) == axis) return i;
  }
  return std::nullopt;
}

Value StepsBetween(Elements& e, Value begin, Value end, int64_t step) {
  Builder& b = e.lb().b();
  const Value length = nn::SubOp::Create(b, end, begin).c();
  const Value rounded =
      nn::AddOp::Create(b, length, e.lb().Int(step > 0 ? step - 1 : step + 1)).c();
  const Value count = nn::DivOp::Create(b, rounded, e.lb().Int(step)).c();
  const Value both[] = {count, e.lb().Int(0)};
  return nn::MaxOp::Create(b, both).y();
}

Value SliceCountAt(Elements& e, const Operation& op, size_t axis) {
  const size_t entry = *SliceEntry(op, axis);
  const Dim extent = e.Dims(op.operand(0))[axis];
  const Value begin = BoundAt(e, op, nn::SliceOp::kStarts, entry, extent);
  const Value end = BoundAt(e, op, nn::SliceOp::kEnds, entry, extent);
  return StepsBetween(e, begin, end, StepOf(op, entry));
}

bool SaysExtentsOfSplit(const Operation& op, size_t axis) {
  const nn::SplitOp split(&op);
  return split.split() && axis == AxisOf(split.axis(), DimsOf(op.operand(0)).size());
}

bool SaysExtentOfPad(const Operation& op, size_t axis) {
  return RefusePad(op).empty() && PadEntry(op, axis).first.has_value();
}

Value PaddedExtentAt(Elements& e, const Operation& op, size_t axis) {
  Builder& b = e.lb().b();
  const auto [entry, count] = PadEntry(op, axis);
  const Value begin = PadAmount(e, op, *entry), end = PadAmount(e, op, *entry + count);
  const Value extent = e.Int(e.Dims(op.operand(0))[axis]);
  return nn::AddOp::Create(b, nn::AddOp::Create(b, extent, begin).c(), end).c();
}

namespace {

// Whether elements of the value are known one by one from the start: nothing that has to be
// computed whole comes before it.
bool IsKnownAtOnce(Value v) {
  std::vector<const Operation*> open, seen;
  const auto add = [&](Value operand) {
    const Operation* op = operand ? operand.defining_op() : nullptr;
    if (op == nullptr || std::ranges::count(seen, op) != 0) return;
    seen.push_back(op);
    open.push_back(op);
  };
  for (add(v); !open.empty();) {
    const Operation* op = open.back();
    open.pop_back();
    const Compute* compute = FindCompute(op->name());
    if (compute != nullptr && compute->IsWhole(*op)) return false;
    for (size_t i = 0; i < op->num_operands(); ++i) add(op->operand(i));
  }
  return true;
}

std::vector<Value> PadAmounts(Elements& e, const Operation& op) {
  if (!RefusePad(op).empty() || ConstantOf(op.operand(nn::PadOp::kPads)) != nullptr) return {};
  if (!IsKnownAtOnce(op.operand(nn::PadOp::kPads))) return {};
  std::vector<Value> amounts;
  for (size_t entry = 0; entry < 2 * PadEntry(op, 0).second; ++entry) {
    const Value amount = PadAmount(e, op, entry);
    amounts.push_back(PartOf(e, amount, 1));
    amounts.push_back(PartOf(e, amount, -1));
  }
  return amounts;
}

std::vector<Value> SliceAmounts(Elements& e, const Operation& op) {
  if (!RefuseSlice(op).empty() || ConstantOf(op.operand(nn::SliceOp::kStarts)) != nullptr)
    return {};
  if (!IsKnownAtOnce(op.operand(nn::SliceOp::kStarts))) return {};
  const std::vector<Dim> dims = e.Dims(op.operand(0));
  std::vector<std::pair<size_t, size_t>> entries;  // and their axes
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (const auto entry = SliceEntry(op, axis)) entries.emplace_back(*entry, axis);
  }
  std::ranges::sort(entries);
  std::vector<Value> amounts;
  for (const auto& [entry, axis] : entries) {
    if (entry != amounts.size()) return {};
    amounts.push_back(BoundAt(e, op, nn::SliceOp::kStarts, entry, dims[axis]));
  }
  return amounts;
}

}  // namespace

std::vector<Value> AmountsAt(Elements& e, const Operation& op) {
  if (op.name() == nn::PadOp::kName) return PadAmounts(e, op);
  return op.name() == nn::SliceOp::kName ? SliceAmounts(e, op) : std::vector<Value>();
}

Dim AmountKey(const Operation& op, size_t i) {
  size_t number = 0;
  for (const Operation* before = op.prev(); before != nullptr; before = before->prev()) ++number;
  return Dim::Symbol(StrCat("#", number, ".", i));
}

std::span<const Compute> MovementComputes() { return kMovementComputes; }

}  // namespace lathe::lower
