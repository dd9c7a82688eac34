#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/attention.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/nn/heads.h"
#include "src/dialect/nn/operand_shape.h"

namespace lathe::nn {
namespace {

// ---- rotary_embedding ---------------------------------------------------------------------------

// Throws unless the caches fit the input.
void CheckRotary(const RotaryEmbeddingOp& op, const std::vector<SymShape>& shapes) {
  const SymShape x = HeadShape(shapes[0], op.num_heads().value_or(0), "the input");
  const int64_t given = op.rotary_embedding_dim();
  const Dim rotated = given == 0 ? x.dims[3] : Dim(given);
  Assume(SizeCondition::Divides(2, rotated), "shape/rotary",
         [&] { return StrCat(rotated.ToString(), " rotated features make no pairs"); });
  Assume(SizeCondition::AtLeast(x.dims[3], rotated), "shape/rotary", [&] {
    return StrCat(rotated.ToString(), " rotated features in a head of ", x.dims[3].ToString());
  });
  const Dim pairs = FloorDiv(rotated, 2);
  const bool indexed = static_cast<bool>(op.position_ids());
  SymShape cache{x.dims[0], x.dims[2], pairs};
  if (indexed) cache = {Dim(), pairs};
  ExpectShape(shapes[1], cache, "cos_cache");
  ExpectShape(shapes[2], cache, "sin_cache");
  ExpectShape(shapes[3], {x.dims[0], x.dims[2]}, "position_ids");
}

// The row of the caches for each batch and step, of which position_ids has an entry or, without, a
// cache has a row.
std::vector<int64_t> CacheRows(EvalContext& c) {
  if (!c.HasInput(RotaryEmbeddingOp::kPositionIds)) {
    const Tensor& cache = c.input(RotaryEmbeddingOp::kCosCache);
    std::vector<int64_t> rows(static_cast<size_t>(cache.dim(0) * cache.dim(1)));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
    return rows;
  }
  const auto rows = ToInt64s(c.input(RotaryEmbeddingOp::kPositionIds));
  const int64_t count = std::min(c.input(1).dim(0), c.input(2).dim(0));
  for (int64_t row : rows) {
    if (row >= 0 && row < count) continue;
    c.Fail("shape/rotary", StrCat("position ", row, " in caches of ", count));
  }
  return rows;
}

// ---- linear_attention ---------------------------------------------------------------------------

struct LinearSizes {
  Dim batch, steps, key_features, value_features;
};

// One entry per step, per head, or per feature of each head.
void AssumeWidth(const SymShape& gate, int64_t heads, const Dim& features, const char* what) {
  if (!gate.ranked) return;
  const Dim& width = gate.dims[2];
  const Dim most = width.IsConstant(heads) ? Dim(heads) : heads * features;
  if (!width.is_constant() && heads != 1) return;  // which of the three is told by a run
  Assume(SizeCondition::BroadcastTo(width, most), "shape/linear-attention",
         [&] { return StrCat(what, " has ", width.ToString(), " entries per step"); });
}

LinearSizes SizesOf(const LinearAttentionOp& op, const std::vector<SymShape>& shapes) {
  const int64_t heads = op.kv_num_heads();
  if (heads < 1 || op.q_num_heads() % heads != 0) {
    eval::FailShape("shape/heads",
                    StrCat(op.q_num_heads(), " query heads do not divide into ", heads, " groups"));
  }
  const SymShape q = HeadShape(WithRank(shapes[0], 3, "query"), op.q_num_heads(), "query");
  const SymShape k = HeadShape(WithRank(shapes[1], 3, "key"), heads, "key");
  const SymShape v = HeadShape(WithRank(shapes[2], 3, "value"), heads, "value");
  LinearSizes s{q.dims[0], q.dims[2], q.dims[3], v.dims[3]};
  for (const SymShape& other : {k, v}) {
    Unify(s.batch, other.dims[0], "the batch size");
    Unify(s.steps, other.dims[2], "the number of steps");
  }
  Unify(s.key_features, k.dims[3], "the head size");
  ExpectShape(shapes[3], {s.batch, heads, s.key_features, s.value_features}, "past_state");
  ExpectShape(shapes[4], {s.batch, s.steps, Dim()}, "decay");
  ExpectShape(shapes[5], {s.batch, s.steps, Dim()}, "beta");
  AssumeWidth(shapes[4], heads, s.key_features, "decay");
  AssumeWidth(shapes[5], heads, 1, "beta");
  const bool gated = op.update_rule() == "gated" || op.update_rule() == "gated_delta";
  const bool delta = op.update_rule() == "delta" || op.update_rule() == "gated_delta";
  if (gated != static_cast<bool>(op.decay()) || delta != static_cast<bool>(op.beta())) {
    eval::FailArgument("linear-attention/operands",
                       StrCat("rule ", op.update_rule(), gated ? " needs" : " takes no",
                              " decay and", delta ? " needs" : " takes no", " beta"));
  }
  return s;
}

// One number per head and step, or per feature of each.
class Gates {
 public:
  Gates(EvalContext& c, size_t operand, int64_t heads, int64_t features, const char* what) {
    if (!c.HasInput(operand)) return;
    const Tensor& tensor = c.input(operand);
    values_ = ToDoubles(tensor);
    width_ = tensor.dim(2);
    if (width_ != 1 && width_ != heads && width_ != heads * features) {
      c.Fail("shape/linear-attention", StrCat(what, " has ", width_, " entries per step"));
    }
    per_head_ = width_ == heads * features ? features : width_ == heads ? 1 : 0;
    per_feature_ = width_ == heads * features && features > 1 ? 1 : 0;
  }
  [[nodiscard]] double At(int64_t row, int64_t head, int64_t feature) const {
    const int64_t at = row * width_ + head * per_head_ + feature * per_feature_;
    return values_[static_cast<size_t>(at)];
  }
  [[nodiscard]] bool given() const { return width_ > 0; }

 private:
  std::vector<double> values_;
  int64_t width_ = 0, per_head_ = 0, per_feature_ = 0;
};

// One step of one key head: `state` is [E, F].
void UpdateState(double* state, const Heads& k, const Heads& v, const Gates& decay,
                 const Gates& beta, int64_t b, int64_t h, int64_t t) {
  const double* key = k.Row(b, h, t);
  const double* value = v.Row(b, h, t);
  const int64_t row = b * k.rows + t;
  if (decay.given()) {
    for (int64_t e = 0; e < k.features; ++e) {
      const double factor = std::exp(decay.At(row, h, e));
      for (int64_t f = 0; f < v.features; ++f) state[e * v.features + f] *= factor;
    }
  }
  for (int64_t f = 0; f < v.features; ++f) {
    double w = value[f];
    if (beta.given()) {
      for (int64_t e = 0; e < k.features; ++e) w -= state[e * v.features + f] * key[e];
      w *= beta.At(row, h, 0);
    }
    for (int64_t e = 0; e < k.features; ++e) state[e * v.features + f] += key[e] * w;
  }
}

}  // namespace

void RotaryEmbeddingOp::InferShape(InferShapeContext& c) {
  CheckRotary(RotaryEmbeddingOp(c.op()), OperandShapes(c, 4));
  c.SetShape(kY, c.shape(kX));
}

// Of each pair four products, a sum and a difference; the caches have the pairs.
Dim RotaryEmbeddingOp::Flops(Operation* o) {
  const RotaryEmbeddingOp op(o);
  const SymShape x = HeadShape(ShapeOf(op.x()), op.num_heads().value_or(0), "the input");
  const SymShape cache = ShapeOf(op.cos_cache());
  if (cache.dims.empty()) return Dim::Unknown();
  return 6 * x.dims[0] * x.dims[1] * x.dims[2] * cache.dims.back();
}

void RotaryEmbeddingOp::Eval(EvalContext& c) {
  const RotaryEmbeddingOp op(c.op());
  CheckRotary(op, OperandShapes(c, 4));
  // Before the empty input, as loops check them: a position is wrong whatever it turns.
  const std::vector<int64_t> rows = CacheRows(c);
  if (c.input(kX).num_elements() == 0) return c.SetOutput(kY, c.input(kX));
  Heads x(c.input(kX), op.num_heads().value_or(0), "the input");
  const std::vector<double> cosines = ToDoubles(c.input(kCosCache));
  const std::vector<double> sines = ToDoubles(c.input(kSinCache));
  const int64_t pairs = c.input(kCosCache).dim(-1);
  const bool interleaved = op.interleaved();
  for (int64_t at = 0; at < x.batch * x.heads * x.rows; ++at) {
    const int64_t t = at % x.rows, h = at / x.rows % x.heads, b = at / x.rows / x.heads;
    double* p = x.Row(b, h, t);
    const int64_t row = rows[static_cast<size_t>(b * x.rows + t)];
    for (int64_t i = 0; i < pairs; ++i) {
      double& first = p[interleaved ? 2 * i : i];
      double& second = p[interleaved ? 2 * i + 1 : i + pairs];
      const auto angle = static_cast<size_t>(row * pairs + i);
      const double a = first, d = second;
      first = a * cosines[angle] - d * sines[angle];
      second = a * sines[angle] + d * cosines[angle];
    }
  }
  c.SetOutput(kY, eval::FromDoubles(c.input(kX).element_type(), c.input(kX).shape(), x.values()));
}

void LinearAttentionOp::InferShape(InferShapeContext& c) {
  const LinearAttentionOp op(c.op());
  const LinearSizes s = SizesOf(op, OperandShapes(c, 6));
  c.SetShape(kOutput, {s.batch, s.steps, Dim(op.q_num_heads()) * s.value_features});
  c.SetTensor(kPresentState, c.element(c.HasInput(kPastState) ? kPastState : kQuery),
              {s.batch, op.kv_num_heads(), s.key_features, s.value_features});
}

// What goes into the state and what is read from it; without decay and delta corrections.
Dim LinearAttentionOp::Flops(Operation* o) {
  const LinearAttentionOp op(o);
  const LinearSizes s = SizesOf(op, OperandShapes(o, 6));
  const Dim heads = op.q_num_heads() + op.kv_num_heads();
  return 2 * s.batch * s.steps * heads * s.key_features * s.value_features;
}

void LinearAttentionOp::Eval(EvalContext& c) {
  const LinearAttentionOp op(c.op());
  static_cast<void>(SizesOf(op, OperandShapes(c, 6)));
  const int64_t heads = op.kv_num_heads();
  const Heads q(c.input(kQuery), op.q_num_heads(), "query");
  const Heads k(c.input(kKey), heads, "key");
  const Heads v(c.input(kValue), heads, "value");
  const Gates decay(c, kDecay, heads, k.features, "decay");
  const Gates beta(c, kBeta, heads, 1, "beta");
  const Shape shape = ConstantsOf({k.batch, heads, k.features, v.features});
  std::vector<double> states(static_cast<size_t>(NumElements(shape)), 0.0);
  if (c.HasInput(kPastState)) states = ToDoubles(c.input(kPastState));
  const double given = op.scale();
  const double scale = given == 0 ? 1 / std::sqrt(static_cast<double>(q.features)) : given;
  const Shape y_shape = ConstantsOf({q.batch, q.rows, Dim(q.heads) * v.features});
  std::vector<double> y(static_cast<size_t>(NumElements(y_shape)), 0.0);
  const int64_t group = q.heads / heads;
  const int64_t steps = states.empty() ? 0 : k.batch * heads * k.rows;
  for (int64_t at = 0; at < steps; ++at) {
    const int64_t t = at % k.rows, h = at / k.rows % heads, b = at / k.rows / heads;
    double* state = states.data() + (b * heads + h) * k.features * v.features;
    UpdateState(state, k, v, decay, beta, b, h, t);
    for (int64_t own = h * group; own < (h + 1) * group; ++own) {
      const double* query = q.Row(b, own, t);
      double* out = y.data() + ((b * q.rows + t) * q.heads + own) * v.features;
      for (int64_t e = 0; e < k.features; ++e) {
        for (int64_t f = 0; f < v.features; ++f) {
          out[f] += scale * query[e] * state[e * v.features + f];
        }
      }
    }
  }
  const ElementType type = c.input(kQuery).element_type();
  c.SetOutput(kOutput, eval::FromDoubles(type, y_shape, y));
  const ElementType kept = c.HasInput(kPastState) ? c.input(kPastState).element_type() : type;
  c.SetOutput(kPresentState, eval::FromDoubles(kept, shape, states));
}

}  // namespace lathe::nn
