#include "lathe/dialect/nn/attention.h"

#include <limits>

#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/scalars.h"

// Attention as it is defined, for what the strategy for it does not take; and rotations.
namespace lathe::lower {
namespace {

// ---- rotary_embedding ----

struct Rotated {
  Dim batch, step, feature, features, first;  // first: of the place, where the head begins
};

Rotated RotatedAt(const ElementOf& c, const nn::RotaryEmbeddingOp& op) {
  if (c.at.size() == 4) return {c.at[0], c.at[2], c.at[3], c.Dims(0)[3], 0};
  const Dim features = FloorDiv(c.Dims(0)[2], Dim(op.num_heads().value_or(1)));
  const auto [head, feature] = c.e.space().Divide(c.at[2], features);
  return {c.at[0], c.at[1], feature, features, head * features};
}

Value Rotary(const ElementOf& c) {
  using Op = nn::RotaryEmbeddingOp;
  const Op op(c.op);
  const Scalars s(c.e);
  const Rotated r = RotatedAt(c, op);
  const std::vector<Dim> table = c.Dims(Op::kCosCache);
  const Dim pairs = table.back();
  Dim pair, is_second;
  if (op.interleaved()) {
    std::tie(pair, is_second) = c.e.space().Divide(r.feature, 2);
  } else {
    const auto below = c.e.space().Below(r.feature, pairs);
    is_second = below ? Dim(*below ? 0 : 1) : Min(Max(r.feature - pairs + 1, 0), 1);
    pair = r.feature - is_second * pairs;
  }
  const auto turns = c.e.space().Below(r.feature, pairs * 2);
  if (turns && !*turns) return c.Operand(Op::kX, c.at);
  const Dim is_turned = turns ? Dim(1) : Min(Max(pairs * 2 - r.feature, 0), 1);
  return c.e.Guarded(is_turned, c.Operand(Op::kX, c.at), [&] {
    Place row{r.batch, r.step, pair}, partner = c.at;
    if (c.Has(Op::kPositionIds)) {
      row = {IndexAt(c, Op::kPositionIds, {r.batch, r.step}, table[0]), pair};
    }
    const Dim step = op.interleaved() ? Dim(1) : pairs;
    partner.back() = r.first + r.feature + step - is_second * step * 2;
    const ElementType type = SumType(c.Element());
    const auto load = [&](size_t i, const Place& at) { return s.Cast(c.Operand(i, at), type); };
    const Value straight = s.Mul(load(Op::kX, c.at), load(Op::kCosCache, row));
    const Value across = s.Mul(load(Op::kX, partner), load(Op::kSinCache, row));
    if (is_second.IsConstant(0)) return s.Cast(s.Sub(straight, across), c.Element());
    if (is_second.IsConstant(1)) return s.Cast(s.Add(straight, across), c.Element());
    const Value second = s.Equal(c.e.Int(is_second), c.e.lb().Int(1));
    const Value y = s.Select(second, s.Add(straight, across), s.Sub(straight, across));
    return s.Cast(y, c.Element());
  });
}

std::vector<IndexUse> Positions(const ElementOf& c) {
  using Op = nn::RotaryEmbeddingOp;
  if (!c.Has(Op::kPositionIds)) return {};
  const Dim extent = c.Dims(Op::kCosCache)[0];
  const auto from_front = [extent](Elements& e, Value number) {
    const Scalars s(e);
    return s.Select(s.Less(number, e.lb().Int(0)), s.Sub(number, e.Int(extent)), number);
  };
  return {{Op::kPositionIds, 0, extent, {}, from_front}};
}

// ---- attention ----

constexpr double kMasked = -std::numeric_limits<double>::infinity();

class Attention {
 public:
  explicit Attention(const WholeTensorEmitter& w) : w_(w), e_(w.e), s_(w.e), op_(w.op) {
    const std::vector<Dim> q = HeadDims(Op::kQ, op_.q_num_heads().value_or(1));
    const std::vector<Dim> k = HeadDims(Op::kK, op_.kv_num_heads().value_or(1));
    const std::vector<Dim> v = HeadDims(Op::kV, op_.kv_num_heads().value_or(1));
    batch_ = q[0], heads_ = q[1], queries_ = q[2], features_ = q[3];
    key_heads_ = k[1], values_ = v[3];
    past_ = w.Has(Op::kPastKey) ? w.Dims(Op::kPastKey)[2] : Dim(0);
    keys_ = past_ + k[2];
    type_ = SumType(w.Element(Op::kY));
  }

  void Write() {
    k_ = Joined(Op::kPresentKey, Op::kPastKey, Op::kK, features_);
    v_ = Joined(Op::kPresentValue, Op::kPastValue, Op::kV, values_);
    const Dim rows = batch_ * heads_ * queries_;
    p_ = e_.Scratch(type_, rows * keys_);
    y_ = e_.Scratch(type_, rows * values_);
    e_.Reset();
    e_.For(rows, WholeTensorEmitter::IsWorthParallelizing(rows * keys_ * (features_ + values_)),
           [&](const Dim& row) {
             row_ = row;
             const Place at = e_.space().Unflatten(row, {batch_, heads_, queries_});
             b_ = at[0], h_ = at[1], i_ = at[2];
             const auto group = e_.space().Div(h_, FloorDiv(heads_, key_heads_));
             head_ = e_.Loaded(e_.Int(b_ * key_heads_ + group), batch_ * key_heads_);
             WriteRow();
           });
  }

 private:
  using Op = nn::AttentionOp;

  bool IsPacked(size_t operand) const { return w_.Dims(operand).size() == 3; }
  std::vector<Dim> HeadDims(size_t operand, int64_t heads) const {
    const std::vector<Dim> dims = w_.Dims(operand);
    if (dims.size() == 4) return dims;
    return {dims[0], Dim(heads), dims[1], FloorDiv(dims[2], Dim(heads))};
  }
  Place PlaceOf(size_t operand, const Dim& b, const Dim& h, const Dim& t, const Dim& f,
                const Dim& features) const {
    return IsPacked(operand) ? Place{b, t, h * features + f} : Place{b, h, t, f};
  }

  // The cached rows and behind them the new ones, [B, Hk, P + S, features].
  Value Joined(size_t result, size_t past, size_t now, const Dim& features) {
    const bool is_given = result < w_.memory.size();
    const std::vector<Dim> dims{batch_, key_heads_, keys_, features};
    const ElementType element = TensorOf(w_.op->operand(now)).element();
    const Value memory =
        is_given ? w_.memory[result] : e_.Scratch(element, batch_ * key_heads_ * keys_ * features);
    w_.Fill(dims, memory, [&](Elements& e, const Place& at) {
      const Place here = PlaceOf(now, at[0], at[1], at[2] - past_, at[3], features);
      const auto fresh = [&] { return e.At(w_.op->operand(now), here); };
      if (past_.IsConstant(0)) return fresh();
      const auto before = e.space().Below(at[2], past_);
      if (before && !*before) return fresh();
      if (before) return e.At(w_.op->operand(past), at);
      const Dim is_old = Min(Max(past_ - at[2], 0), 1);
      const Value none = e.lb().Splat(element, 0);
      const Value old = e.Guarded(is_old, none, [&] { return e.At(w_.op->operand(past), at); });
      return e.Guarded(1 - is_old, old, fresh);
    });
    return memory;
  }

  Value Number(double x) const { return s_.Number(type_, x); }
  Value Score(const Dim& j) const { return e_.LoadFrom(p_, row_ * keys_ + j); }
  void SetScore(const Dim& j, Value p) const { e_.Store(p_, row_ * keys_ + j, p); }
  void Tell(int64_t mode, const Dim& j, Value v) const {
    if (Op::kQkMatmulOutput >= w_.memory.size() || op_.qk_matmul_output_mode() != mode) return;
    e_.Store(w_.memory[Op::kQkMatmulOutput], row_ * keys_ + j,
             s_.Cast(v, w_.Element(Op::kQkMatmulOutput)));
  }

  void WriteRow() {
    w_.ForLanes(keys_, [&](const Dim& j) { WriteScore(j); });
    const Value greatest =
        Over([&](const Dim& j, Value best) { return s_.Max(best, Score(j)); }, Number(kMasked));
    const Value none = op_.nan_rows() ? Value() : s_.Equal(greatest, Number(kMasked));
    w_.ForLanes(keys_, [&](const Dim& j) {
      const Value power = s_.Exp(s_.Sub(Score(j), greatest));
      SetScore(j, none ? s_.Select(none, Number(0), power) : power);
    });
    const Value sum =
        Over([&](const Dim& j, Value so_far) { return s_.Add(so_far, Score(j)); }, Number(0));
    const Value total = none ? s_.Select(none, Number(1), sum) : sum;
    w_.ForLanes(keys_, [&](const Dim& j) {
      const Value p = s_.Div(Score(j), total);
      SetScore(j, p);
      Tell(3, j, p);
    });
    w_.ForLanes(values_, [&](const Dim& f) { WriteValue(f); });
    const std::vector<Dim> dims = w_.ResultDims(Op::kY);
    e_.For(values_, false, [&](const Dim& f) {
      const Place place = dims.size() == 3 ? Place{b_, i_, h_ * values_ + f} : Place{b_, h_, i_, f};
      const Value y = e_.LoadFrom(y_, row_ * values_ + f);
      e_.Store(w_.memory[Op::kY], e_.space().Flatten(place, dims), s_.Cast(y, w_.Element(Op::kY)));
    });
  }

  Value Over(const std::function<Value(const Dim& j, Value so_far)>& next, Value initial) {
    return e_.Reduce({keys_}, initial,
                     [&](const Place& at, Value so_far) { return next(at[0], so_far); });
  }

  void WriteScore(const Dim& j) {
    const double scale = op_.scale() ? static_cast<double>(*op_.scale()) : 0;
    Value v = e_.Reduce({features_}, Number(0), [&](const Place& at, Value so_far) {
      const Place place = PlaceOf(Op::kQ, b_, h_, i_, at[0], features_);
      const Value q = s_.Cast(w_.Operand(Op::kQ, place), type_);
      const Value k = s_.Cast(e_.LoadFrom(k_, (head_ * keys_ + j) * features_ + at[0]), type_);
      return s_.Add(so_far, s_.Mul(q, k));
    });
    const Dim features = Max(features_, 1);  // a sum of none is 0, not 0 / 0
    const Value factor =
        op_.scale() ? Number(scale) : s_.Div(Number(1), s_.Power(s_.Number(type_, features), 0.5));
    v = s_.Mul(v, factor);
    Tell(0, j, v);
    if (op_.softcap() != 0) {
      const Value cap = Number(op_.softcap());
      v = s_.Mul(nn::TanhOp::Create(e_.lb().b(), s_.Div(v, cap)).y(), cap);
    }
    Tell(1, j, v);
    v = WithBias(j, v);
    Tell(2, j, v);
    SetScore(j, v);
  }

  Value WithBias(const Dim& j, Value v) {
    Value masked;
    const auto mask = [&](Value condition) {
      masked = masked ? s_.Or(masked, condition) : condition;
    };
    Value position = e_.Int(i_ + past_);
    const Value key = e_.Int(j);
    if (w_.Has(Op::kNonpadKvSeqlen)) {
      const Value valid = ToInt64(e_, w_.Operand(Op::kNonpadKvSeqlen, {b_}));
      mask(s_.AtMost(valid, key));
      position = s_.Add(s_.Sub(e_.Int(i_), e_.Int(queries_)), valid);
    }
    const auto number = [&](int64_t n) { return e_.lb().Int(n); };
    if (op_.is_causal()) mask(s_.Less(position, key));
    const int64_t left = op_.left_window_size(), right = op_.right_window_size();
    if (left >= 0) mask(s_.Less(number(left), s_.Sub(position, key)));
    if (right >= 0) mask(s_.Less(number(right), s_.Sub(key, position)));
    if (w_.Has(Op::kAttnMask)) {
      const std::vector<Dim> dims = w_.Dims(Op::kAttnMask);
      const bool is_whole = ProvablyEqual(dims.back(), keys_);  // one key is not every key
      if (!is_whole) mask(s_.AtMost(e_.Int(dims.back()), key));
      Place own = BroadcastPlace({b_, h_, i_, j}, dims, {batch_, heads_, queries_, keys_});
      if (!is_whole) own.back() = j;
      const auto read = [&] { return w_.Operand(Op::kAttnMask, own); };
      const ElementType element = TensorOf(w_.op->operand(Op::kAttnMask)).element();
      const Value none = e_.lb().Splat(element, 0);
      const Dim is_there = Min(Max(dims.back() - j, 0), 1);
      const Value given = is_whole ? read() : e_.Guarded(is_there, none, read);
      if (TensorOf(given).element() == ElementType::kBool) {
        mask(s_.Not(given));
      } else {
        v = s_.Add(v, s_.Cast(given, type_));
      }
    }
    return masked ? s_.Select(masked, Number(kMasked), v) : v;
  }

  void WriteValue(const Dim& f) {
    const Value sum = Over(
        [&](const Dim& j, Value so_far) {
          const Value p = Score(j);
          const Value v = s_.Cast(e_.LoadFrom(v_, (head_ * keys_ + j) * values_ + f), type_);
          return s_.Select(s_.Equal(p, Number(0)), so_far, s_.Add(so_far, s_.Mul(p, v)));
        },
        Number(0));
    e_.Store(y_, row_ * values_ + f, sum);
  }

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  Op op_;
  Dim batch_, heads_, queries_, features_, key_heads_, values_, past_, keys_;
  Dim row_, b_, h_, i_, head_;
  ElementType type_ = ElementType::kUndefined;
  Value k_, v_, p_, y_;
};

void WriteAttention(const WholeTensorEmitter& w) { Attention(w).Write(); }

std::vector<Dim> HeadDims(const Fits& fits, size_t operand, std::optional<int64_t> heads) {
  const std::vector<Dim> dims = fits.Dims(operand);
  if (dims.size() != 3) return dims;
  return {dims[0], Dim(heads.value_or(1)), dims[1], FloorDiv(dims[2], Dim(heads.value_or(1)))};
}

std::string RefuseAttention(const Operation& op) {
  using Op = nn::AttentionOp;
  const Op attention(&op);
  Fits fits(op);
  const std::vector<Dim> q = HeadDims(fits, Op::kQ, attention.q_num_heads());
  const std::vector<Dim> k = HeadDims(fits, Op::kK, attention.kv_num_heads());
  const std::vector<Dim> v = HeadDims(fits, Op::kV, attention.kv_num_heads());
  fits.Same(q[0], k[0]).Same(q[0], v[0]).Same(k[1], v[1]).Same(k[2], v[2]).Same(q[3], k[3]);
  fits.Is(Op::kNonpadKvSeqlen, {q[0]});
  if (fits.Has(Op::kPastKey) && fits.Has(Op::kPastValue)) {
    const Dim past = fits.Dims(Op::kPastKey)[2];
    fits.Is(Op::kPastKey, {q[0], k[1], past, k[3]}).Is(Op::kPastValue, {q[0], k[1], past, v[3]});
  }
  return fits.why().empty() ? NeedSizes(op) : fits.why();
}

std::string RefuseRotary(const Operation& op) {
  using Op = nn::RotaryEmbeddingOp;
  const Op rotary(&op);
  Fits fits(op);
  const std::vector<Dim> x = fits.Dims(Op::kX);
  const Dim heads = rotary.num_heads().value_or(1);
  const Dim features = x.size() == 4 ? x[3] : FloorDiv(x[2], heads);
  const Dim steps = x.size() == 4 ? x[2] : x[1];
  const std::vector<Dim> table = fits.Dims(Op::kCosCache);
  fits.Same(Op::kCosCache, Op::kSinCache).AtMost(table.back() * 2, features);
  fits.Is(Op::kPositionIds, {x[0], steps});
  if (!fits.Has(Op::kPositionIds)) fits.Is(Op::kCosCache, {x[0], steps, table.back()});
  return fits.why();
}

constexpr Compute kAttentionComputes[] = {
    {nn::kAttention, nullptr, RefuseAttention, nullptr, WriteAttention},
    {nn::kRotaryEmbedding, Rotary, RefuseRotary, Positions},
};

}  // namespace

std::span<const Compute> AttentionComputes() { return kAttentionComputes; }

}  // namespace lathe::lower
