#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lathe/support/dim.h"
#include "lathe/support/tensor.h"
#include "src/dialect/nn/window.h"

// What the convolutions share: shape rules over symbolic extents (at run time over constants), and
// the sums in double. x is [N, C, D1, ..., Dk]. Throws Error kShape without a place.
namespace lathe::nn {

struct ConvSpec {
  WindowSpec window;
  int64_t group = 1;
};
template <class OpT>
ConvSpec ConvSpecOf(const OpT& op) {
  return {WindowOf(op), op.group()};
}

// [N, M, O1, ..., Ok] for weights [M, C / group, K1, ..., Kk]; unranked if neither rank is known.
SymShape ConvShape(const ConvSpec& spec, const SymShape& x, const SymShape& w);
// `bias` is [channels].
void CheckBias(const SymShape& bias, const Dim& channels);

// Weights are [C, M / group, K1, ..., Kk]; `output_shape` (spatial) takes the place of pads, which
// then follow from auto_pad.
struct ConvTransposeSpec : ConvSpec {
  std::optional<std::vector<int64_t>> output_padding;
  std::optional<std::vector<int64_t>> output_shape;
};
template <class OpT>
ConvTransposeSpec ConvTransposeSpecOf(const OpT& op) {
  return {ConvSpecOf(op), op.output_padding(), op.output_shape()};
}
// The pads at the beginning of each spatial dim: given, or what is over when the extent `out` is
// prescribed.
std::vector<int64_t> TransposedBegins(const ConvTransposeSpec& spec, const Shape& x, const Shape& w,
                                      std::span<const int64_t> out);
SymShape ConvTransposeShape(const ConvTransposeSpec& spec, const SymShape& x, const SymShape& w);

// y as [N, M, O...] in f64. `x` and `w` may have any real type; values enter the sums unrounded.
Tensor Convolve(const ConvSpec& spec, const Tensor& x, const Tensor& w);
Tensor ConvolveTransposed(const ConvTransposeSpec& spec, const Tensor& x, const Tensor& w);

// Adds bias[m] to y[n, m, ...].
void AddBias(Tensor& y, const Tensor& bias);

// The arithmetic of a convolution with weights [M, ...], each of y the sum over a row of them; a
// multiply-add is two.
Dim ConvFlops(const SymShape& y, const SymShape& w);

}  // namespace lathe::nn
