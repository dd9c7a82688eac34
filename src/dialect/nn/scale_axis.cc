#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/activation.h"
#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/pool.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/tensor_of.h"
#include "src/dialect/nn/layout.h"

// How a scale per channel moves past each op: see scale_axis_interface.h. Sources: NNVM's
// FScaleAxisBackward and FScaleAxisForward.
namespace lathe::nn {

namespace {

/// 0 if it is not known: no axis of a scale is the last of such a tensor.
int64_t RankOf(Value v) {
  const AnyTensorType type = TensorOrNull(v);
  return type && type.has_rank() ? static_cast<int64_t>(type.rank()) : 0;
}

// ---- layers ----

/// How the channels of a layer lie in its weights, and how many they know.
struct WeightChannels {
  int64_t count;
  ChannelLayout layout;
};

/// Channel c of group g is row or column c of that group's part: `outer` runs over the groups.
WeightChannels Grouped(const Tensor& w, int64_t groups, int64_t axis) {
  WeightChannels channels{w.dim(axis) * groups, ChannelLayout::Along(w, axis)};
  channels.layout.per_group = static_cast<size_t>(w.dim(1 - axis) / groups);
  return channels;
}
WeightChannels Plain(const Tensor& w, int64_t axis) {
  return {w.dim(axis), ChannelLayout::Along(w, axis)};
}

/// Of weights of a convolution, whose channels on one side (axis 0) are those of all groups.
std::optional<WeightChannels> ConvChannels(const Tensor& w, int64_t groups, bool at_axis_0) {
  if (w.rank() < 2 || w.dim(0) % groups != 0) return std::nullopt;
  return at_axis_0 ? Plain(w, 0) : Grouped(w, groups, 1);
}

/// Of the right matrix of a product: [C, M], or transposed.
std::optional<WeightChannels> DenseChannels(const Tensor& w, bool transposed_left, bool transposed,
                                            bool outputs) {
  if (w.rank() < 2 || transposed_left) return std::nullopt;
  return Plain(w, transposed == outputs ? w.rank() - 2 : w.rank() - 1);
}

int64_t ImageAxis(const Operation* op) { return ChannelsLast(op) ? RankOf(op->operand(0)) - 1 : 1; }

bool ScaleBias(ScaleAxisContext& c) {
  const Operation* op = c.op();
  if (op->num_operands() < 3 || !op->operand(2)) return true;
  const Tensor* b = c.Constant(2);
  if (b == nullptr) return c.Refuse("its bias is not a constant");
  if (b->rank() != 1 || (!c.scale().is_scalar() && b->dim(0) == 1)) {
    return c.Refuse("its bias is not a vector of channels");
  }
  std::optional<Tensor> scaled = ScaledAlong(*b, c.scale(), 0);
  if (!scaled) return c.Refuse("its bias would leave the range of its type");
  c.SetConstant(2, std::move(*scaled));
  return true;
}

/// Into the weights, operand 1, and for outputs the bias. `axis` is that of the channels in what
/// the layer reads (forward) or computes; `channels(w)` says how they lie in the weights.
template <class Channels>
bool ScaleWeights(ScaleAxisContext& c, int64_t axis, const Channels& channels_of) {
  if (c.is_forward() && c.position() != 0) return false;
  if (!c.scale().is_scalar() && c.scale().axis != axis) {
    return c.Refuse("the scale is not one of its channels");
  }
  const Tensor* w = c.Constant(1);
  if (w == nullptr) return c.Refuse("its weights are not constants");
  const std::optional<WeightChannels> channels = channels_of(*w);
  if (!channels) return c.Refuse("its input is transposed or its weights are a vector");
  if (!c.scale().Fits(channels->count)) {
    return c.Refuse("its weights have another number of channels");
  }
  c.ScaleConstant(1, c.scale(), channels->layout);
  return c.is_forward() || ScaleBias(c);
}

// ---- ops that only pass a scale on ----

/// f(scale x) = scale f(x) where no factor is negative.
bool PassNonnegative(ScaleAxisContext& c) {
  if (!c.scale().nonnegative) return c.Refuse("a factor is negative");
  return c.Pass(0, c.scale());
}

/// Windows see one channel at a time.
bool IsPerWindow(ScaleAxisContext& c) {
  const Scale& scale = c.scale();
  return scale.is_scalar() || scale.axis == 0 || scale.axis == ImageAxis(c.op());
}

bool PassAverage(ScaleAxisContext& c) {
  if (!IsPerWindow(c)) return c.Refuse("the scale varies within a window");
  return c.Pass(0, c.scale());
}

bool PassMaximum(ScaleAxisContext& c) {
  const Operation* op = c.op();
  if (op->num_results() > 1 && !op->result(1).use_empty()) return false;  // indices
  if (!IsPerWindow(c)) return c.Refuse("the scale varies within a window");
  return PassNonnegative(c);
}

// ---- sums and products ----

/// The constant operand of an addition.
bool ScaleAddend(ScaleAxisContext& c, size_t i, const Scale& scale) {
  const Tensor* addend = c.Constant(i);
  if (addend == nullptr || !c.HasTypeOfResult(1 - i)) return false;
  std::optional<Tensor> scaled = ScaledAddend(*addend, scale, RankOf(c.op()->result(0)));
  if (!scaled) {
    return c.Refuse(
        "its constant varies in another way than the scale, or leaves the range of its type");
  }
  c.SetConstant(i, std::move(*scaled));
  return true;
}

/// Both sides must take the scale.
bool ScaleTerms(ScaleAxisContext& c) {
  for (size_t i = 0; i < 2; ++i) {
    if (c.Constant(i) != nullptr) {
      if (!ScaleAddend(c, i, c.scale())) return false;
    } else if (c.HasTypeOfResult(i)) {
      c.Operand(i, c.scale());
    } else {
      return false;
    }
  }
  return true;
}

bool ScaleSum(ScaleAxisContext& c) {
  if (!c.is_forward()) return ScaleTerms(c);
  if (!c.scale().divides) {
    return c.Refuse("a factor is (nearly) zero, and the constant would be divided by it");
  }
  const Scale inverse = c.scale().Reciprocal();
  if (!inverse.IsFinite() || !ScaleAddend(c, 1 - c.position(), inverse)) return false;
  return c.Pass(c.position(), c.scale());
}

/// The op multiplies operand `data`, or divides it, by a constant: the order does not matter.
bool PassFactor(ScaleAxisContext& c, size_t data) {
  return c.HasTypeOfResult(data) && c.Constant(1 - data) != nullptr && c.Pass(data, c.scale());
}

}  // namespace

bool ConvOp::ScaleAxis(ScaleAxisContext& c) {
  return ScaleWeights(c, ImageAxis(c.op()), [&](const Tensor& w) {
    return ConvChannels(w, ConvOp(c.op()).group(), !c.is_forward());
  });
}

bool ConvTransposeOp::ScaleAxis(ScaleAxisContext& c) {
  return ScaleWeights(c, ImageAxis(c.op()), [&](const Tensor& w) {
    return ConvChannels(w, ConvTransposeOp(c.op()).group(), c.is_forward());
  });
}

bool GemmOp::ScaleAxis(ScaleAxisContext& c) {
  const GemmOp op(c.op());
  return ScaleWeights(c, 1, [&](const Tensor& w) {
    return DenseChannels(w, op.transA(), op.transB(), !c.is_forward());
  });
}

bool MatmulOp::ScaleAxis(ScaleAxisContext& c) {
  const MatmulOp op(c.op());
  const int64_t axis = RankOf(c.is_forward() ? op.x() : c.op()->result(0)) - 1;
  return ScaleWeights(c, axis, [&](const Tensor& w) {
    return DenseChannels(w, op.transpose_x(), op.transpose_y(), !c.is_forward());
  });
}

bool IdentityOp::ScaleAxis(ScaleAxisContext& c) { return c.Pass(0, c.scale()); }
bool NegOp::ScaleAxis(ScaleAxisContext& c) { return c.Pass(0, c.scale()); }
bool ReluOp::ScaleAxis(ScaleAxisContext& c) { return PassNonnegative(c); }
bool LeakyReluOp::ScaleAxis(ScaleAxisContext& c) { return PassNonnegative(c); }
bool AveragePoolOp::ScaleAxis(ScaleAxisContext& c) { return PassAverage(c); }
bool GlobalAveragePoolOp::ScaleAxis(ScaleAxisContext& c) { return PassAverage(c); }
bool MaxPoolOp::ScaleAxis(ScaleAxisContext& c) { return PassMaximum(c); }
bool GlobalMaxPoolOp::ScaleAxis(ScaleAxisContext& c) { return PassMaximum(c); }

bool AddOp::ScaleAxis(ScaleAxisContext& c) { return ScaleSum(c); }
bool SubOp::ScaleAxis(ScaleAxisContext& c) { return ScaleSum(c); }

bool MulOp::ScaleAxis(ScaleAxisContext& c) {
  if (c.is_forward()) return PassFactor(c, c.position());
  return PassFactor(c, 0) || PassFactor(c, 1);
}

bool DivOp::ScaleAxis(ScaleAxisContext& c) { return PassFactor(c, 0); }

/// Each operand takes its part of the factors.
bool ConcatOp::ScaleAxis(ScaleAxisContext& c) {
  const Operation* op = c.op();
  const int64_t rank = RankOf(op->result(0));
  if (c.is_forward() || rank == 0) return false;
  const Scale& scale = c.scale();
  const bool is_cut =
      !scale.is_scalar() && scale.axis == eval::NormalizeAxis(ConcatOp(c.op()).axis(), rank);
  int64_t begin = 0;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (!is_cut) {
      c.Operand(i, scale);
      continue;
    }
    const AnyTensorType type = TensorOrNull(op->operand(i));
    const Dim extent =
        type && type.has_rank() ? type.dims()[static_cast<size_t>(scale.axis)] : Dim();
    if (!extent.is_constant()) return c.Refuse("the extent of an operand is not known");
    c.Operand(i, scale.Piece(begin, extent.value()));
    begin += extent.value();
  }
  return true;
}

/// Axis i of the result is axis perm[i] of the operand.
bool TransposeOp::ScaleAxis(ScaleAxisContext& c) {
  const auto given = TransposeOp(c.op()).perm();
  if (!given) return false;
  const std::vector<int64_t> perm =
      eval::NormalizeAxes(*given, static_cast<int64_t>(given->size()));
  const Permutation from = c.is_forward() ? Inverse(perm) : perm;
  const Scale& scale = c.scale();
  const bool any = scale.is_scalar();
  return c.Pass(0, any ? scale : scale.OnAxis(from[static_cast<size_t>(scale.axis)]));
}

}  // namespace lathe::nn
