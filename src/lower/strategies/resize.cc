#include <algorithm>

#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/support/text.h"
#include "src/lower/anchor.h"
#include "src/lower/compute/resize_axis.h"
#include "src/lower/compute/scalars.h"
#include "src/lower/index_math.h"
#include "src/lower/pointwise.h"
#include "src/lower/strategies/list.h"

// A resampled tensor, row by row. What each place along an axis reads, and with which share, is
// computed once, for all rows. A row of the input is resampled along the last axis once and kept
// while rows of the result are made of it. Axes before these two may keep their length for all that
// is known before the run: those that do have one tap then.
namespace lathe::lower {
namespace {

constexpr int64_t kBlock = 512;    // columns of a row that are kept
constexpr int64_t kRows = 32;      // of the result that one thread takes at a time
constexpr int64_t kMostTimes = 4;  // that elements are repeated in registers
constexpr ElementType kIndex = ElementType::kI64;

class Resize {
 public:
  explicit Resize(Lowering& l) : l_(l), machine_(l.machine) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  // What the places along an axis read: `at` and `shares` hold the first tap of all places, then
  // the second one of all.
  struct Table {
    ResizedAxis axis;
    int64_t taps = 1;
    Value at = {}, shares = {};
    Dim pitch = {};
    Dim used = 1;  // taps of an axis before the row
  };

  std::string AnchorRefusal();
  std::string AxesRefusal();
  std::string AfterRefusal();
  bool picks() const { return nn::ResizeOp(op_).mode() == "nearest"; }
  bool has_inner() const { return column_ + 1 < groups_.size(); }

  void BindExtents(Elements& elements);
  void MakeTable(Elements& elements, Table& table);
  void WriteKept(const Dim& begin, const Dim& count);
  void KeepRow(const Dim& row, const Dim& first, const Dim& vectors);
  void AddRow(const Dim& number, const Dim& row, const Dim& first, const Dim& vectors);
  Dim UsedTaps(Elements& elements, const Table& table, Value* stays);
  void WriteColumns(const Dim& row);
  void WriteRepeated(const Dim& row);
  void WriteInner(const Dim& row);
  void ForVectors(const Dim& extent, const std::function<void(const Dim&, const Dim*)>& body);
  Value Across(const Dim& input_row, const Dim& column);
  struct Target {
    Dim row, column, inner;
    const Dim* live;  // null: all lanes
    int64_t times = 1;
  };
  void Store(const Target& to, Value v);

  Value Sum(int64_t taps, const std::function<Value(int64_t)>& share,
            const std::function<Value(int64_t)>& value);
  Dim IndexAt(const Table& table, const Dim& tap, const Dim& place);
  Value ShareAt(const Table& table, const Dim& tap, const Dim& place, int64_t lanes);
  std::vector<Value> InputAt(const Dim& row);
  const Table* row_table() const { return row_ ? &tables_[*row_] : nullptr; }
  std::span<const Table> outer_tables() const { return std::span(tables_).first(row_.value_or(0)); }

  Lowering& l_;
  const Machine& machine_;
  const Operation* op_ = nullptr;
  std::optional<Pointwise> after_;
  std::vector<ResizedAxis> axes_;
  std::vector<std::vector<size_t>> groups_;  // axes that one index walks
  size_t column_ = 0;                        // the last axis that is resampled
  std::optional<size_t> row_;                // the table of one before it
  std::optional<int64_t> times_;             // that an element of a row is picked
  ElementType element_ = ElementType::kUndefined, type_ = ElementType::kUndefined;
  int64_t lanes_ = 1;

  // While writing.
  std::optional<LoopBuilder> lb_;
  std::optional<IndexMath> math_;
  std::vector<Table> tables_;  // of axes_
  std::vector<Dim> out_;       // extents of the groups
  std::vector<Dim> at_;        // per group before the column, of the result
  std::vector<Dim> taps_;      // that are read, of outer_tables
  Value x_, kept_;
};

// ---- planning ----

std::string Resize::AnchorRefusal() {
  const auto is_one = [](const Operation& op) { return op.isa<nn::ResizeOp>(); };
  if (std::string why = FindAnchor(l_.function, "resize", is_one, op_); !why.empty()) return why;
  if (!op_->operand(0).is_block_argument()) return "the operand is computed in the same function";
  if (std::string why = Elements::Refusal(l_.function, machine_); !why.empty()) return why;
  if (CropsRegion(*op_)) return "a region is cut out";
  const nn::ResizeOp op(op_);
  return op.antialias() && !picks() ? "filters are as wide as the axes shrink" : "";
}

std::string Resize::AxesRefusal() {
  axes_ = ResizedAxes(*op_, DimsOf(op_->operand(0)), DimsOf(op_->result(0)));
  std::ranges::sort(axes_, {}, &ResizedAxis::axis);
  if (axes_.empty()) return "no axis is resampled";
  column_ = axes_.back().axis;
  if (axes_.size() > 1) row_ = axes_.size() - 2;
  element_ = TensorOf(op_->result(0)).element();
  type_ = picks() ? element_ : IsFloat(element_) ? SumType(element_) : ElementType::kF64;
  const auto times = picks() ? RepeatsOf(*op_, axes_.back()) : std::nullopt;
  if (times && *times <= kMostTimes && column_ + 1 == DimsOf(op_->result(0)).size()) times_ = times;
  lanes_ = machine_.lanes(type_ == ElementType::kBool ? ElementType::kU8 : type_);
  if (times_ && lanes_ % *times_ == 0) lanes_ /= *times_;
  return "";
}

std::string Resize::AfterRefusal() {
  after_.emplace(l_.function, op_, machine_);
  if (std::string why = after_->Refusal(); !why.empty()) return why;
  const std::vector<Dim> dims = DimsOf(op_->result(0));
  if (!std::ranges::equal(dims, after_->dims())) return "the result is broadcast further";
  for (size_t a = 0; a < dims.size(); ++a) {
    if (a <= column_ + 1) groups_.emplace_back();
    groups_.back().push_back(a);
  }
  if (has_inner() && !picks() && axes_.size() > 2) {
    return "more than 2 axes before others are resampled";
  }
  return after_->SetGroups(groups_) ? "" : "axes behind the resampled ones are not walked as one";
}

std::string Resize::Refusal() {
  if (std::string why = AnchorRefusal(); !why.empty()) return why;
  if (std::string why = AxesRefusal(); !why.empty()) return why;
  return AfterRefusal();
}

// ---- tables ----

// Extents of the result that no argument has are made of those that one has.
void Resize::BindExtents(Elements& elements) {
  const std::vector<Dim> types = DimsOf(op_->result(0)), dims = elements.Dims(op_->result(0));
  for (const std::vector<size_t>& group : groups_) {
    out_.emplace_back(1);
    for (const size_t a : group) {
      const Dim extent = dims[a].is_constant() ? dims[a] : math_->Of(elements.Int(dims[a]));
      if (!extent.is_constant()) lb_->Define(types[a], math_->At(extent));
      out_.back() = math_->Name(out_.back() * extent);
    }
  }
}

// An axis that keeps its length is read where it is written, by its first tap.
Dim Resize::UsedTaps(Elements& elements, const Table& table, Value* stays) {
  const Scalars s(elements);
  const Value one = s.Number(ElementType::kF64, 1.0);
  const Value same = s.Equal(elements.Int(table.axis.in), elements.Int(table.axis.out));
  *stays = s.And(s.Equal(AxisTaps(elements, *op_, table.axis).Scale(), one), same);
  const Value used = s.Select(*stays, lb_->Int(1), lb_->Int(table.taps));
  return math_->Of(used);
}

// Vectors may be read at any place: what lies behind the last one counts as the first element.
void Resize::MakeTable(Elements& elements, Table& table) {
  const ResizedAxis& axis = table.axis;
  const AxisTaps taps(elements, *op_, axis);
  table.taps = static_cast<int64_t>(taps.num_taps());
  const Dim pitch = axis.out + lanes_;
  table.pitch = math_->Name(out_[axis.axis] + lanes_);
  Value stays;
  const bool is_outer = !picks() && tables_.size() <= row_.value_or(0);
  if (is_outer) table.used = UsedTaps(elements, table, &stays);
  table.at = elements.Scratch(kIndex, pitch * table.taps);
  if (!picks()) table.shares = elements.Scratch(type_, pitch * table.taps);
  const auto set = [&](const Dim& place, int64_t k, Value at, Value share) {
    elements.Store(table.at, place + pitch * k, at);
    if (table.shares) elements.Store(table.shares, place + pitch * k, share);
  };
  elements.For(axis.out, false, [&](const Dim& place) {
    if (picks()) return set(place, 0, elements.Int(taps.Picked(place)), {});
    const Scalars s(elements);
    int64_t k = 0;
    for (const Tap& tap : taps.Taps(place, type_)) {
      const bool may_stay = is_outer && k == 0;
      const Value at = elements.Int(tap.at);
      set(place, k++, may_stay ? s.Select(stays, elements.Int(place), at) : at,
          may_stay ? s.Select(stays, s.Number(type_, 1.0), tap.share) : tap.share);
    }
  });
  elements.For(lanes_, false, [&](const Dim& i) {
    for (int64_t k = 0; k < table.taps; ++k) {
      set(axis.out + i, k, lb_->Int(0), lb_->Splat(type_, 0));
    }
  });
}

Dim Resize::IndexAt(const Table& table, const Dim& tap, const Dim& place) {
  const Value at[] = {math_->At(table.pitch * tap + place)};
  return math_->Of(lb_->Load(table.at, at));
}

Value Resize::ShareAt(const Table& table, const Dim& tap, const Dim& place, int64_t lanes) {
  const Value at[] = {math_->At(table.pitch * tap + place)};
  return lb_->Load(table.shares, at, lanes);
}

// ---- rows ----

void Resize::Write() {
  lb_.emplace(l_.body);
  math_.emplace(*lb_);
  {
    Elements elements(*lb_, l_.function, *l_.body);
    BindExtents(elements);
    std::vector<ResizedAxis> axes =
        ResizedAxes(*op_, elements.Dims(op_->operand(0)), elements.Dims(op_->result(0)));
    std::ranges::sort(axes, {}, &ResizedAxis::axis);
    for (const ResizedAxis& axis : axes) MakeTable(elements, tables_.emplace_back(Table{axis}));
  }
  after_->Open(*lb_, *l_.body);
  std::vector<int64_t> counts;
  for (const auto& group : groups_) counts.push_back(static_cast<int64_t>(group.size()));
  x_ = l_.body->argument(op_->operand(0).index());
  if (groups_.back().size() > 1) x_ = lb_->Grouped(x_, counts);
  // Rows of the result, some of them together.
  std::vector<Dim> extents(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(column_));
  const std::optional<size_t> rows = row_ ? std::optional(axes_[*row_].axis) : std::nullopt;
  if (rows) extents[*rows] = math_->Name(CeilDiv(extents[*rows], kRows));
  Dim total = 1;
  for (const Dim& extent : extents) total *= extent;
  math_->For(math_->Name(total), true, [&](const Dim& number) {
    Dim rest = number;
    at_.assign(extents.size(), 0);
    for (size_t a = extents.size(); a-- > 0; rest = FloorDiv(rest, extents[a])) {
      at_[a] = math_->Name(Mod(rest, extents[a]));
    }
    if (!rows) return times_ ? WriteRepeated(0) : has_inner() ? WriteInner(0) : WriteColumns(0);
    const Dim begin = math_->Name(at_[*rows] * kRows);
    const Dim count = math_->Name(Min(out_[*rows] - begin, kRows));
    if (!has_inner() && !times_) return WriteKept(begin, count);
    math_->For(count, false, [&](const Dim& i) {
      const Dim row = math_->Name(begin + i);
      times_ ? WriteRepeated(row) : WriteInner(row);
    });
  });
  after_->Close(*lb_);
}

// Indices of the input per group before the column; `row`: of the input.
std::vector<Value> Resize::InputAt(const Dim& row) {
  std::vector<Value> at;
  for (size_t a = 0; a < column_; ++a) {
    const auto table = std::ranges::find(tables_, a, [](const Table& t) { return t.axis.axis; });
    const bool is_row = row_ && axes_[*row_].axis == a;
    const auto number = static_cast<size_t>(table - tables_.begin());
    const Dim tap = number < taps_.size() ? taps_[number] : Dim(0);
    const bool picked = !is_row && table != tables_.end();
    at.push_back(math_->At(is_row ? row : picked ? IndexAt(*table, tap, at_[a]) : at_[a]));
  }
  return at;
}

// Of integers exactly as they are defined: they are cut off then.
Value Resize::Sum(int64_t taps, const std::function<Value(int64_t)>& share,
                  const std::function<Value(int64_t)>& value) {
  Builder& b = lb_->b();
  if (picks()) return value(0);
  Value sum;
  for (int64_t k = 0; k < taps; ++k) {
    const Value s = share(k), v = value(k);
    if (!sum) {
      sum = nn::MulOp::Create(b, s, v).c();
    } else if (IsFloat(element_) && machine_.has_fma) {
      sum = loop::FmaOp::Create(b, s, v, sum).y();
    } else {
      sum = nn::AddOp::Create(b, sum, nn::MulOp::Create(b, s, v).c()).c();
    }
  }
  return sum;
}

// A vector of columns of a row of the input.
Value Resize::Across(const Dim& input_row, const Dim& column) {
  const Table& table = tables_.back();
  std::vector<Value> at = InputAt(input_row);
  at.emplace_back();
  return Sum(
      table.taps, [&](int64_t k) { return ShareAt(table, k, column, lanes_); },
      [&](int64_t k) {
        const Value place[] = {math_->At(table.pitch * k + column)};
        at.back() = lb_->Load(table.at, place, lanes_);
        return lb_->As(lb_->Gather(x_, at), type_);
      });
}

void Resize::ForVectors(const Dim& extent,
                        const std::function<void(const Dim&, const Dim*)>& body) {
  const Dim whole = math_->Name(FloorDiv(extent, lanes_));
  math_->For(whole, false, [&](const Dim& v) { body(math_->Name(v * lanes_), nullptr); });
  const Dim rest = math_->Name(extent - whole * lanes_);
  math_->For(math_->Name(Min(rest, 1)), false,
             [&](const Dim&) { body(math_->Name(whole * lanes_), &rest); });
}

void Resize::Store(const Target& to, Value v) {
  std::vector<Value> at;
  for (size_t a = 0; a < column_; ++a) {
    at.push_back(math_->At(row_ && axes_[*row_].axis == a ? to.row : at_[a]));
  }
  at.push_back(math_->At(to.column));
  if (has_inner()) at.push_back(math_->At(to.inner));
  const Value live = to.live == nullptr ? Value() : math_->At(*to.live * to.times);
  after_->Store(*lb_, at, lanes_ * to.times, live, ResampledCast(*lb_, v, element_));
}

void Resize::WriteColumns(const Dim& row) {
  ForVectors(out_[column_], [&](const Dim& column, const Dim* live) {
    Store({row, column, 0, live}, Across(row, column));
  });
}

// Each element of a row, as often as it is picked.
void Resize::WriteRepeated(const Dim& row) {
  const Dim input_row = row_ ? IndexAt(*row_table(), 0, row) : Dim(0);
  std::vector<Value> from = InputAt(input_row);
  from.emplace_back();
  ForVectors(
      math_->Name(FloorDiv(out_[column_], *times_)), [&](const Dim& column, const Dim* live) {
        from.back() = math_->At(column);
        const Value x = lb_->Load(x_, from, lanes_, live == nullptr ? Value() : math_->At(*live));
        const std::vector<Value> parts(static_cast<size_t>(*times_), x);
        Store({row, math_->Name(column * *times_), 0, live, *times_}, lb_->Interleave(parts));
      });
}

// Rows of the input become one after the other what is kept of them; a row that several rows of
// the result are made of, once.
void Resize::WriteKept(const Dim& begin, const Dim& count) {
  const Table& rows = *row_table();
  const Type memory =
      TensorType::Get(lb_->context(), SymShape({rows.taps, kBlock + lanes_}), type_);
  kept_ = loop::AllocOp::Create(lb_->b(), {}, {&memory, 1}).memory();
  math_->For(math_->Name(CeilDiv(out_[column_], kBlock)), false, [&](const Dim& block) {
    const Dim first = math_->Name(block * kBlock);
    const Dim columns = math_->Name(Min(out_[column_] - first, kBlock));
    const Dim vectors = math_->Name(CeilDiv(columns, lanes_));
    const Value none = lb_->Int(0);
    lb_->For(math_->At(count), std::span(&none, 1), [&](Value i, std::span<const Value> done) {
      const Dim row = math_->Name(begin + math_->Of(i));
      const Dim low = IndexAt(rows, 0, row), high = IndexAt(rows, rows.taps - 1, row);
      const Dim next = math_->Name(Max(math_->Of(done[0]), low));
      math_->For(math_->Name(Max(high + 1 - next, 0)), false,
                 [&](const Dim& k) { KeepRow(math_->Name(next + k), first, vectors); });
      std::vector<Value> slots, shares;
      for (int64_t k = 0; k < rows.taps; ++k) {
        slots.push_back(math_->At(Mod(IndexAt(rows, k, row), rows.taps)));
        if (!picks()) shares.push_back(ShareAt(rows, k, row, 0));
      }
      ForVectors(columns, [&](const Dim& column, const Dim* live) {
        const Value sum = Sum(
            rows.taps, [&](int64_t k) { return shares[static_cast<size_t>(k)]; },
            [&](int64_t k) {
              const Value at[] = {slots[static_cast<size_t>(k)], math_->At(column)};
              return lb_->Load(kept_, at, lanes_);
            });
        Store({row, math_->Name(first + column), 0, live}, sum);
      });
      return std::vector<Value>{math_->At(Max(math_->Of(done[0]), high + 1))};
    });
  });
}

void Resize::KeepRow(const Dim& row, const Dim& first, const Dim& vectors) {
  AddRow(0, row, first, vectors);
  Dim rows = 1;
  for (const Table& table : outer_tables()) rows = math_->Name(rows * table.used);
  math_->For(math_->Name(rows - 1), false,
             [&](const Dim& i) { AddRow(math_->Name(i + 1), row, first, vectors); });
}

// The row of that number among those that the taps of the axes before it say.
void Resize::AddRow(const Dim& number, const Dim& row, const Dim& first, const Dim& vectors) {
  Value share;
  Dim rest = number;
  taps_.clear();
  for (const Table& table : outer_tables()) {
    if (picks()) break;
    const Dim tap = math_->Name(Mod(rest, table.used));
    rest = math_->Name(FloorDiv(rest, table.used));
    taps_.push_back(tap);
    const Value own = ShareAt(table, tap, at_[table.axis.axis], 0);
    share = share ? nn::MulOp::Create(lb_->b(), share, own).c() : own;
  }
  const Value slot = math_->At(Mod(row, row_table()->taps));
  math_->For(vectors, false, [&](const Dim& v) {
    const Value at[] = {slot, math_->At(v * lanes_)};
    Value part = Across(row, math_->Name(first + v * lanes_));
    if (share) part = nn::MulOp::Create(lb_->b(), share, part).c();
    if (!number.IsConstant(0)) {
      part = nn::AddOp::Create(lb_->b(), lb_->Load(kept_, at, lanes_), part).c();
    }
    lb_->Store(kept_, part, at);
  });
}

// Along the axes behind the resampled ones elements are neighbors.
void Resize::WriteInner(const Dim& row) {
  const Table& columns = tables_.back();
  const Table* rows = row_table();
  const int64_t row_taps = rows == nullptr ? 1 : rows->taps;
  std::vector<std::vector<Value>> at;
  std::vector<Value> row_shares;
  for (int64_t k = 0; k < row_taps; ++k) {
    at.push_back(InputAt(rows == nullptr ? Dim(0) : IndexAt(*rows, k, row)));
    if (rows != nullptr && !picks()) row_shares.push_back(ShareAt(*rows, k, row, 0));
  }
  math_->For(out_[column_], false, [&](const Dim& column) {
    std::vector<Value> places, shares;
    for (int64_t k = 0; k < columns.taps; ++k) {
      places.push_back(math_->At(IndexAt(columns, k, column)));
      if (!picks()) shares.push_back(ShareAt(columns, k, column, 0));
    }
    ForVectors(out_.back(), [&](const Dim& inner, const Dim* live) {
      const Value some = live == nullptr ? Value() : math_->At(*live);
      const auto of_row = [&](int64_t r) {
        return Sum(
            columns.taps, [&](int64_t k) { return shares[static_cast<size_t>(k)]; },
            [&](int64_t k) {
              std::vector<Value> from = at[static_cast<size_t>(r)];
              from.push_back(places[static_cast<size_t>(k)]);
              from.push_back(math_->At(inner));
              return lb_->As(lb_->Load(x_, from, lanes_, some), type_);
            });
      };
      const auto share = [&](int64_t k) { return row_shares[static_cast<size_t>(k)]; };
      Store({row, column, inner, live}, rows == nullptr ? of_row(0) : Sum(row_taps, share, of_row));
    });
  });
}

}  // namespace

bool LowerResize(Lowering& l) { return WriteUnlessRefused<Resize>(l); }

}  // namespace lathe::lower
