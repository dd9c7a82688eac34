#include "lathe/dialect/nn/order.h"

#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/scalars.h"
#include "src/lower/compute/sort.h"

// The first elements of lines, in order.
namespace lathe::lower {
namespace {

constexpr int64_t kShort = 32;  // lines that are sorted sooner than the digits of keys are counted
// So many are kept in order while the line is read: a better one is rare where it is long.
constexpr int64_t kFew = 16, kFewOfMany = 48, kMany = 16384;
constexpr int64_t kLong = 192;       // lines of which only what is wanted is sorted
constexpr int64_t kBlock = 16;       // lines next to one another that are read together
constexpr int64_t kStretch = 64;     // of a line, that is looked at in vectors before it is taken
constexpr int64_t kInRegisters = 8;  // that are kept there
constexpr size_t kFlags = 16;        // that say whether anything of a stretch goes in

static_assert(kFewOfMany <= kStretch);

class TopK {
 public:
  explicit TopK(const WholeTensorEmitter& w) : w_(w), e_(w.e), s_(w.e), op_(w.op) {
    dims_ = w.Dims(Op::kX);
    axis_ = AxisOf(op_.axis(), dims_.size());
    n_ = dims_[axis_];
    k_ = w.ResultDims(Op::kValues)[axis_];
    lines_ = 1;
    for (size_t a = 0; a < dims_.size(); ++a) {
      others_.push_back(a == axis_ ? Dim(1) : dims_[a]);
      lines_ *= others_.back();
    }
  }

  void Write() {
    if (k_.IsConstant(0)) return;
    const bool many = n_.is_constant() && n_.value() >= kMany;
    const bool few = k_.is_constant() && k_.value() <= (many ? kFewOfMany : kFew);
    const bool is_short = n_.is_constant() && n_.value() <= kShort;
    if (few) return InsertAll();
    Dim sorts = 1;  // 0: counts digits
    if (!is_short && RadixSort::Takes(w_.Element(Op::kValues))) {
      sorts = n_.is_constant() ? Dim(0) : e_.Name(Min(Max(kShort + 1 - n_, 0), 1));
      radix_.emplace(e_, lines_, n_);
    }
    if (!sorts.IsConstant(0)) positions_ = e_.Scratch(ElementType::kI64, sorts * lines_ * n_ * 2);
    e_.For(lines_, WholeTensorEmitter::IsWorthParallelizing(lines_ * n_), [&](const Dim& line) {
      line_ = line;
      place_ = e_.space().Unflatten(line, others_);
      e_.For(sorts, false, [&](const Dim&) { Sort(); });
      e_.For(1 - sorts, false, [&](const Dim&) { SortByKeys(); });
    });
  }

 private:
  using Op = nn::TopKOp;

  Value X(const Dim& at) {
    Place place = place_;
    place[axis_] = at;
    return w_.Operand(Op::kX, place);
  }
  // NaN is above everything and equal to itself.
  Value Comes(Value a, Value b) const {
    const Value high = op_.largest() ? a : b, low = op_.largest() ? b : a;
    const Value above = s_.Less(low, high);
    if (!IsFloat(TensorOf(a).element())) return above;
    return s_.Or(above, s_.And(s_.Not(s_.Equal(high, high)), s_.Equal(low, low)));
  }
  Dim ResultAt(const Dim& rank) {
    Place place = place_;
    place[axis_] = rank;
    return e_.space().Flatten(place, w_.ResultDims(Op::kValues));
  }
  Value Load(size_t result, const Dim& rank) {
    return e_.LoadFrom(w_.memory[result], ResultAt(rank));
  }
  void Store(const Dim& rank, Value x, Value position) {
    e_.Store(w_.memory[Op::kValues], ResultAt(rank), x);
    e_.Store(w_.memory[Op::kIndices], ResultAt(rank), position);
  }
  Value Bool(bool value) const { return s_.Less(e_.lb().Int(0), e_.lb().Int(value ? 1 : 0)); }

  // The best so far in order: their elements, then where these stand.
  using Best = std::vector<Value>;

  // What comes before none of the first ones goes behind them, where nothing is yet if they are
  // being filled.
  Best Inserted(std::span<const Value> best, const Dim& i, bool fills) {
    const auto k = static_cast<size_t>(k_.value());
    const Value x = X(i), position = e_.Int(i);
    Best next(2 * k);
    Value comes_before;  // the one before
    for (size_t r = 0; r < k; ++r) {
      Value comes = Comes(x, best[r]);
      if (fills) comes = s_.Or(comes, s_.Less(position, e_.lb().Int(static_cast<int64_t>(r) + 1)));
      for (const auto& [to, given] : {std::pair(r, x), std::pair(k + r, position)}) {
        const Value moved = r == 0 ? given : s_.Select(comes_before, best[to - 1], given);
        next[to] = s_.Select(comes, moved, best[to]);
      }
      comes_before = comes;
    }
    return next;
  }

  // Of many elements, few are better than the best so far.
  Best Offered(std::span<const Value> best, const Dim& i) {
    const Value comes = Comes(X(i), best[static_cast<size_t>(k_.value()) - 1]);
    return e_.For(
        s_.AsIndex(comes), Best(best.begin(), best.end()),
        [&](const Dim&, std::span<const Value> before) { return Inserted(before, i, false); });
  }

  Best OfferAll(Best best, const Dim& begin, const Dim& count) {
    return e_.For(count, std::move(best), [&](const Dim& i, std::span<const Value> before) {
      return Offered(before, e_.Loaded(e_.Int(begin + i), n_));
    });
  }

  // Of a long line, few stretches have elements that are.
  Best OfferStretches(Best best, const Dim& begin, const Dim& stretches) {
    const auto last = static_cast<size_t>(k_.value()) - 1;
    flags_ = e_.Scratch(w_.Element(Op::kValues), static_cast<int64_t>(kFlags));
    return e_.For(stretches, std::move(best), [&](const Dim& s, std::span<const Value> before) {
      const Dim first = e_.Loaded(e_.Int(begin + s * kStretch), n_);
      const Dim goes_in = e_.Loaded(e_.Int(s_.AsIndex(AnyGoesIn(first, before[last]))), 2);
      return OfferAll(Best(before.begin(), before.end()), first, goes_in * kStretch);
    });
  }

  void KeepInRegisters() {
    const auto k = static_cast<size_t>(k_.value());
    e_.For(lines_, WholeTensorEmitter::IsWorthParallelizing(lines_ * n_), [&](const Dim& line) {
      place_ = e_.space().Unflatten(line, others_);
      Best best(k, e_.lb().Splat(w_.Element(Op::kValues), 0));
      best.resize(2 * k, e_.lb().Int(0));
      best = e_.For(k_, std::move(best), [&](const Dim& i, std::span<const Value> before) {
        return Inserted(before, i, true);
      });
      const Dim rest = e_.Loaded(e_.Int(n_ - k_), n_ + 1);
      const bool is_short = n_.is_constant() && n_.value() < 2 * kStretch;
      const Dim stretches = is_short ? Dim(0) : e_.Loaded(e_.Int(FloorDiv(rest, kStretch)), n_ + 1);
      if (!is_short) best = OfferStretches(std::move(best), k_, stretches);
      const Dim done = k_ + stretches * kStretch;
      best = OfferAll(std::move(best), done, e_.Loaded(e_.Int(n_ - done), n_ + 1));
      for (size_t r = 0; r < k; ++r) Store(static_cast<int64_t>(r), best[r], best[k + r]);
    });
  }

  // Along an inner axis, elements that follow in memory are of different lines.
  void InsertAll() {
    if (axis_ + 1 == dims_.size() && k_.value() <= kInRegisters) return KeepInRegisters();
    if (axis_ + 1 == dims_.size() && !(n_.is_constant() && n_.value() < 2 * kStretch)) {
      return InsertStretches();
    }
    const std::span<const Dim> all(dims_);
    const std::vector<Dim> outer(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(axis_));
    const std::vector<Dim> inner(all.begin() + static_cast<std::ptrdiff_t>(axis_) + 1, all.end());
    Dim outer_lines = 1, inner_lines = 1;
    for (const Dim& d : outer) outer_lines *= d;
    for (const Dim& d : inner) inner_lines *= d;
    const Dim blocks = e_.Name(CeilDiv(inner_lines, kBlock));
    e_.For(outer_lines * blocks, WholeTensorEmitter::IsWorthParallelizing(lines_ * n_),
           [&](const Dim& number) {
             const Dim block = blocks.IsConstant(1) ? Dim(0) : Mod(number, blocks);
             const Place front = e_.space().Unflatten(FloorDiv(number, blocks), outer);
             const Dim begin = e_.Loaded(e_.Int(block * kBlock), inner_lines);
             const Dim few = inner_lines.IsConstant(1)
                                 ? Dim(1)
                                 : e_.Loaded(e_.Int(Min(inner_lines - begin, kBlock)), kBlock + 1);
             e_.For(n_, false, [&](const Dim& i) {
               e_.For(few, false, [&](const Dim& line) {
                 place_ = front;
                 place_.emplace_back(0);
                 const Place back = e_.space().Unflatten(begin + line, inner);
                 place_.insert(place_.end(), back.begin(), back.end());
                 Insert(i);
               });
             });
           });
  }

  // Of a long line, few elements are better than the best so far.
  void InsertStretches() {
    e_.For(lines_, WholeTensorEmitter::IsWorthParallelizing(lines_ * n_), [&](const Dim& line) {
      place_ = e_.space().Unflatten(line, others_);
      flags_ = e_.Scratch(w_.Element(Op::kValues), static_cast<int64_t>(kFlags));
      const Dim stretches = e_.Loaded(e_.Int(FloorDiv(n_, kStretch)), n_ + 1);
      e_.For(stretches, false, [&](const Dim& number) {
        const Dim begin = e_.Loaded(e_.Int(number * kStretch), n_);
        const Value first = s_.Less(e_.Int(number), e_.lb().Int(1));
        const Value any = AnyGoesIn(begin, Load(Op::kValues, k_ - 1));
        const Dim goes_in = e_.Loaded(e_.Int(s_.AsIndex(s_.Or(first, any))), 2);
        e_.For(goes_in * kStretch, false, [&](const Dim& i) { Insert(begin + i); });
      });
      const Dim done = e_.Loaded(e_.Int(stretches * kStretch), n_ + 1);
      e_.For(e_.Loaded(e_.Int(n_ - done), kStretch), false,
             [&](const Dim& i) { Insert(e_.Loaded(e_.Int(done + i), n_)); });
    });
  }

  // Whether an element of a stretch comes before the last of the best so far, which are complete.
  Value AnyGoesIn(const Dim& begin, Value last) {
    const Value zero = e_.lb().Splat(w_.Element(Op::kValues), 0);
    const Value one = e_.lb().Splat(w_.Element(Op::kValues), 1);
    constexpr auto kApart = static_cast<int64_t>(kFlags);
    w_.ForLanes(kApart, [&](const Dim& lane) {
      const Value flag =
          e_.Reduce({Dim(kStretch / kApart)}, zero, [&](const Place& i, Value so_far) {
            return s_.Select(Comes(X(begin + i[0] * kApart + lane), last), one, so_far);
          });
      e_.Store(flags_, lane, flag);
    });
    std::vector<Value> flags;
    for (size_t i = 0; i < kFlags; ++i) {
      flags.push_back(e_.LoadFrom(flags_, static_cast<int64_t>(i)));
    }
    for (size_t count = kFlags / 2; count > 0; count /= 2) {
      for (size_t i = 0; i < count; ++i) flags[i] = s_.Max(flags[i], flags[i + count]);
    }
    return s_.Less(zero, flags[0]);
  }

  // The results hold the best so far. An element that comes before the last of them goes in, and
  // those behind it move on by one.
  void Insert(const Dim& i) {
    const Value x = X(i), position = e_.Int(i);
    const Value full = s_.Not(s_.Less(position, e_.Int(k_)));
    const Value stays = s_.And(full, s_.Not(Comes(x, Load(Op::kValues, k_ - 1))));
    const Dim rounds = s_.AsIndex(s_.Not(stays)) * Min(i + 1, k_);
    const Dim named = e_.Loaded(e_.Int(rounds), k_ + 1);
    e_.For(named, {x, position, Bool(false)}, [&](const Dim& r, std::span<const Value> carried) {
      const Value other = Load(Op::kValues, r), at = Load(Op::kIndices, r);
      const Value is_new = s_.Equal(e_.Int(r), position);
      const Value moves = s_.Or(s_.Or(carried[2], is_new), Comes(carried[0], other));
      Store(r, s_.Select(moves, carried[0], other), s_.Select(moves, carried[1], at));
      return std::vector<Value>{s_.Select(moves, other, carried[0]),
                                s_.Select(moves, at, carried[1]), moves};
    });
  }

  void Sort() {
    MergeSort sort(e_, positions_, line_ * 2 * n_, n_, n_,
                   [&](const Dim& a, const Dim& b) { return Comes(X(a), X(b)); });
    e_.For(n_, false, [&](const Dim& i) { sort.Put(i, e_.Int(i)); });
    sort.Sort(n_);
    Take([&](const Dim& rank) { return sort.At(rank); });
  }

  void SortByKeys() {
    radix_->SetLine(line_);
    e_.For(n_, false, [&](const Dim& i) { radix_->Put(i, i, X(i), op_.largest()); });
    const bool narrows = !(k_ == n_) && (!n_.is_constant() || n_.value() >= kLong);
    radix_->Sort(narrows ? radix_->Narrow(n_, k_) : n_);
    Take([&](const Dim& rank) { return radix_->At(rank); });
  }

  // The first of those that are sorted.
  template <class F>
  void Take(F&& position_of) {
    e_.For(k_, false, [&](const Dim& rank) {
      const Dim position = position_of(rank);
      Store(rank, X(position), e_.Int(position));
    });
  }

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  Op op_;
  std::vector<Dim> dims_, others_;
  size_t axis_ = 0;
  Dim n_, k_, lines_, line_;
  Place place_;  // of the line; its axis is open
  Value positions_, flags_;
  std::optional<RadixSort> radix_;
};

// How many are wanted is one of 0 to how many there are.
std::vector<IndexUse> LastWanted(const ElementOf& c) {
  using Op = nn::TopKOp;
  const std::vector<Dim> x = c.Dims(Op::kX);
  const size_t axis = AxisOf(Op(c.op).axis(), x.size());
  const Dim wanted = c.e.Dims(c.op->result(Op::kValues))[axis];
  if (x[axis].is_constant() || wanted.IsConstant(0) || x[axis] == wanted) return {};
  const Dim most = x[axis] + 1;
  const auto made = [most](Elements& e, Value k) {
    const Scalars s(e);
    return s.Select(s.Less(k, e.lb().Int(0)), e.Int(most), k);
  };
  return {{Op::kK, axis, most, {}, made}};
}

void WriteTopK(const WholeTensorEmitter& w) { TopK(w).Write(); }

// ---- cum_sum, cum_prod ----

// Along an axis that may be computed: lines of elements that are as far apart as it says.
void Scan(const WholeTensorEmitter& w, bool product, bool exclusive, bool reverse) {
  Elements& e = w.e;
  const Scalars s(e);
  const std::vector<Dim> dims = w.Dims(0);
  const auto rank = static_cast<int64_t>(dims.size());
  const Value given = ToInt64(e, w.Operand(1, Place(w.Dims(1).size(), 0)));
  const Value from_back = s.Add(given, e.lb().Int(rank));
  const Value axis = s.Select(s.Less(given, e.lb().Int(0)), from_back, given);
  Dim stride = 1, elements = 1;
  Value extent_at = e.lb().Int(1), stride_at = e.lb().Int(1);
  for (int64_t a = rank; a-- > 0;) {
    const Dim extent = dims[static_cast<size_t>(a)];
    const Value here = s.Equal(axis, e.lb().Int(a));
    extent_at = s.Select(here, e.Int(extent), extent_at);
    stride_at = s.Select(here, e.Int(stride), stride_at);
    stride = stride * extent;
    elements = elements * extent;
  }
  const Dim n = e.Loaded(extent_at, elements + 1), apart = e.Loaded(stride_at, elements + 1);
  const Value lines = s.Div(e.Int(elements), e.Int(n));  // 0 of nothing
  const ElementType type = w.Element(0);
  const ElementType wide = type == ElementType::kF32 ? ElementType::kF64 : SumType(type);
  e.For(e.Loaded(lines, elements + 1), WholeTensorEmitter::IsWorthParallelizing(elements),
        [&](const Dim& line) {
          const Dim outer = e.Loaded(e.Int(FloorDiv(line, apart)), elements);
          const Dim first = outer * n * apart + (line - outer * apart);
          e.For(n, {s.Number(wide, product ? 1.0 : 0.0)},
                [&](const Dim& i, std::span<const Value> before) {
                  const Dim at =
                      e.Loaded(e.Int(first + (reverse ? n - 1 - i : i) * apart), elements);
                  const Value x = s.Cast(w.Operand(0, e.space().Unflatten(at, dims)), wide);
                  const Value next = product ? s.Mul(before[0], x) : s.Add(before[0], x);
                  e.Store(w.memory[0], at, s.Cast(exclusive ? before[0] : next, type));
                  return std::vector<Value>{next};
                });
        });
}

void WriteSums(const WholeTensorEmitter& w) {
  const nn::CumSumOp op(w.op);
  Scan(w, false, op.exclusive(), op.reverse());
}
void WriteProducts(const WholeTensorEmitter& w) {
  const nn::CumProdOp op(w.op);
  Scan(w, true, op.exclusive(), op.reverse());
}

std::vector<IndexUse> ScanAxis(const ElementOf& c) {
  return {{1, 0, static_cast<int64_t>(c.Dims(0).size())}};
}

constexpr Compute kOrderComputes[] = {
    {nn::kCumProd, nullptr, nullptr, ScanAxis, WriteProducts, true},
    {nn::kCumSum, nullptr, nullptr, ScanAxis, WriteSums, true},
    {nn::kTopK, nullptr, NeedSizes, LastWanted, WriteTopK},
};

}  // namespace

std::span<const Compute> OrderComputes() { return kOrderComputes; }

}  // namespace lathe::lower
