#include <algorithm>
#include <functional>
#include <numeric>

#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/pool.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/grad_util.h"
#include "src/dialect/nn/window.h"

namespace lathe::nn {
namespace {

using Ints = std::vector<int64_t>;

Value Reshaped(Builder& b, Value x, const Ints& shape) {
  return ReshapeOp::Create(b, x, IntsConstant(b, shape)).reshaped();
}

Ints Joined(const Ints& a, const Ints& b) {
  Ints all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

Ints Spatial(const Ints& shape) { return {shape.begin() + 2, shape.end()}; }

Window WindowFor(const WindowSpec& spec, Value x, const Ints& kernel) {
  return ResolveWindow(spec, Spatial(KnownShape(x, 1)), kernel);
}

// Elements at the end of each axis of the padded input that no window sees.
Ints Unseen(const Window& w) {
  Ints rest;
  for (size_t i = 0; i < w.rank(); ++i) {
    const int64_t reach = (w.kernel[i] - 1) * w.dilations[i] + 1;
    rest.push_back(w.in[i] + w.begins[i] + w.ends[i] - reach - (w.out[i] - 1) * w.strides[i]);
  }
  return rest;
}

// Adds each element of `grad` times the filter to where its window was: the gradient of the input
// of a convolution with that window.
Value Spread(Builder& b, Value grad, Value filter, const Window& w, int64_t group, Value like) {
  const Value spread = ConvTransposeOp::Create(b, grad, filter, Value(),
                                               {.strides = w.strides,
                                                .pads = Joined(w.begins, w.ends),
                                                .dilations = w.dilations,
                                                .output_padding = Unseen(w),
                                                .group = group})
                           .y();
  return Typed(spread, like);
}

// The gradient of filters of more places than this is a convolution, not a product of matrices.
constexpr int64_t kMostPlaces = 64;
// So is that of fewer places, if the output has at least so many, for which there is a kernel.
constexpr int64_t kFewPositions = 16;

Ints SwapOfFirstTwo(size_t rank) {
  Ints perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[0], perm[1]);
  return perm;
}

// [A, B, ...] as [B, A, ...].
Value Turned(Builder& b, Value x, size_t rank) {
  return TransposeOp::Create(b, x, {.perm = SwapOfFirstTwo(rank)}).transposed();
}

// [A, g * C, S...] as [C, g * A, S...]; none of C and S is empty.
Value Swapped(Builder& b, Value x, int64_t group) {
  const Ints shape = KnownShape(x, 1);
  const Ints spatial = Spatial(shape);
  const Value apart = Reshaped(b, x, Joined({0, group, shape[1] / group}, spatial));
  Ints perm(spatial.size() + 3);
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[0], perm[2]);
  const Value turned = TransposeOp::Create(b, apart, {.perm = perm}).transposed();
  return Reshaped(b, turned, Joined({shape[1] / group, -1}, spatial));
}

// Takes what no window sees off the padding at the end, or off the end of `x`, of which something
// is left.
Value CutUnseen(Builder& b, Value x, Window& w) {
  const Ints unseen = Unseen(w);
  Ints kept = w.in, axes(w.rank());
  for (size_t i = 0; i < w.rank(); ++i) {
    kept[i] -= std::max<int64_t>(std::min(unseen[i] - w.ends[i], w.in[i] - 1), 0);
    w.ends[i] = std::max<int64_t>(w.ends[i] - unseen[i], 0);
  }
  if (kept == w.in) return x;
  std::iota(axes.begin(), axes.end(), 2);
  w.in = kept;
  return SliceOp::Create(b, x, IntsConstant(b, Ints(w.rank(), 0)), IntsConstant(b, kept),
                         IntsConstant(b, axes), Value())
      .output();
}

// The gradient of the filter [M, C / g, K...] as a convolution: the input, windows for channels,
// meets the gradient of the output with strides and dilations exchanged.
Value AsConvolution(Builder& b, Value x, Value grad, Value filter, Window w, int64_t group) {
  const Value seen = CutUnseen(b, x, w);
  Value met =
      ConvOp::Create(b, group == 1 ? Turned(b, seen, w.rank() + 2) : Swapped(b, seen, group),
                     Turned(b, grad, w.rank() + 2), Value(),
                     {.strides = w.dilations,
                      .pads = Joined(w.begins, w.ends),
                      .dilations = w.strides,
                      .group = group})
          .y();
  if (Unseen(w) != Ints(w.rank(), 0)) {
    Ints axes(w.rank());
    std::iota(axes.begin(), axes.end(), 2);
    met = SliceOp::Create(b, met, IntsConstant(b, Ints(w.rank(), 0)), IntsConstant(b, w.kernel),
                          IntsConstant(b, axes), Value())
              .output();
  }
  return Typed(Turned(b, met, w.rank() + 2), filter);
}

// What the place `at` of the filter met, as [C, 1, N * positions], in `padded` [C, N, S...].
Value MetBy(Builder& b, Value padded, int64_t channels, const Window& w, const Ints& at) {
  Ints begins, ends, axes;
  for (size_t i = 0; i < w.rank(); ++i) {
    begins.push_back(at[i] * w.dilations[i]);
    ends.push_back(begins[i] + (w.out[i] - 1) * w.strides[i] + 1);
    axes.push_back(static_cast<int64_t>(i) + 2);
  }
  const Value met = SliceOp::Create(b, padded, IntsConstant(b, begins), IntsConstant(b, ends),
                                    IntsConstant(b, axes), IntsConstant(b, w.strides))
                        .output();
  return Reshaped(b, met, {channels, 1, -1});
}

// The next place of a filter in row-major order; false behind the last.
bool Advance(Ints& at, const Ints& kernel) {
  for (size_t i = kernel.size(); i-- > 0;) {
    if (++at[i] < kernel[i]) return true;
    at[i] = 0;
  }
  return false;
}

// [C, N, S...] with zeros around S.
Value Padded(Builder& b, Value x, const Window& w) {
  const auto none = [](const Ints& pads) {
    return std::ranges::all_of(pads, [](int64_t p) { return p == 0; });
  };
  if (none(w.begins) && none(w.ends)) return x;
  const Ints pads = Joined(Joined({0, 0}, w.begins), Joined({0, 0}, w.ends));
  return PadOp::Create(b, x, IntsConstant(b, pads), Value(), Value()).output();
}

// The input of each place of the filter, [C, K, N * positions].
Value Columns(Builder& b, Value x, int64_t channels, const Window& w) {
  const Value padded = Padded(b, Turned(b, x, w.rank() + 2), w);
  std::vector<Value> places;
  Ints at(w.rank(), 0);
  do {
    places.push_back(MetBy(b, padded, channels, w, at));
  } while (Advance(at, w.kernel));
  if (places.size() == 1) return places[0];
  return ConcatOp::Create(b, places, {.axis = 1}).concat_result();
}

bool IsConvolution(Value x, const Window& w, int64_t group) {
  const auto size = [](const Ints& extents) {
    return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
  };
  const int64_t places = size(w.kernel), positions = size(w.out);
  if (places > kMostPlaces || positions == 0) return true;
  const ElementType element = x.type().cast<AnyTensorType>().element();
  const bool has_kernel = element == ElementType::kF32 || element == ElementType::kF64;
  return has_kernel && group == 1 && w.rank() == 2 && positions >= std::max(places, kFewPositions);
}

// The gradient of the filter [M, C / g, K...]. If it is not that of one convolution: the gradient
// of the output [M, N * positions] times the columns of the input, [C * K, N * positions],
// transposed.
Value OfFilter(Builder& b, Value x, Value grad, Value filter, const Window& w, int64_t group) {
  if (IsConvolution(x, w, group)) return AsConvolution(b, x, grad, filter, w, group);
  const int64_t places =
      std::accumulate(w.kernel.begin(), w.kernel.end(), int64_t{1}, std::multiplies<>());
  const int64_t channels = KnownShape(x, 1)[1], filters = KnownShape(grad, 1)[1];
  const Ints groups = group == 1 ? Ints{} : Ints{group};
  const Value left =
      Reshaped(b, Turned(b, grad, w.rank() + 2), Joined(groups, {filters / group, -1}));
  const Value right =
      Reshaped(b, Columns(b, x, channels, w), Joined(groups, {channels / group * places, -1}));
  const Value product = MatmulOp::Create(b, left, right, {.transpose_y = true}).z();
  return Typed(Reshaped(b, product, Joined({filters, channels / group}, w.kernel)), filter);
}

Value OfBias(Builder& b, Value grad, Value bias) {
  Ints axes{0};
  for (int64_t i = 2; i < KnownRank(grad); ++i) axes.push_back(i);
  const Value sum =
      ReduceSumOp::Create(b, grad, IntsConstant(b, axes), {.keepdims = false}).reduced();
  return Typed(sum, bias);
}

}  // namespace

std::vector<Value> ConvOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const ConvOp op(o);
  const Window w = WindowFor(WindowOf(op), op.x(), Spatial(KnownShape(op.w())));
  std::vector<Value> grads{Spread(b, g[0], op.w(), w, op.group(), op.x()),
                           OfFilter(b, op.x(), g[0], op.w(), w, op.group())};
  if (op.b()) grads.push_back(OfBias(b, g[0], op.b()));
  return grads;
}

// It is the gradient of a convolution with the same window, so that its own is that convolution.
std::vector<Value> ConvTransposeOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const ConvTransposeOp op(o);
  if (op.auto_pad() != "NOTSET" || op.output_shape()) {
    FailGradient(o, "has a gradient only with explicit pads");
  }
  const Ints kernel = Spatial(KnownShape(op.w()));
  const WindowSteps steps = CheckedSteps(WindowOf(op), kernel.size());
  Window w{.in = Spatial(KnownShape(g[0], 1)),
           .kernel = kernel,
           .strides = steps.strides,
           .dilations = steps.dilations,
           .begins = steps.begins,
           .ends = steps.ends,
           .out = Spatial(KnownShape(op.x(), 1))};
  const Value all = ConvOp::Create(b, g[0], op.w(), Value(),
                                   {.strides = w.strides,
                                    .pads = Joined(w.begins, w.ends),
                                    .dilations = w.dilations,
                                    .group = op.group()})
                        .y();
  Ints axes(w.rank());
  std::iota(axes.begin(), axes.end(), 2);
  const Value dx = SliceOp::Create(b, all, IntsConstant(b, Ints(w.rank(), 0)),
                                   IntsConstant(b, w.out), IntsConstant(b, axes), Value())
                       .output();
  std::vector<Value> grads{Typed(dx, op.x()), OfFilter(b, g[0], op.x(), op.w(), w, op.group())};
  if (op.b()) grads.push_back(OfBias(b, g[0], op.b()));
  return grads;
}

// ---- pools ----

namespace {

// Widens the padding at the end to what the last windows of ceil_mode need; whether they need any.
bool WidenForLast(Window& w) {
  bool widened = false;
  for (size_t d = 0; d < w.rank(); ++d) {
    const int64_t reach = (w.kernel[d] - 1) * w.dilations[d] + 1;
    const int64_t needed = (w.out[d] - 1) * w.strides[d] + reach;
    const int64_t missing = needed - (w.in[d] + w.begins[d] + w.ends[d]);
    if (missing <= 0) continue;
    w.ends[d] += missing;
    widened = true;
  }
  return widened;
}

// |x|^(p - 1) with the sign of x.
Term SignedPower(const Term& x, int64_t p) {
  const Term sign = x.Call(nn::kSign);
  if (p == 1) return sign;
  return sign * Abs(x).Call(nn::kPow, {x.Number(static_cast<double>(p - 1))});
}

// The gradient of a p-norm y of the elements that it is spread to, but for the power of these: g
// y^(1 - p), and 0 for a norm of 0.
Term PerPower(const Term& g, const Term& y, int64_t p) {
  const Term zero = y.Number(0);
  const Value is_zero = Equal(y, zero);
  const Term safe = Select(is_zero, y.Number(1), y);
  const Term part = g * safe.Call(nn::kPow, {y.Number(static_cast<double>(1 - p))});
  return Select(is_zero, zero, part);
}

}  // namespace

// Each element of the gradient, divided by how many elements it is the mean of, to all of these.
std::vector<Value> AveragePoolOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const AveragePoolOp op(o);
  Window w = WindowFor(WindowOf(op), op.x(), op.kernel_shape());
  const bool partial = WidenForLast(w);
  if (partial && op.count_include_pad()) {
    FailGradient(o,
                 "has no gradient with ceil_mode, count_include_pad and windows beyond the pads");
  }
  const Ints shape = KnownShape(op.x(), 1);
  const Term dy(b, g[0]);
  const Tensor one =
      Cast(Tensor::Of<double>({1}, {1}), op.x().type().cast<AnyTensorType>().element());
  const Value ones =
      ConstantOfShapeOp::Create(b, IntsConstant(b, Joined({shape[1], 1}, w.kernel)), {.value = one})
          .output();
  const Value all = Typed(ones, ones);
  double whole = 1;
  for (const int64_t k : w.kernel) whole *= static_cast<double>(k);
  Term share = 1 / whole * dy;
  if (!op.count_include_pad()) {
    const Value count = ConvOp::Create(b, FilledLike(b, op.x(), 1), all, Value(),
                                       {.strides = w.strides,
                                        .pads = Joined(w.begins, w.ends),
                                        .dilations = w.dilations,
                                        .group = shape[1]})
                            .y();
    share = dy / Term(b, count);
  }
  return {Spread(b, share, all, w, shape[1], op.x())};
}

std::vector<Value> MaxPoolOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const MaxPoolOp op(o);
  if (op.storage_order() != 0) FailGradient(o, "has no gradient with storage_order 1");
  Value at = op.indices();
  if (!at) {
    at = b.CreateInferred(o->info(), std::vector<Value>{op.x()}, o->attributes().entries(), 2)
             ->result(kIndices);
  }
  return {AddedAt(b, op.x(), at, g[0])};
}

std::vector<Value> GlobalAveragePoolOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Value x = o->operand(0);
  if (KnownRank(x) == 2) return {g[0]};  // a reduction over no axes would be one over all
  Ints axes(static_cast<size_t>(KnownRank(x) - 2));
  std::iota(axes.begin(), axes.end(), 2);
  const Term ones(b, FilledLike(b, x, 1));
  const Term count(b, ReduceSumOp::Create(b, ones, IntsConstant(b, axes)).reduced());
  return {Typed(ones * (Term(b, g[0]) / count), x)};
}

std::vector<Value> GlobalMaxPoolOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const Term x(b, o->operand(0));
  if (KnownRank(x) == 2) return {g[0]};
  Ints axes(static_cast<size_t>(KnownRank(x) - 2));
  std::iota(axes.begin(), axes.end(), 2);
  const Term has = AsNumbers(Equal(x, Term(b, o->result(0))), x);
  const Term count(b, ReduceSumOp::Create(b, has, IntsConstant(b, axes)).reduced());
  return {Typed(has * (Term(b, g[0]) / count), x)};
}

std::vector<Value> LpPoolOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const LpPoolOp op(o);
  Window w = WindowFor(WindowOf(op), op.x(), op.kernel_shape());
  static_cast<void>(WidenForLast(w));
  const Ints shape = KnownShape(op.x(), 1);
  const Tensor one =
      Cast(Tensor::Of<double>({1}, {1}), op.x().type().cast<AnyTensorType>().element());
  const Value ones =
      ConstantOfShapeOp::Create(b, IntsConstant(b, Joined({shape[1], 1}, w.kernel)), {.value = one})
          .output();
  const Term share = PerPower(Term(b, g[0]), Term(b, op.y()), op.p());
  const Term spread(b, Spread(b, share, ones, w, shape[1], op.x()));
  return {Typed(spread * SignedPower(Term(b, op.x()), op.p()), op.x())};
}

std::vector<Value> GlobalLpPoolOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const GlobalLpPoolOp op(o);
  const Term share = PerPower(Term(b, g[0]), Term(b, op.y()), op.p());
  return {Typed(share * SignedPower(Term(b, op.x()), op.p()), op.x())};
}

std::vector<Value> MaxUnpoolOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  std::vector<Value> grads(o->num_operands());
  grads[kX] = GradOfSelectionOrZero(o, g[0], b);
  return grads;
}

}  // namespace lathe::nn
