#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/error.h"
#include "src/dialect/nn/term.h"
#include "src/lower/index_math.h"
#include "src/lower/pointwise.h"
#include "src/lower/strategies/list.h"

// Operations that go along the lines of one axis and remember where they are: positions of the
// greatest and the least, running sums and products, hardmax. Memory is [outer, line, inner], and
// vectors are neighboring lines; or it is [outer, line], and the lanes of a vector each keep the
// best of theirs; running sums come one by one.
namespace lathe::lower {
namespace {

using nn::Term;

constexpr int64_t kScans = 8;   // vectors of running sums at once
constexpr int64_t kChains = 4;  // of comparisons that do not wait for one another

class Lines {
 public:
  explicit Lines(Lowering& lowering) : lowering_(lowering) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  // A vector of neighboring lines, or one line.
  struct Column {
    Dim inner;
    Value live;
  };
  // What the lanes of a vector have found: elements, and the vectors that they are in.
  struct Found {
    Value x, number;
  };

  std::string FindOperation();
  std::string FindAxis();
  bool finds() const { return name_ == nn::kArgMax || name_ == nn::kArgMin || marks(); }
  bool marks() const { return name_ == nn::kHardmax; }
  bool Flag(std::string_view name) const {
    const auto flag = op_->attribute(name).dyn_cast<BoolAttribute>();
    return flag && flag.value();
  }
  bool is_last() const { return Flag("select_last_index"); }
  bool largest() const { return name_ != nn::kArgMin; }
  bool drops() const { return finds() && !marks() && !Flag("keepdims"); }
  bool IsFilled(int64_t lanes) const { return extent_.is_constant() && extent_.value() >= lanes; }
  int64_t register_lanes() const { return along_ ? 0 : lanes_; }
  ElementType Wider() const;

  void Open();
  void ForEach(const Dim& count, const std::function<void(const Dim& i)>& columns);
  void WriteLine();
  std::vector<Value> PlaceOf(const Dim& k, const Column& column);
  Value LoadAt(const Dim& k, const Column& column);
  void StoreAt(const Dim& k, const Column& column, Value v);
  Value Better(Value x, Value best);
  Value FindBest();
  void Mark(Value best);
  int64_t LanesAlong(int64_t bytes) const;
  Term LaneNumbers(ElementType element, int64_t lanes);
  Term IsLive(Value live, int64_t lanes);
  Value LoadVector(const Dim& number, int64_t lanes, Value live);
  Found FirstFound(int64_t lanes);
  Found Compared(const Found& found, const Dim& number, int64_t lanes, Value live);
  Value FindBestAlong();
  Value Merged(std::span<const Value> found, int64_t lanes);
  void MarkAlong(Value best);
  void Scan();

  Lowering& lowering_;
  const Operation* op_ = nullptr;
  std::string_view name_;
  size_t axis_ = 0;
  std::vector<Dim> dims_;
  ElementType element_ = ElementType::kUndefined;
  bool along_ = false;  // there are no inner elements
  int64_t lanes_ = 1;

  // While writing.
  std::optional<LoopBuilder> lb_;
  std::optional<IndexMath> im_;
  Value x_, result_, written_;
  Dim outer_, extent_, inner_, at_outer_;
  std::vector<Column> columns_;
};

std::string Lines::FindOperation() {
  constexpr std::string_view kNames[] = {nn::kArgMax, nn::kArgMin, nn::kCumSum, nn::kCumProd,
                                         nn::kHardmax};
  for (const Operation& op : lowering_.function) {
    if (op.HasTrait<Terminator>() || op.HasTrait<ConstantLike>()) continue;
    if (op_ != nullptr) return "it is not one operation alone";
    op_ = &op;
  }
  if (op_ == nullptr) return "there is no operation";
  name_ = op_->name();
  if (std::ranges::find(kNames, name_) == std::end(kNames)) {
    return StrCat(name_, " does not go along lines");
  }
  return "";
}

std::string Lines::FindAxis() {
  int64_t axis = 0;
  if (const auto given = op_->attribute("axis").dyn_cast<IntAttribute>()) {
    axis = given.value();
  } else {
    const Operation* constant = op_->operand(1).defining_op();
    if (constant == nullptr || !IsScalarConstant(*constant)) return "the axis is not known";
    axis = ToInt64s(constant->attribute("value").cast<TensorAttribute>().value())[0];
  }
  const auto rank = static_cast<int64_t>(dims_.size());
  axis_ = static_cast<size_t>(axis < 0 ? axis + rank : axis);
  return axis_ < dims_.size() ? "" : "there is no such axis";
}

// Sums of many are kept with more bits.
ElementType Lines::Wider() const {
  if (IsFloat(element_) && BitWidth(element_) < 32) return ElementType::kF32;
  return !finds() && element_ == ElementType::kF32 ? ElementType::kF64 : element_;
}

std::string Lines::Refusal() {
  if (std::string why = FindOperation(); !why.empty()) return why;
  const Value x = op_->operand(0);
  const auto type = x.type().dyn_cast<AnyTensorType>();
  if (!x.is_block_argument() || !type || !type.has_rank()) return "the operand is not an argument";
  dims_.assign(type.dims().begin(), type.dims().end());
  element_ = type.element();
  const bool known = IsFloat(element_) || IsInteger(element_);
  if (!known || BitWidth(element_) < 8) {
    return StrCat("elements are ", Name(element_));
  }
  const auto result = op_->result(0).type().dyn_cast<AnyTensorType>();
  if (!result || !result.has_rank()) return "the result is of unknown rank";
  if (std::string why = FindAxis(); !why.empty()) return why;
  const auto inner = std::span(dims_).subspan(axis_ + 1);
  along_ = std::ranges::all_of(inner, [](const Dim& d) { return d.IsConstant(1); });
  const int64_t widest = finds() ? 64 : BitWidth(Wider());
  lanes_ = std::max<int64_t>(lowering_.machine.vector_bytes * 8 / widest, 1);
  return "";
}

void Lines::Open() {
  lb_.emplace(lowering_.body);
  im_.emplace(*lb_);
  const auto before = static_cast<int64_t>(axis_);
  const auto behind = static_cast<int64_t>(dims_.size()) - before - 1;
  std::vector<int64_t> groups{before, 1, behind};
  if (along_) groups = {before, 1 + behind};
  x_ = lb_->Grouped(lowering_.body->argument(op_->operand(0).index()), groups);
  result_ = lb_->Alloc(TensorOf(op_->result(0)));
  if (drops()) groups = {before, behind};
  written_ = lb_->Grouped(result_, groups);
  outer_ = inner_ = 1;
  for (size_t a = 0; a < dims_.size(); ++a) {
    const Dim extent = im_->Extent(dims_[a]);
    if (a < axis_) outer_ *= extent;
    if (a == axis_) extent_ = extent;
    if (a > axis_) inner_ *= extent;
  }
  outer_ = im_->Name(outer_), inner_ = im_->Name(inner_);
}

void Lines::Write() {
  Open();
  if (along_) {
    ForEach(1, [&](const Dim&) { columns_.assign(1, {0, {}}); });
  } else {
    const int64_t vectors = finds() ? 1 : kScans, width = vectors * lanes_;
    const Dim wide = im_->Name(FloorDiv(inner_, width)), begin = im_->Name(wide * width);
    ForEach(wide, [&](const Dim& i) {
      columns_.clear();
      for (int64_t v = 0; v < vectors; ++v) columns_.push_back({i * width + v * lanes_, {}});
    });
    ForEach(im_->Name(CeilDiv(inner_ - begin, lanes_)), [&](const Dim& i) {
      const Dim at = im_->Name(begin + i * lanes_);
      columns_.assign(1, {at, im_->At(Min(inner_ - at, lanes_))});
    });
  }
  lb_->Return({&result_, 1});
}

// `columns` says which lines number i of `count` are.
void Lines::ForEach(const Dim& count, const std::function<void(const Dim& i)>& columns) {
  if (count.IsConstant(0)) return;
  const Dim some = im_->Name(Min(extent_, 1));  // an empty line has no best element
  im_->For(outer_ * count * some, true, [&](const Dim& number) {
    at_outer_ = im_->Name(FloorDiv(number, count));
    columns(im_->Name(Mod(number, count)));
    WriteLine();
  });
}

void Lines::WriteLine() {
  if (!finds()) return Scan();
  const Value best = along_ ? FindBestAlong() : FindBest();
  if (marks()) return along_ ? MarkAlong(best) : Mark(best);
  const Column& column = columns_[0];
  const std::vector<Value> at = drops() ? im_->At({at_outer_, column.inner}) : PlaceOf(0, column);
  lb_->Store(written_, along_ ? best : lb_->Widen(best, lanes_), at, column.live);
}

std::vector<Value> Lines::PlaceOf(const Dim& k, const Column& column) {
  return along_ ? im_->At({at_outer_, k}) : im_->At({at_outer_, k, column.inner});
}

Value Lines::LoadAt(const Dim& k, const Column& column) {
  return lb_->As(lb_->Load(x_, PlaceOf(k, column), register_lanes(), column.live), Wider());
}

void Lines::StoreAt(const Dim& k, const Column& column, Value v) {
  lb_->Store(written_, lb_->As(v, element_), PlaceOf(k, column), column.live);
}

// NaN is better than any number; among equals the first or the last one is.
Value Lines::Better(Value x, Value best) {
  Builder& b = lb_->b();
  const Term mine(b, x), other(b, best);
  if (is_last()) {
    const Term better = mine.Call(largest() ? nn::kGreaterOrEqual : nn::kLessOrEqual, {other});
    return IsFloat(element_) ? better.Call(nn::kOr, {mine.Call(nn::kIsNan)}) : better;
  }
  if (!IsFloat(element_)) return mine.Call(largest() ? nn::kGreater : nn::kLess, {other});
  const Term no_better = mine.Call(largest() ? nn::kLessOrEqual : nn::kGreaterOrEqual, {other});
  return no_better.Call(nn::kNot).Call(nn::kAnd, {other.Call(nn::kEqual, {other})});
}

// The position of the best element of the line.
Value Lines::FindBest() {
  Builder& b = lb_->b();
  const Column& column = columns_[0];
  const Value initial[] = {LoadAt(0, column), lb_->Splat(ElementType::kI64, 0, lanes_)};
  const Value others = im_->At(extent_ - 1);
  return lb_->For(others, initial, [&](Value i, std::span<const Value> best) {
    const Dim k = im_->Of(i) + 1;
    const Term x(b, LoadAt(k, column)), is_better(b, Better(x, best[0]));
    return std::vector<Value>{Where(is_better, x, Term(b, best[0])),
                              Where(is_better, Term(b, im_->At(k)), Term(b, best[1]))};
  })[1];
}

void Lines::Mark(Value best) {
  Builder& b = lb_->b();
  im_->For(extent_, false, [&](const Dim& k) {
    const Term is_it = Term(b, best).Call(nn::kEqual, {Term(b, im_->At(k))});
    StoreAt(k, columns_[0], lb_->As(is_it, element_));
  });
}

// ---- along lines ----

// No more than the line has elements, if that is known.
int64_t Lines::LanesAlong(int64_t bytes) const {
  const int64_t lanes = std::max<int64_t>(lowering_.machine.vector_bytes / bytes, 1);
  if (!extent_.is_constant()) return lanes;
  const auto extent = static_cast<uint64_t>(std::max<int64_t>(extent_.value(), 1));
  return std::min(lanes, static_cast<int64_t>(std::bit_ceil(extent)));
}

Term Lines::LaneNumbers(ElementType element, int64_t lanes) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < lanes; ++i) numbers.push_back(i);
  return {lb_->b(), lb_->Constant(lathe::Cast(Tensor::Of<int64_t>({lanes}, numbers), element))};
}

// Vector `number` of the line, of which some lanes may be live.
Value Lines::LoadVector(const Dim& number, int64_t lanes, Value live) {
  const std::vector<Value> at = im_->At({at_outer_, number * lanes});
  return lb_->As(lb_->Load(x_, at, lanes, live), Wider());
}

Term Lines::IsLive(Value live, int64_t lanes) {
  const Term count(lb_->b(), lb_->As(live, ElementType::kI32));
  return LaneNumbers(ElementType::kI32, lanes).Call(nn::kLess, {count});
}

Lines::Found Lines::Compared(const Found& found, const Dim& number, int64_t lanes, Value live) {
  Builder& b = lb_->b();
  const Term x(b, LoadVector(number, lanes, live));
  Term is_better(b, Better(x, found.x));
  if (live) is_better = is_better.Call(nn::kAnd, {IsLive(live, lanes)});
  const Term here(b, lb_->As(im_->At(number), ElementType::kI32));
  return {Where(is_better, x, Term(b, found.x)), Where(is_better, here, Term(b, found.number))};
}

// The first vector. Lanes that a short line does not fill stand for its last element.
Lines::Found Lines::FirstFound(int64_t lanes) {
  const Value number = lb_->Splat(ElementType::kI32, 0, lanes);
  if (IsFilled(lanes)) return {LoadVector(0, lanes, {}), number};
  const Value live = im_->At(Min(extent_, lanes));
  const Term x(lb_->b(), LoadVector(0, lanes, live));
  return {Where(IsLive(live, lanes), x, Term(lb_->b(), LoadAt(extent_ - 1, columns_[0]))), number};
}

// Each lane keeps the best of its elements, in several vectors that do not wait for one another.
Value Lines::FindBestAlong() {
  const int64_t lanes = LanesAlong(std::max<int64_t>(BitWidth(Wider()) / 8, 4));
  const Dim full = im_->Name(FloorDiv(extent_, lanes)), rest = Mod(extent_, lanes);
  const int64_t chains =
      full.is_constant() ? std::clamp<int64_t>(full.value(), 1, kChains) : kChains;
  const Dim steps = im_->Name(FloorDiv(full, chains));
  const Found first = FirstFound(lanes);
  std::vector<Value> found;
  for (int64_t c = 0; c < chains; ++c) found.insert(found.end(), {first.x, first.number});
  const auto compare = [&](const Dim& count, int64_t width, const Dim& begin, Value live) {
    if (count.IsConstant(0)) return;
    found = lb_->For(im_->At(count), found, [&](Value i, std::span<const Value> before) {
      std::vector<Value> next(before.begin(), before.end());
      for (int64_t c = 0; c < width; ++c) {
        const auto at = static_cast<size_t>(2 * c);
        const Dim number = begin + im_->Of(i) * width + c;
        const Found better = Compared({next[at], next[at + 1]}, number, lanes, live);
        next[at] = better.x, next[at + 1] = better.number;
      }
      return next;
    });
  };
  compare(steps, chains, 0, {});
  compare(full - steps * chains, 1, steps * chains, {});
  compare(Min(full, 1) * Min(rest, 1), 1, full, im_->At(rest));
  return Merged(found, lanes);
}

// Of the lanes that have found the best element, the position of the first or the last.
Value Lines::Merged(std::span<const Value> found, int64_t lanes) {
  Builder& b = lb_->b();
  const std::string_view extreme = largest() ? nn::kMax : nn::kMin;
  const std::string_view outermost = is_last() ? nn::kMax : nn::kMin;
  Term best(b, found[0]);
  for (size_t i = 2; i < found.size(); i += 2) best = best.Call(extreme, {found[i]});
  best = Term(b, lb_->Reduce(largest() ? "max" : "min", best));
  const double none = is_last() ? -1 : std::numeric_limits<int32_t>::max();
  std::optional<Term> number;
  for (size_t i = 0; i < found.size(); i += 2) {
    const Term x(b, found[i]), at(b, found[i + 1]);
    Term is_best = x.Call(nn::kEqual, {best});
    if (IsFloat(element_)) is_best = is_best.Call(nn::kOr, {x.Call(nn::kIsNan)});
    const Term candidate = Where(is_best, at, at.Number(none));
    number = number ? number->Call(outermost, {candidate}) : candidate;
  }
  const Term wide(b, lb_->As(*number, ElementType::kI64));
  const Term at = wide * static_cast<double>(lanes) + LaneNumbers(ElementType::kI64, lanes);
  const Term position(b, lb_->Reduce(is_last() ? "max" : "min", at));
  return IsFilled(lanes) ? position : position.Call(nn::kMin, {im_->At(extent_ - 1)});
}

void Lines::MarkAlong(Value best) {
  const int64_t lanes = LanesAlong(BitWidth(element_) / 8);
  const Dim full = im_->Name(FloorDiv(extent_, lanes)), rest = Mod(extent_, lanes);
  const Value zeros = lb_->Splat(element_, 0, lanes);
  const auto clear = [&](const Dim& number, Value live) {
    lb_->Store(written_, zeros, im_->At({at_outer_, number * lanes}), live);
  };
  im_->For(full, false, [&](const Dim& i) { clear(i, {}); });
  im_->For(Min(rest, 1), false, [&](const Dim&) { clear(full, im_->At(rest)); });
  const Value at[] = {im_->At(at_outer_), best};
  lb_->Store(written_, lb_->Splat(element_, 1), at);
}

// ---- running sums and products ----

void Lines::Scan() {
  Builder& b = lb_->b();
  const bool product = name_ == nn::kCumProd;
  const std::vector<Value> initial(columns_.size(),
                                   lb_->Splat(Wider(), product ? 1 : 0, register_lanes()));
  lb_->For(im_->At(extent_), initial, [&](Value i, std::span<const Value> before) {
    const Dim k = Flag("reverse") ? extent_ - 1 - im_->Of(i) : im_->Of(i);
    std::vector<Value> next;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const Term x(b, LoadAt(k, columns_[c])), total(b, before[c]);
      next.push_back(product ? total * x : total + x);
      StoreAt(k, columns_[c], Flag("exclusive") ? total : next.back());
    }
    return next;
  });
}

}  // namespace

bool LowerLines(Lowering& l) { return WriteUnlessRefused<Lines>(l); }

}  // namespace lathe::lower
