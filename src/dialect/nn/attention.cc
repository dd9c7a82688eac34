#include "lathe/dialect/nn/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/nn/heads.h"
#include "src/dialect/nn/operand_shape.h"

namespace lathe::nn {
namespace {

constexpr double kMasked = -std::numeric_limits<double>::infinity();

// ---- shapes -------------------------------------------------------------------------------------

struct Sizes {
  SymShape y, present_key, present_value, scores;
};

void CheckMask(const SymShape& mask, const SymShape& scores) {
  if (!mask.ranked) return;
  const char* id = "shape/attention-mask";
  const auto message = [&] {
    return StrCat("the mask ", mask.ToString(), " does not broadcast to ", scores.ToString());
  };
  if (mask.rank() < 1 || mask.rank() > 4) eval::FailShape(id, message());
  for (size_t back = 1; back < mask.rank(); ++back) {
    const Dim& d = mask.dims[mask.rank() - 1 - back];
    Assume(SizeCondition::BroadcastTo(d, scores.dims[3 - back]), id, message);
  }
  Assume(SizeCondition::AtLeast(scores.dims[3], mask.dims.back()), id, message);
}

Sizes SizesOf(const AttentionOp& op, const std::vector<SymShape>& shapes) {
  const SymShape q = HeadShape(shapes[AttentionOp::kQ], op.q_num_heads().value_or(0), "q");
  const SymShape k = HeadShape(shapes[AttentionOp::kK], op.kv_num_heads().value_or(0), "k");
  const SymShape v = HeadShape(shapes[AttentionOp::kV], op.kv_num_heads().value_or(0), "v");
  Dim batch = q.dims[0], heads = k.dims[1], keys = k.dims[2], features = q.dims[3];
  Unify(batch, k.dims[0], "the batch size");
  Unify(batch, v.dims[0], "the batch size");
  Unify(heads, v.dims[1], "the number of key heads");
  Unify(keys, v.dims[2], "the number of keys");
  Unify(features, k.dims[3], "the head size");
  const auto undivided = [&] {
    return StrCat(q.dims[1].ToString(), " query heads do not divide into ", heads.ToString(),
                  " groups");
  };
  // No heads divide into no groups; others do not.
  Assume(SizeCondition::Divides(Max(heads, 1), q.dims[1]), "shape/heads", undivided);
  Assume(SizeCondition::AtLeast(heads * q.dims[1], q.dims[1]), "shape/heads", undivided);
  const SymShape past = WithRank(shapes[AttentionOp::kPastKey], 4, "past_key");
  const bool cached = static_cast<bool>(op.past_key());
  if (cached != static_cast<bool>(op.past_value())) {
    eval::FailShape("shape/attention-past", "past_key and past_value go together");
  }
  if (cached && op.nonpad_kv_seqlen()) {
    eval::FailShape("shape/attention-past", "nonpad_kv_seqlen does not go with past_key");
  }
  const Dim before = cached ? past.dims[2] : Dim(0);
  ExpectShape(shapes[AttentionOp::kPastKey], {batch, heads, before, features}, "past_key");
  ExpectShape(shapes[AttentionOp::kPastValue], {batch, heads, before, v.dims[3]}, "past_value");
  ExpectShape(shapes[AttentionOp::kNonpadKvSeqlen], {batch}, "nonpad_kv_seqlen");
  Sizes sizes;
  sizes.scores = {batch, q.dims[1], q.dims[2], before + keys};
  CheckMask(shapes[AttentionOp::kAttnMask], sizes.scores);
  sizes.present_key = {batch, heads, before + keys, features};
  sizes.present_value = {batch, heads, before + keys, v.dims[3]};
  const SymShape& given = shapes[AttentionOp::kQ];
  if (given.ranked) {
    sizes.y = given.rank() == 3 ? SymShape{batch, q.dims[2], q.dims[1] * v.dims[3]}
                                : SymShape{batch, q.dims[1], q.dims[2], v.dims[3]};
  }
  return sizes;
}

// ---- bias ---------------------------------------------------------------------------------------

// What is added to the score of a query and a key.
class Bias {
 public:
  Bias(EvalContext& c, const AttentionOp& op, int64_t queries, int64_t past)
      : causal_(op.is_causal()),
        left_(op.left_window_size()),
        right_(op.right_window_size()),
        queries_(queries),
        past_(past) {
    if (c.HasInput(AttentionOp::kNonpadKvSeqlen)) {
      valid_ = ToInt64s(c.input(AttentionOp::kNonpadKvSeqlen));
    }
    if (!c.HasInput(AttentionOp::kAttnMask)) return;
    const Tensor& mask = c.input(AttentionOp::kAttnMask);
    values_ = ToDoubles(mask);
    boolean_ = mask.element_type() == ElementType::kBool;
    const auto own = eval::RowMajorStrides(mask.shape());
    strides_.assign(4, 0);
    for (size_t d = 0; d < own.size(); ++d) {
      if (mask.shape()[d] != 1) strides_[4 - own.size() + d] = own[d];
    }
    mask_keys_ = mask.shape().back();
  }

  [[nodiscard]] double At(int64_t b, int64_t h, int64_t query, int64_t key) const {
    int64_t position = query + past_;  // negative for queries before the first key
    if (!valid_.empty()) {
      const int64_t valid = valid_[static_cast<size_t>(b)];
      if (key >= valid) return kMasked;
      position = query - queries_ + valid;
    }
    if (causal_ && key > position) return kMasked;
    if (left_ >= 0 && position - key > left_) return kMasked;
    if (right_ >= 0 && key - position > right_) return kMasked;
    return strides_.empty() ? 0 : Masked(b, h, query, key);
  }

 private:
  [[nodiscard]] double Masked(int64_t b, int64_t h, int64_t query, int64_t key) const {
    if (key >= mask_keys_) return kMasked;
    const int64_t at = b * strides_[0] + h * strides_[1] + query * strides_[2] + key * strides_[3];
    const double value = values_[static_cast<size_t>(at)];
    if (boolean_) return value != 0 ? 0 : kMasked;
    return value;
  }

  bool causal_;
  int64_t left_, right_, queries_, past_;
  std::vector<int64_t> valid_;
  std::vector<double> values_;
  std::vector<int64_t> strides_;
  int64_t mask_keys_ = 0;
  bool boolean_ = false;
};

// ---- rows ---------------------------------------------------------------------------------------

double Dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void Softmax(std::span<double> row, ElementType type) {
  double greatest = kMasked;
  for (double& v : row) greatest = eval::NanMax(greatest, v = eval::RoundedTo(type, v));
  double sum = 0;
  for (double& v : row) {
    sum += v = eval::RoundedTo(type, std::exp(eval::RoundedTo(type, v - greatest)));
  }
  sum = eval::RoundedTo(type, sum);
  for (double& v : row) v = eval::RoundedTo(type, v / sum);
}

// `past` [B, H, P, E] and then the rows of `now`, as [B, H, P + S, E].
Tensor WithPast(EvalContext& c, size_t past, const Heads& now, ElementType type,
                const Shape& shape) {
  if (NumElements(shape) == 0) return Tensor(type, shape);
  std::vector<double> all;
  all.reserve(static_cast<size_t>(NumElements(shape)));
  const std::vector<double> before =
      c.HasInput(past) ? ToDoubles(c.input(past)) : std::vector<double>{};
  const int64_t block = (shape[2] - now.rows) * now.features;
  for (int64_t b = 0; b < now.batch; ++b) {
    for (int64_t h = 0; h < now.heads; ++h) {
      const double* first = before.data() + (b * now.heads + h) * block;
      if (block > 0) all.insert(all.end(), first, first + block);
      for (int64_t row = 0; row < now.rows; ++row) {
        const double* from = now.Row(b, h, row);
        all.insert(all.end(), from, from + now.features);
      }
    }
  }
  return eval::FromDoubles(type, shape, all);
}

// Everything of one evaluation. Values are rounded to `type` where the ONNX function rounds.
struct Attention {
  ElementType type, softmax_type;
  double factor;  // sqrt(scale), for q and k each
  double softcap;
  int64_t mode;
  bool nan_rows;
  std::vector<double> scores;  // what qk_matmul_output holds

  [[nodiscard]] double Rounded(double v) const { return eval::RoundedTo(type, v); }

  void Scale(Heads& heads) const {
    for (double& v : heads.values()) v = Rounded(v * factor);
  }

  // The probabilities of the keys for one query; `row` of the scores starts at `out`.
  [[nodiscard]] std::vector<double> Probabilities(std::span<const double> raw,
                                                  std::span<const double> bias, double* out) const {
    std::vector<double> p(raw.size());
    for (size_t j = 0; j < raw.size(); ++j) {
      double v = raw[j];
      if (mode == 0) out[j] = v;
      if (softcap != 0) v = Rounded(Rounded(std::tanh(Rounded(v / softcap))) * softcap);
      if (mode == 1) out[j] = v;
      p[j] = bias[j] == kMasked ? kMasked : Rounded(v + bias[j]);
      if (mode == 2) out[j] = p[j];
    }
    if (!nan_rows && std::ranges::all_of(p, [](double v) { return v == kMasked; })) {
      std::fill(p.begin(), p.end(), 0.0);
    } else {
      Softmax(p, softmax_type);
    }
    for (size_t j = 0; j < p.size(); ++j) {
      p[j] = Rounded(p[j]);
      if (mode == 3) out[j] = p[j];
    }
    return p;
  }
};

Attention MakeAttention(const AttentionOp& op, ElementType type, int64_t features) {
  const double scale = op.scale().value_or(1 / std::sqrt(static_cast<double>(features)));
  Attention a{type,
              op.softmax_precision().value_or(type),
              eval::RoundedTo(type, std::sqrt(scale)),
              op.softcap(),
              op.qk_matmul_output_mode(),
              op.nan_rows(),
              {}};
  if (!IsFloat(a.softmax_type)) {
    eval::FailArgument("attention/softmax-precision",
                       StrCat("softmax_precision is ", Name(a.softmax_type)), "use a float type");
  }
  if (a.mode > 3) {
    eval::FailArgument("attention/mode", StrCat("qk_matmul_output_mode is ", a.mode),
                       "use 0, 1, 2 or 3");
  }
  return a;
}

}  // namespace

void AttentionOp::InferShape(InferShapeContext& c) {
  const Sizes sizes = SizesOf(AttentionOp(c.op()), OperandShapes(c, 7));
  c.SetShape(kY, sizes.y);
  c.SetShape(kPresentKey, sizes.present_key);
  c.SetShape(kPresentValue, sizes.present_value);
  c.SetShape(kQkMatmulOutput, sizes.scores);
}

// Both matrix products, whatever is masked.
Dim AttentionOp::Flops(Operation* o) {
  const Sizes sizes = SizesOf(AttentionOp(o), OperandShapes(o, 7));
  const Dim features = sizes.present_key.dims[3] + sizes.present_value.dims[3];
  return 2 * sizes.scores.NumElements() * features;
}

void AttentionOp::Eval(EvalContext& c) {
  const AttentionOp op(c.op());
  const Sizes sizes = SizesOf(op, OperandShapes(c, 7));
  const int64_t kv_heads = op.kv_num_heads().value_or(0);
  Heads q(c.input(kQ), op.q_num_heads().value_or(0), "q");
  const ElementType type = c.input(kQ).element_type();
  const Tensor keys = WithPast(c, kPastKey, Heads(c.input(kK), kv_heads, "k"), type,
                               ConstantsOf(sizes.present_key));
  const Tensor values = WithPast(c, kPastValue, Heads(c.input(kV), kv_heads, "v"),
                                 c.input(kV).element_type(), ConstantsOf(sizes.present_value));
  Heads k(keys, 0, "k");
  const Heads v(values, 0, "v");
  const Shape scores = ConstantsOf(sizes.scores);
  Attention attention = MakeAttention(op, type, q.features);
  attention.Scale(q);
  attention.Scale(k);
  attention.scores.resize(static_cast<size_t>(NumElements(scores)));
  const int64_t past = c.HasInput(kPastKey) ? c.input(kPastKey).dim(2) : 0;
  const Bias bias(c, op, q.rows, past);
  const Shape shape = ConstantsOf(sizes.y);
  std::vector<double> y(static_cast<size_t>(NumElements(shape)), 0.0);
  const int64_t group = k.heads == 0 ? 1 : q.heads / k.heads;
  std::vector<double> raw(static_cast<size_t>(k.rows)), row_bias(raw.size());
  const bool nothing = y.empty() && attention.scores.empty();
  const int64_t queries = nothing ? 0 : q.batch * q.heads * q.rows;
  for (int64_t at = 0; at < queries; ++at) {
    const int64_t i = at % q.rows, h = at / q.rows % q.heads, b = at / q.rows / q.heads;
    for (int64_t j = 0; j < k.rows; ++j) {
      const auto key = static_cast<size_t>(j);
      raw[key] = attention.Rounded(Dot(q.Row(b, h, i), k.Row(b, h / group, j), q.features));
      row_bias[key] = bias.At(b, h, i, j);
    }
    const std::vector<double> p =
        attention.Probabilities(raw, row_bias, attention.scores.data() + at * k.rows);
    const int64_t row = shape.size() == 3 ? (b * q.rows + i) * q.heads + h : at;
    for (int64_t j = 0; j < k.rows; ++j) {
      if (p[static_cast<size_t>(j)] == 0) continue;  // whatever the value is
      const double* from = v.Row(b, h / group, j);
      for (int64_t f = 0; f < v.features; ++f) {
        y[static_cast<size_t>(row * v.features + f)] += p[static_cast<size_t>(j)] * from[f];
      }
    }
  }
  c.SetOutput(kY, eval::FromDoubles(type, shape, y));
  c.SetOutput(kPresentKey, keys);
  c.SetOutput(kPresentValue, values);
  c.SetOutput(kQkMatmulOutput, eval::FromDoubles(type, scores, attention.scores));
}

}  // namespace lathe::nn
