#include <limits>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/grad_parts.h"
#include "src/dialect/nn/grad_util.h"
#include "src/dialect/nn/interpolate.h"
#include "src/dialect/nn/window.h"

namespace lathe::nn {
namespace {

using Ints = std::vector<int64_t>;

Term Reshaped(Builder& b, Value x, const Ints& shape) {
  return {b, ReshapeOp::Create(b, x, IntsConstant(b, shape)).reshaped()};
}

// Where each tap of each window lies along dim `d` without an offset: [taps, windows].
Value Places(Builder& b, const Window& w, size_t d, ElementType type) {
  std::vector<double> places;
  Ints tap(w.rank(), 0);
  do {
    Ints at(w.rank(), 0);
    do {
      places.push_back(
          static_cast<double>(at[d] * w.strides[d] + tap[d] * w.dilations[d] - w.begins[d]));
    } while (eval::NextIndex(w.out, at));
  } while (eval::NextIndex(w.kernel, tap));
  const Tensor all =
      Cast(Tensor::Of<double>({NumElements(w.kernel), NumElements(w.out)}, places), type);
  return builtin::ConstantOp::Create(b, {.value = all}).result();
}

// The convolution as reads of every tap, then a product with the weights for each group.
class DeformParts {
 public:
  DeformParts(DeformConvOp op, Builder& b, std::span<const Value> operands)
      : op_(op), b_(b), operands_(operands), x_(KnownShape(op.x(), 1)), w_(KnownShape(op.w())) {
    const Ints in(x_.begin() + 2, x_.end()), kernel(w_.begin() + 2, w_.end());
    window_ = ResolveWindow(WindowOf(op), in, kernel);
    taps_ = NumElements(kernel);
    windows_ = NumElements(window_.out);
  }

  Value Result() {
    const int64_t group = op_.group(), m = w_[0] / group, depth = w_[1] * taps_;
    const Term patches = Reshaped(b_, Read(), {-1, group, depth, windows_});
    const Term weights = Reshaped(b_, Get(DeformConvOp::kW), {group, m, depth});
    const Value products = MatmulOp::Create(b_, weights, patches).z();
    const Term y(b_, ReshapeLike(b_, products, op_.y()));
    if (!Get(DeformConvOp::kB)) return y;
    return y + PerChannel(Term(b_, Get(DeformConvOp::kB)), x_.size());
  }

 private:
  Value Get(size_t i) const { return i < operands_.size() ? operands_[i] : Value(); }

  // [N * offset groups, channels of one, taps * windows].
  Term Read() {
    const auto rank = static_cast<int64_t>(window_.rank());
    const int64_t channels = x_[1] / op_.offset_group(), points = taps_ * windows_;
    const Term image = Reshaped(b_, Get(DeformConvOp::kX), {-1, channels, NumElements(window_.in)});
    const Term offset = Reshaped(b_, Get(DeformConvOp::kOffset), {-1, taps_, rank, windows_});
    std::vector<Line> lines;
    std::vector<Term> places;
    for (int64_t d = 0; d < rank; ++d) {
      const auto dim = static_cast<size_t>(d);
      lines.push_back({window_.in[dim], true, "zeros", "linear"});
      const Term own(b_, GatherOp::Create(b_, offset, IntConstant(b_, d), {.axis = 2}).output());
      const Term base(b_, Places(b_, window_, dim, own.element()));
      places.push_back(Reshaped(b_, own + base, {-1, points}));
    }
    const Term read = Interpolated(image, lines, places);
    if (!Get(DeformConvOp::kMask)) return read;
    return read * Reshaped(b_, Get(DeformConvOp::kMask), {-1, 1, points});
  }

  DeformConvOp op_;
  Builder& b_;
  std::span<const Value> operands_;
  Ints x_, w_;
  Window window_;
  int64_t taps_ = 0, windows_ = 0;
};

}  // namespace

std::vector<Value> DeformConvOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return GradByParts(o, g, b, [&](Builder& inner, std::span<const Value> operands) {
    return std::vector<Value>{DeformParts(DeformConvOp(o), inner, operands).Result()};
  });
}

std::vector<Value> CausalConvWithStateOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const CausalConvWithStateOp op(o);
  const Ints w = KnownShape(op.w());
  const int64_t past = w[2] - 1;
  return GradByParts(o, g, b, [&](Builder& inner, std::span<const Value> operands) {
    const auto get = [&](size_t i) { return i < operands.size() ? operands[i] : Value(); };
    Value all;
    if (get(kPastState)) {
      const Value both[] = {get(kPastState), get(kX)};
      all = ConcatOp::Create(inner, both, {.axis = 2}).concat_result();
    } else {
      const int64_t pads[] = {0, 0, past, 0, 0, 0};
      all = PadOp::Create(inner, get(kX), IntsConstant(inner, pads), Value(), Value()).output();
    }
    Term y(inner, ConvOp::Create(inner, all, get(kW), get(kB), {.group = w[0]}).y());
    if (op.activation() != "none") y = y * Sigmoid(y);
    if (past == 0) return std::vector<Value>{y, Value()};
    const int64_t from[] = {-past}, to[] = {std::numeric_limits<int64_t>::max()}, axis[] = {2};
    const Value state = SliceOp::Create(inner, all, IntsConstant(inner, from),
                                        IntsConstant(inner, to), IntsConstant(inner, axis), Value())
                            .output();
    return std::vector<Value>{y, state};
  });
}

}  // namespace lathe::nn
