// Gradients of attention: through the products and the softmax it is made of.
#include <cmath>
#include <limits>
#include <optional>

#include "lathe/dialect/nn/attention.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/norm.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/grad_parts.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {
namespace {

ElementType ElementOf(Value v) { return v.type().cast<AnyTensorType>().element(); }

Term As(Builder& b, Value x, ElementType type) {
  if (ElementOf(x) == type) return {b, x};
  return {b, CastOp::Create(b, x, {.to = type}).output()};
}

Term Reshaped(Builder& b, Value x, std::vector<int64_t> shape) {
  return {b, ReshapeOp::Create(b, x, IntsConstant(b, shape)).reshaped()};
}

// [B, L, H, E] and [B, H, L, E] become one another.
Term Swapped(Builder& b, Value x) {
  return {b, TransposeOp::Create(b, x, {.perm = std::vector<int64_t>{0, 2, 1, 3}}).transposed()};
}

Term Joined(Builder& b, std::vector<Value> pieces, int64_t axis) {
  return {b, ConcatOp::Create(b, pieces, {.axis = axis}).concat_result()};
}

int64_t ExtentOf(Value x, size_t axis) {
  const Dim& d = x.type().cast<AnyTensorType>().dims()[axis];
  if (!d.is_constant()) static_cast<void>(KnownShape(x));
  return d.value();
}

// 0, 1, ... along an axis of a tensor, as i64.
Value Counted(Builder& b, Value x, int64_t axis) {
  const Value extents = ShapeOp::Create(b, x).extents();
  const Value count = GatherOp::Create(b, extents, IntConstant(b, axis)).output();
  return RangeOp::Create(b, IntConstant(b, 0), count, IntConstant(b, 1)).output();
}

class Parts {
 public:
  Parts(AttentionOp op, Builder& b, std::span<const Value> operands)
      : op_(op), b_(b), operands_(operands), type_(ElementOf(operands[AttentionOp::kQ])) {}

  std::vector<Value> Results() {
    const Term q = Heads(AttentionOp::kQ, op_.q_num_heads());
    Term k = WithPast(AttentionOp::kPastKey, Heads(AttentionOp::kK, op_.kv_num_heads()));
    Term v = WithPast(AttentionOp::kPastValue, Heads(AttentionOp::kV, op_.kv_num_heads()));
    const Value present_key = k, present_value = v;
    const int64_t group = ExtentOf(q, 1) / std::max<int64_t>(ExtentOf(k, 1), 1);
    k = Repeated(k, group);
    v = As(b_, Repeated(v, group), type_);
    const double scale = op_.scale().value_or(1 / std::sqrt(static_cast<double>(ExtentOf(q, 3))));
    const double factor = std::sqrt(scale);
    const Term raw = Product(q * factor, k * factor, true);
    Value scores[4] = {raw, raw, raw, raw};
    Term score = raw;
    if (const double cap = op_.softcap(); cap != 0) score = Tanh(score / cap) * cap;
    scores[1] = score;
    FindBias(q, score);
    if (bias_) score = score + *bias_;
    scores[2] = score;
    const Term p = Probabilities(score);
    scores[3] = p;
    Term y = Product(p, v, false);
    if (IsPacked()) y = Reshaped(b_, Swapped(b_, y), {0, 0, -1});
    return {y, present_key, present_value, scores[op_.qk_matmul_output_mode()]};
  }

 private:
  Value Get(size_t i) const { return i < operands_.size() ? operands_[i] : Value(); }
  bool IsPacked() const { return KnownRank(op_.q()) == 3; }

  Term Product(const Term& x, const Term& y, bool transpose) {
    return {b_, MatmulOp::Create(b_, x, y, {.transpose_y = transpose}).z()};
  }

  Term Heads(size_t operand, std::optional<int64_t> heads) {
    const Value x = Get(operand);
    if (KnownRank(x) == 4) return {b_, x};
    const int64_t features = ExtentOf(x, 2) / *heads;
    return Swapped(b_, Reshaped(b_, x, {0, 0, *heads, features}));
  }

  Term WithPast(size_t past, const Term& now) {
    if (!Get(past)) return now;
    return Joined(b_, {Get(past), now}, 2);
  }

  // Each key head for all query heads of its group.
  Term Repeated(const Term& x, int64_t group) {
    if (group == 1) return x;
    std::vector<int64_t> heads;
    for (int64_t h = 0; h < ExtentOf(x, 1) * group; ++h) heads.push_back(h / group);
    return {b_, GatherOp::Create(b_, x, IntsConstant(b_, heads), {.axis = 1}).output()};
  }

  Term Probabilities(const Term& score) {
    const ElementType wide = op_.softmax_precision().value_or(type_);
    if (!allowed_) return Softmax(score, wide);
    const double lowest = type_ == ElementType::kF16 ? -65504 : -1e30;
    const Term p = Softmax(Select(allowed_, score, score.Number(lowest)), wide);
    return Select(allowed_, p, p.Number(0));  // a row without any key is zeros
  }

  Term Softmax(const Term& x, ElementType wide) {
    const Value p = SoftmaxOp::Create(b_, As(b_, x, wide), {.axis = -1}).y();
    return As(b_, p, type_);
  }

  void Allow(Value condition) {
    allowed_ = allowed_ ? AndOp::Create(b_, allowed_, condition).c() : condition;
  }
  Value NotLess(const Term& x, const Term& y) { return GreaterOrEqualOp::Create(b_, x, y).c(); }

  void FindBias(const Term& q, const Term& score) {
    if (Get(AttentionOp::kAttnMask)) AddMask(score);
    const Value lens = Get(AttentionOp::kNonpadKvSeqlen);
    if (!op_.is_causal() && op_.left_window_size() < 0 && op_.right_window_size() < 0 && !lens) {
      return;
    }
    const Term key(b_, Counted(b_, score, 3));  // [S]
    const int64_t column[] = {1};
    Term position(
        b_,
        UnsqueezeOp::Create(b_, Counted(b_, q, 2), IntsConstant(b_, column)).expanded());  // [L, 1]
    if (lens) {
      const int64_t axes[] = {1, 2, 3};
      const Term valid(b_, UnsqueezeOp::Create(b_, lens, IntsConstant(b_, axes)).expanded());
      Allow(Less(key, valid));
      const Value queries =
          GatherOp::Create(b_, ShapeOp::Create(b_, q).extents(), IntConstant(b_, 2)).output();
      position = position + valid - Term(b_, queries);
    } else if (const Value past = Get(AttentionOp::kPastKey)) {
      const Value extents = ShapeOp::Create(b_, past).extents();
      position = position + Term(b_, GatherOp::Create(b_, extents, IntConstant(b_, 2)).output());
    }
    if (op_.is_causal()) Allow(NotLess(position, key));
    if (const int64_t left = op_.left_window_size(); left >= 0) {
      Allow(NotLess(key + static_cast<double>(left), position));
    }
    if (const int64_t right = op_.right_window_size(); right >= 0) {
      Allow(NotLess(position + static_cast<double>(right), key));
    }
  }

  // Keys beyond the end of the mask, and those with -inf, are masked.
  void AddMask(const Term& score) {
    Term mask(b_, Get(AttentionOp::kAttnMask));
    const bool truth = mask.element() == ElementType::kBool;
    if (!truth && !IsFloat(mask.element())) mask = As(b_, mask, type_);
    mask = Padded(mask, score);
    if (truth) return Allow(mask);
    const Term lowest = mask.Number(-std::numeric_limits<double>::infinity());
    const Value open = Less(lowest, mask);
    Allow(open);
    bias_ = As(b_, Select(open, mask, mask.Number(0)), type_);
  }

  Term Padded(const Term& mask, const Term& score) {
    const auto rank = static_cast<size_t>(KnownRank(mask));
    const Dim keys = score.value().type().cast<AnyTensorType>().dims()[3];
    const Dim own = mask.value().type().cast<AnyTensorType>().dims()[rank - 1];
    if (ProvablyEqual(keys, own)) return mask;
    const int64_t missing = ExtentOf(score, 3) - ExtentOf(mask, rank - 1);
    std::vector<int64_t> pads(2 * rank, 0);
    pads.back() = missing;
    const bool truth = mask.element() == ElementType::kBool;
    const Term filling = mask.Number(truth ? 0 : -std::numeric_limits<double>::infinity());
    return {b_, PadOp::Create(b_, mask, IntsConstant(b_, pads), filling, Value()).output()};
  }

  AttentionOp op_;
  Builder& b_;
  std::span<const Value> operands_;
  ElementType type_;
  Value allowed_;  // truth values that broadcast to the scores; null: all
  std::optional<Term> bias_;
};

}  // namespace

std::vector<Value> AttentionOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return GradByParts(o, g, b, [&](Builder& inner, std::span<const Value> operands) {
    return Parts(AttentionOp(o), inner, operands).Results();
  });
}

// ---- rotary embedding ----

namespace {

Term Slice(Builder& b, Value x, int64_t begin, int64_t end, int64_t step = 1) {
  const int64_t from[] = {begin}, to[] = {end}, axis[] = {3}, by[] = {step};
  return {b, SliceOp::Create(b, x, IntsConstant(b, from), IntsConstant(b, to),
                             IntsConstant(b, axis), IntsConstant(b, by))
                 .output()};
}

// Of x [B, L, H, E], the first `rotated` features turned.
Term Rotated(Builder& b, const RotaryEmbeddingOp& op, const Term& x, int64_t rotated,
             const Term& cos, const Term& sin) {
  const int64_t half = rotated / 2;
  const bool pairs = op.interleaved();
  const Term a = pairs ? Slice(b, x, 0, rotated, 2) : Slice(b, x, 0, half);
  const Term c = pairs ? Slice(b, x, 1, rotated, 2) : Slice(b, x, half, rotated);
  const Term first = a * cos - c * sin, second = c * cos + a * sin;
  if (!pairs) return Joined(b, {first, second}, 3);
  const int64_t last[] = {4};
  const auto wide = [&](const Term& t) {
    return UnsqueezeOp::Create(b, t, IntsConstant(b, last)).expanded();
  };
  const Term both = Joined(b, {wide(first), wide(second)}, 4);
  return Reshaped(b, both, {0, 0, 0, rotated});
}

}  // namespace

std::vector<Value> RotaryEmbeddingOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const RotaryEmbeddingOp op(o);
  return GradByParts(o, g, b, [&](Builder& inner, std::span<const Value> operands) {
    const bool packed = KnownRank(op.x()) == 3;
    Term x(inner, operands[kX]);
    if (packed) {
      const int64_t heads = op.num_heads().value_or(1);
      x = Reshaped(inner, x, {0, 0, heads, ExtentOf(x, 2) / heads});
    } else {
      x = Swapped(inner, x);
    }
    const int64_t features = ExtentOf(x, 3);
    const int64_t rotated = op.rotary_embedding_dim() == 0 ? features : op.rotary_embedding_dim();
    const auto angles = [&](size_t operand) {
      Value cache = operands[operand];
      if (op.position_ids()) cache = GatherOp::Create(inner, cache, op.position_ids()).output();
      const int64_t axis[] = {2};
      return Term(inner, UnsqueezeOp::Create(inner, cache, IntsConstant(inner, axis)).expanded());
    };
    Term y = Rotated(inner, op, x, rotated, angles(kCosCache), angles(kSinCache));
    if (rotated < features) y = Joined(inner, {y, Slice(inner, x, rotated, features)}, 3);
    return std::vector<Value>{packed ? Reshaped(inner, y, {0, 0, -1}) : Swapped(inner, y)};
  });
}

// ---- linear attention ----

namespace {

// The steps of a linear attention, unrolled. The state is [B, Hk, E, F].
class LinearParts {
 public:
  LinearParts(LinearAttentionOp op, Builder& b, std::span<const Value> operands)
      : op_(op), b_(b), operands_(operands) {}

  std::vector<Value> Results() {
    const int64_t heads = op_.kv_num_heads(), steps = ExtentOf(op_.key(), 1);
    const int64_t keys = ExtentOf(op_.key(), 2) / heads, values = ExtentOf(op_.value(), 2) / heads;
    const int64_t group = op_.q_num_heads() / heads;
    const double scale = op_.scale() == 0 ? 1 / std::sqrt(static_cast<double>(keys)) : op_.scale();
    const Term k = Split(LinearAttentionOp::kKey, {0, 0, heads, keys, 1});
    const Term v = Split(LinearAttentionOp::kValue, {0, 0, heads, 1, values});
    const Term q = Split(LinearAttentionOp::kQuery, {0, 0, heads, group, keys});
    Term state = Start(k, v);
    std::vector<Value> rows;
    for (int64_t t = 0; t < steps; ++t) {
      const Term key = At(k, t), value = At(v, t);
      if (Decays()) state = state * Exp(At(Rates(keys), t));
      Term change = value;
      if (Corrects()) change = At(Strengths(), t) * (value - Transposed(key, state));
      state = state + key * change;
      const Term row = Term(b_, MatmulOp::Create(b_, At(q, t), state).z()) * scale;
      const int64_t axis[] = {1};
      rows.push_back(UnsqueezeOp::Create(b_, row, IntsConstant(b_, axis)).expanded());
    }
    const Term all = Joined(b_, rows, 1);  // [B, L, Hk, group, F]
    const Term y = Reshaped(b_, all, {0, steps, -1});
    const ElementType of_state = ElementOf(op_->result(1));
    return {y, As(b_, state, of_state)};
  }

 private:
  Value Get(size_t i) const { return i < operands_.size() ? operands_[i] : Value(); }
  bool Decays() const {
    return Get(LinearAttentionOp::kDecay) && op_.update_rule().starts_with("gated");
  }
  bool Corrects() const { return op_.update_rule().ends_with("delta"); }

  Term Split(size_t operand, std::vector<int64_t> shape) {
    return Reshaped(b_, Get(operand), std::move(shape));
  }
  Term At(const Term& x, int64_t t) {
    return {b_, GatherOp::Create(b_, x, IntConstant(b_, t), {.axis = 1}).output()};
  }
  Term Transposed(const Term& key, const Term& state) {  // key^T S: [B, Hk, 1, F]
    return {b_, MatmulOp::Create(b_, key, state, {.transpose_x = true}).z()};
  }
  // [B, L, Hk, E or 1, 1].
  Term Rates(int64_t keys) {
    const int64_t heads = op_.kv_num_heads();
    const int64_t width = ExtentOf(Get(LinearAttentionOp::kDecay), 2);
    const bool each = width == heads * keys && keys > 1;
    return Split(LinearAttentionOp::kDecay, {0, 0, each ? heads : width, each ? keys : 1, 1});
  }
  // [B, L, Hk or 1, 1, 1].
  Term Strengths() {
    const Value beta = Get(LinearAttentionOp::kBeta);
    if (!beta) return Term(b_, Get(LinearAttentionOp::kKey)).Number(1);
    return Reshaped(b_, beta, {0, 0, ExtentOf(beta, 2), 1, 1});
  }
  Term Start(const Term& k, const Term& v) {
    if (const Value past = Get(LinearAttentionOp::kPastState)) {
      return As(b_, past, ElementOf(Get(LinearAttentionOp::kKey)));
    }
    return At(k, 0) * At(v, 0) * 0;
  }

  LinearAttentionOp op_;
  Builder& b_;
  std::span<const Value> operands_;
};

}  // namespace

std::vector<Value> LinearAttentionOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  if (ExtentOf(LinearAttentionOp(o).key(), 1) == 0)
    FailGradient(o, "has no gradient over no steps");
  return GradByParts(o, g, b, [&](Builder& inner, std::span<const Value> operands) {
    return LinearParts(LinearAttentionOp(o), inner, operands).Results();
  });
}

}  // namespace lathe::nn
