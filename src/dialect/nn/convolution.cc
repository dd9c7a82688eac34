#include "src/dialect/nn/convolution.h"

#include <algorithm>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/divide.h"
#include "lathe/support/parallel.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/gemm.h"

namespace lathe::nn {
namespace {

using eval::FailShape;

// Where window element k of output o reads along one dim: (o * scale + k * step + shift) / divisor,
// if that is a whole number inside the input.
struct Tap {
  int64_t scale, step, shift, divisor;

  [[nodiscard]] int64_t At(int64_t o, int64_t k) const { return o * scale + k * step + shift; }
};

// One group of one image: the matrix of [channel * kernel, output position] that the weights
// multiply, made block by block.
struct Patches {
  const double* x;  // first channel of the group
  std::vector<int64_t> in, kernel, out;
  std::vector<Tap> taps;

  void Read(int64_t r0, int64_t r1, int64_t c0, int64_t c1, double* to, int64_t ld) const;

 private:
  void ReadRow(std::span<const int64_t> k, const double* channel, int64_t c0, int64_t c1,
               double* to) const;
  void ReadRun(int64_t k, const double* line, int64_t o0, int64_t o1, double* to) const;
};

std::vector<int64_t> IndexOf(int64_t flat, std::span<const int64_t> shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0; flat /= shape[d]) index[d] = flat % shape[d];
  return index;
}

void Patches::Read(int64_t r0, int64_t r1, int64_t c0, int64_t c1, double* to, int64_t ld) const {
  const int64_t taps_per_channel = NumElements(kernel);
  const int64_t size = NumElements(in);
  std::vector<int64_t> k = IndexOf(r0 % taps_per_channel, kernel);
  for (int64_t r = r0; r < r1; ++r, to += ld) {
    ReadRow(k, x + r / taps_per_channel * size, c0, c1, to);
    static_cast<void>(eval::NextIndex(kernel, k));
  }
}

// Goes along the output positions line by line of the last dim.
void Patches::ReadRow(std::span<const int64_t> k, const double* channel, int64_t c0, int64_t c1,
                      double* to) const {
  const size_t last = in.size() - 1;
  std::vector<int64_t> o = IndexOf(c0, out);
  while (c0 < c1) {
    const int64_t end = std::min(out[last], o[last] + c1 - c0);
    int64_t line = 0;
    bool inside = true;
    for (size_t d = 0; d < last && inside; ++d) {
      const int64_t at = taps[d].At(o[d], k[d]);
      inside = at >= 0 && at % taps[d].divisor == 0 && at / taps[d].divisor < in[d];
      line = line * in[d] + at / taps[d].divisor;
    }
    if (inside) {
      ReadRun(k[last], channel + line * in[last], o[last], end, to);
    } else {
      std::fill_n(to, end - o[last], 0.0);
    }
    to += end - o[last];
    c0 += end - o[last];
    o[last] = out[last] - 1;
    static_cast<void>(eval::NextIndex(out, o));
  }
}

void Patches::ReadRun(int64_t k, const double* line, int64_t o0, int64_t o1, double* to) const {
  const Tap& tap = taps.back();
  const int64_t extent = in.back();
  if (tap.divisor > 1) {
    for (int64_t o = o0; o < o1; ++o) {
      const int64_t at = tap.At(o, k);
      const bool inside = at >= 0 && at < extent * tap.divisor && at % tap.divisor == 0;
      *to++ = inside ? line[at / tap.divisor] : 0.0;
    }
    return;
  }
  // The outputs whose reads fall into the input are in the middle.
  const int64_t start = tap.At(0, k);
  const int64_t first = std::clamp(CeilDiv(-start, tap.scale), o0, o1);
  const int64_t behind = std::clamp(CeilDiv(extent - start, tap.scale), first, o1);
  to = std::fill_n(to, first - o0, 0.0);
  for (int64_t o = first; o < behind; ++o) *to++ = line[start + o * tap.scale];
  std::fill_n(to, o1 - behind, 0.0);
}

// y[n, g, :] = weights[g] * patches(n, g) for weights read as [m, channels * kernel] per group.
struct GroupedProduct {
  int64_t batch, group, group_in, group_out;  // channels of one group
  Patches patches;                            // of the first group
  std::function<eval::BlockReader<double>(int64_t)> weights;
};

Tensor Run(const GroupedProduct& p, const Tensor& x) {
  Shape shape{p.batch, p.group * p.group_out};
  shape.insert(shape.end(), p.patches.out.begin(), p.patches.out.end());
  Tensor y(ElementType::kF64, shape);
  if (y.num_elements() == 0) return y;
  const std::vector<double> in = eval::LoadAll<double>(x);
  double* out = y.mutable_data<double>().data();
  const int64_t in_size = NumElements(p.patches.in) * p.group_in;
  const int64_t out_size = NumElements(p.patches.out);
  const auto run_one = [&](int64_t i) {
    Patches patches = p.patches;
    patches.x = in.data() + i * in_size;
    double* to = out + i * p.group_out * out_size;
    eval::MatrixProduct<double> product{
        p.group_out, out_size, p.group_in * NumElements(patches.kernel), {}, {}, {}};
    product.a = p.weights(i % p.group);
    product.b = [&](auto... args) { patches.Read(args...); };
    product.c = [&](int64_t r0, int64_t r1, int64_t c0, int64_t c1, const double* sums,
                    int64_t ld) {
      for (int64_t r = r0; r < r1; ++r, sums += ld) {
        std::copy_n(sums, c1 - c0, to + r * out_size + c0);
      }
    };
    eval::Multiply(product);
  };
  if (p.batch * p.group == 1) {
    run_one(0);
  } else {
    ParallelFor(0, p.batch * p.group, 1, [&](int64_t begin, int64_t) { run_one(begin); });
  }
  return y;
}

size_t CommonRank(const SymShape& x, const SymShape& w) {
  const size_t rank = x.ranked ? x.rank() : w.rank();
  if (rank < 3) {
    FailShape("shape/conv-rank", StrCat("the input has rank ", rank, ", at least 3 is expected"),
              "an input is [N, C, D1, ..., Dk] with k >= 1");
  }
  if (x.ranked && w.ranked && x.rank() != w.rank()) {
    FailShape("shape/conv-rank", StrCat("the input ", x.ToString(), " and the weights ",
                                        w.ToString(), " have different ranks"));
  }
  return rank;
}

void CheckDivides(const Dim& channels, int64_t group, const char* which) {
  Assume(
      SizeCondition::Divides(group, channels), "shape/conv-groups",
      [&] {
        return StrCat(channels.ToString(), " ", which, " channels do not divide into ", group,
                      " groups");
      },
      "choose a group that divides the channels");
}

void CheckGroup(int64_t group) {
  if (group < 1) FailShape("shape/conv-groups", StrCat("group is ", group), "it must be >= 1");
}

std::span<const Dim> Spatial(const SymShape& shape) { return std::span(shape.dims).subspan(2); }

std::span<const int64_t> Spatial(const Shape& shape) { return std::span(shape).subspan(2); }

SymShape Ranked(const SymShape& shape, size_t rank) {
  return shape.ranked ? shape : SymShape::OfRank(rank);
}

Dim TransposedExtent(const ConvTransposeSpec& spec, size_t d, const Dim& natural,
                     const WindowSteps& steps, const Dim& in) {
  if (spec.output_shape) return (*spec.output_shape)[d];
  if (IsSame(spec.window)) return Min(natural, in * Dim(steps.strides[d]));
  const Dim extent = natural - Dim(steps.begins[d]) - Dim(steps.ends[d]);
  Assume(
      SizeCondition::AtLeast(extent, 0), "shape/window",
      [&] {
        return StrCat("pads of ", steps.begins[d], " and ", steps.ends[d], " take more than the ",
                      natural.ToString(), " positions of spatial dim ", d);
      },
      "use smaller pads");
  return extent;
}

void CheckOutputPadding(const std::vector<int64_t>& padding, const WindowSteps& steps) {
  for (size_t d = 0; d < padding.size(); ++d) {
    const int64_t limit = std::max(steps.strides[d], steps.dilations[d]);
    if (padding[d] < limit) continue;
    FailShape("shape/window",
              StrCat("output_padding is ", padding[d], " for a stride of ", steps.strides[d],
                     " and a dilation of ", steps.dilations[d]),
              "it must be less than the stride or the dilation");
  }
}

// How far the scattered kernels reach before pads are cut off, per spatial dim.
std::vector<Dim> NaturalExtents(const ConvTransposeSpec& spec, std::span<const Dim> in,
                                std::span<const Dim> kernel) {
  const WindowSteps steps = CheckedSteps(spec.window, in.size());
  const auto padding = CheckedList(spec.output_padding, in.size(), 0, "output_padding");
  CheckOutputPadding(padding, steps);
  std::vector<Dim> extents;
  for (size_t d = 0; d < in.size(); ++d) {
    extents.push_back(Dim(steps.strides[d]) * (in[d] - Dim(1)) + Dim(padding[d]) +
                      (kernel[d] - Dim(1)) * Dim(steps.dilations[d]) + Dim(1));
  }
  return extents;
}

std::vector<Dim> TransposedExtents(const ConvTransposeSpec& spec, std::span<const Dim> in,
                                   std::span<const Dim> kernel) {
  const WindowSteps steps = CheckedSteps(spec.window, in.size());
  static_cast<void>(CheckedList(spec.output_shape, in.size(), 0, "output_shape"));
  const std::vector<Dim> natural = NaturalExtents(spec, in, kernel);
  std::vector<Dim> extents;
  for (size_t d = 0; d < in.size(); ++d) {
    extents.push_back(TransposedExtent(spec, d, natural[d], steps, in[d]));
  }
  return extents;
}

// [C, M / group, K...] to [M, C / group, K...], as doubles.
Tensor SwapChannels(const Tensor& w, int64_t group) {
  const int64_t group_in = w.dim(0) / group;
  const int64_t m = w.dim(1);
  const int64_t taps = NumElements(Spatial(w.shape()));
  Shape shape = w.shape();
  shape[0] = m * group;
  shape[1] = group_in;
  Tensor result(ElementType::kF64, shape);
  double* to = result.mutable_data<double>().data();
  for (int64_t o = 0; o < m * group; ++o) {
    for (int64_t i = 0; i < group_in; ++i, to += taps) {
      const int64_t from = ((o / m * group_in + i) * m + o % m) * taps;
      eval::Load<double>(w.element_type(), w.raw(), from, taps, to);
    }
  }
  return result;
}

SymShape Constants(const Tensor& tensor) { return SymShape::FromConstants(tensor.shape()); }

}  // namespace

SymShape ConvShape(const ConvSpec& spec, const SymShape& x_shape, const SymShape& w_shape) {
  CheckGroup(spec.group);
  if (!x_shape.ranked && !w_shape.ranked) return {};
  const size_t rank = CommonRank(x_shape, w_shape);
  const SymShape x = Ranked(x_shape, rank);
  const SymShape w = Ranked(w_shape, rank);
  CheckDivides(x.dims[1], spec.group, "input");
  CheckDivides(w.dims[0], spec.group, "output");
  const Dim expected = w.dims[1] * Dim(spec.group);
  Assume(
      SizeCondition::Equal(x.dims[1], expected), "shape/conv-channels",
      [&] {
        return StrCat("the input has ", x.dims[1].ToString(), " channels, the weights ",
                      w.ToString(), " with group = ", spec.group, " expect ", expected.ToString());
      },
      "weights are [M, C / group, K1, ..., Kk]");
  std::vector<Dim> dims{x.dims[0], w.dims[0]};
  const auto kernel = KernelDims(spec.window, Spatial(w), rank - 2);
  for (Dim& count : WindowCounts(spec.window, Spatial(x), kernel)) dims.push_back(std::move(count));
  return dims;
}

void CheckBias(const SymShape& bias, const Dim& channels) {
  if (!bias.ranked) return;
  const auto message = [&] {
    return StrCat("the bias has shape ", bias.ToString(), ", [", channels.ToString(),
                  "] is expected");
  };
  if (bias.rank() != 1) FailShape("shape/conv-bias", message());
  Assume(SizeCondition::Equal(bias.dims[0], channels), "shape/conv-bias", message);
}

SymShape ConvTransposeShape(const ConvTransposeSpec& spec, const SymShape& x_shape,
                            const SymShape& w_shape) {
  CheckGroup(spec.group);
  if (!x_shape.ranked && !w_shape.ranked) return {};
  const size_t rank = CommonRank(x_shape, w_shape);
  const SymShape x = Ranked(x_shape, rank);
  const SymShape w = Ranked(w_shape, rank);
  CheckDivides(x.dims[1], spec.group, "input");
  Assume(
      SizeCondition::Equal(x.dims[1], w.dims[0]), "shape/conv-channels",
      [&] {
        return StrCat("the input has ", x.dims[1].ToString(), " channels, the weights ",
                      w.ToString(), " expect ", w.dims[0].ToString());
      },
      "weights are [C, M / group, K1, ..., Kk]");
  std::vector<Dim> dims{x.dims[0], w.dims[1] * Dim(spec.group)};
  const auto kernel = KernelDims(spec.window, Spatial(w), rank - 2);
  for (Dim& extent : TransposedExtents(spec, Spatial(x), kernel)) dims.push_back(std::move(extent));
  return dims;
}

Tensor Convolve(const ConvSpec& spec, const Tensor& x, const Tensor& w) {
  static_cast<void>(ConvShape(spec, Constants(x), Constants(w)));
  const Window window = ResolveWindow(spec.window, Spatial(x.shape()), Spatial(w.shape()));
  const int64_t m = w.dim(0) / spec.group;
  const int64_t row = w.dim(1) * NumElements(window.kernel);
  GroupedProduct p{x.dim(0), spec.group, w.dim(1), m, {}, {}};
  p.patches = {nullptr, window.in, window.kernel, window.out, {}};
  for (size_t d = 0; d < window.rank(); ++d) {
    p.patches.taps.push_back({window.strides[d], window.dilations[d], -window.begins[d], 1});
  }
  p.weights = [&](int64_t g) { return eval::MatrixOf<double>(w, g * m * row, row, 1); };
  return Run(p, x);
}

std::vector<int64_t> TransposedBegins(const ConvTransposeSpec& spec, const Shape& x, const Shape& w,
                                      std::span<const int64_t> out) {
  std::vector<int64_t> begins = CheckedSteps(spec.window, out.size()).begins;
  if (!spec.output_shape && !IsSame(spec.window)) return begins;
  const SymShape in = SymShape::FromConstants(Spatial(x));
  const SymShape kernel = SymShape::FromConstants(Spatial(w));
  const std::vector<Dim> natural = NaturalExtents(spec, in.dims, kernel.dims);
  for (size_t d = 0; d < out.size(); ++d) {
    if (!natural[d].is_constant()) FailShape("shape/window", "the output is too large");
    const int64_t total = std::max<int64_t>(natural[d].value() - out[d], 0);
    begins[d] = spec.window.auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
  }
  return begins;
}

Tensor ConvolveTransposed(const ConvTransposeSpec& spec, const Tensor& x, const Tensor& w) {
  const SymShape shape = ConvTransposeShape(spec, Constants(x), Constants(w));
  const std::optional<Shape> y = shape.Constants();
  if (!y) FailShape("shape/window", "the output is too large");
  const std::vector<int64_t> out(y->begin() + 2, y->end());
  const Tensor weights = SwapChannels(w, spec.group);
  const int64_t m = w.dim(1);
  const int64_t row = weights.dim(1) * NumElements(Spatial(w.shape()));
  GroupedProduct p{x.dim(0), spec.group, weights.dim(1), m, {}, {}};
  const auto in = Spatial(x.shape());
  const auto kernel = Spatial(w.shape());
  p.patches = {nullptr, {in.begin(), in.end()}, {kernel.begin(), kernel.end()}, out, {}};
  const WindowSteps steps = CheckedSteps(spec.window, out.size());
  const std::vector<int64_t> begins = TransposedBegins(spec, x.shape(), w.shape(), out);
  for (size_t d = 0; d < out.size(); ++d) {
    p.patches.taps.push_back({1, -steps.dilations[d], begins[d], steps.strides[d]});
  }
  p.weights = [&](int64_t g) { return eval::MatrixOf<double>(weights, g * m * row, row, 1); };
  return Run(p, x);
}

void AddBias(Tensor& y, const Tensor& bias) {
  CheckBias(Constants(bias), y.dim(1));
  if (y.num_elements() == 0) return;
  const std::vector<double> values = ToDoubles(bias);
  const int64_t size = NumElements(Spatial(y.shape()));
  double* at = y.mutable_data<double>().data();
  for (int64_t i = 0; i < y.dim(0) * y.dim(1); ++i) {
    const double value = values[static_cast<size_t>(i % y.dim(1))];
    for (int64_t j = 0; j < size; ++j) *at++ += value;
  }
}

Dim ConvFlops(const SymShape& y, const SymShape& w) {
  if (w.dims.empty()) return Dim::Unknown();
  const SymShape row(std::vector<Dim>(w.dims.begin() + 1, w.dims.end()));
  return 2 * y.NumElements() * row.NumElements();
}

}  // namespace lathe::nn
