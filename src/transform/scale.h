#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "lathe/ir/operation.h"

namespace lathe {

/// Factors along one axis of a tensor, or one for all of it.
struct Scale {
  std::vector<double> factors;
  int64_t axis = 0;         ///< of the tensor; means nothing for one factor
  bool nonnegative = true;  ///< all are: only such a scale moves through relu and max-pool
  bool divides = true;      ///< none is near zero: only such a one moves through a division

  Scale(std::vector<double> values, int64_t on_axis);
  bool is_scalar() const { return factors.size() == 1; }
  double at(size_t channel) const { return factors[is_scalar() ? 0 : channel]; }
  bool Fits(int64_t channels) const {
    return is_scalar() || static_cast<int64_t>(factors.size()) == channels;
  }
  bool IsFinite() const;
  Scale OnAxis(int64_t other) const { return {factors, other}; }
  /// The factors [begin, begin + count).
  Scale Piece(int64_t begin, int64_t count) const;
};

/// The constant as a scale of `data`, whose shape it does not change: one element, or extents of
/// one but for one axis of known extent. Elements are finite.
std::optional<Scale> AsScale(const Tensor* t, AnyTensorType data);

/// The values as a tensor of this type; none if one leaves its range: it would become infinite, or
/// so small that digits are lost.
std::optional<Tensor> RoundedTo(ElementType type, const Shape& shape,
                                std::span<const double> values);
/// What RoundedTo sees of values while they are rounded to f32.
class F32Range {
 public:
  float Round(double value) {
    const double size = std::fabs(value);
    largest_ = std::max(largest_, size);
    if (size < std::numeric_limits<float>::min()) tiny_ = std::max(tiny_, size);
    const auto rounded = static_cast<float>(value);
    finite_ &= std::isfinite(rounded);
    return rounded;
  }
  bool fits() const;

 private:
  double largest_ = 0, tiny_ = 0;
  bool finite_ = true;
};
template <class ChannelOf>
std::optional<Tensor> ScaledF32(const Tensor& t, const Scale& scale, const ChannelOf& channel_of,
                                size_t run) {
  Tensor rounded(ElementType::kF32, t.shape());
  F32Range range;
  const std::span<const float> in = t.data<float>();
  const std::span<float> out = rounded.mutable_data<float>();
  for (size_t begin = 0; begin < out.size(); begin += run) {
    const double factor = scale.at(channel_of(begin));
    for (size_t i = begin; i < begin + run; ++i) {
      out[i] = range.Round(static_cast<double>(in[i]) * factor);
    }
  }
  return range.fits() ? std::optional(std::move(rounded)) : std::nullopt;
}
/// `t` with element i multiplied by the factor of channel `channel_of(i)`; see RoundedTo. Channels
/// change every `run` elements at most.
template <class ChannelOf>
std::optional<Tensor> Scaled(const Tensor& t, const Scale& scale, const ChannelOf& channel_of,
                             size_t run = 1) {
  if (t.element_type() == ElementType::kF32) return ScaledF32(t, scale, channel_of, run);
  std::vector<double> values = ToDoubles(t);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= scale.at(channel_of(i));
  return RoundedTo(t.element_type(), t.shape(), values);
}
/// `t` scaled along its own axis.
std::optional<Tensor> ScaledAlong(const Tensor& t, const Scale& scale, int64_t axis);
/// Position along `axis` of element i.
struct Along {
  Along(const Tensor& t, int64_t axis);
  size_t operator()(size_t i) const { return i / inner % extent; }
  size_t inner = 1, extent;
};

/// The constant operand of an addition to a tensor of `rank` under the scale (or its inverse): it
/// becomes a vector of channels if it was one number for all. None if it varies in other ways, or
/// for the reasons of RoundedTo.
std::optional<Tensor> ScaledAddend(const Tensor& c, const Scale& scale, int64_t rank);

}  // namespace lathe
