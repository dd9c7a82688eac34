#pragma once

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
/// Which channel an element of a tensor [outer, extent, run] is of: channels follow one another
/// along `extent`, and those of the next `per_group` rows of `outer` follow them.
struct ChannelLayout {
  size_t extent = 1, run = 1;
  size_t per_group = std::numeric_limits<size_t>::max();  ///< all rows are of the same channels

  /// Channels along `axis`.
  static ChannelLayout Along(const Tensor& t, int64_t axis);
  /// Of the first channel of a row.
  size_t FirstOf(size_t row) const { return row / per_group * extent; }
};

/// `t` with each element multiplied by the factor of its channel; see RoundedTo.
std::optional<Tensor> Scaled(const Tensor& t, const Scale& scale, const ChannelLayout& channels);
/// `t` scaled along its own axis.
std::optional<Tensor> ScaledAlong(const Tensor& t, const Scale& scale, int64_t axis);

/// The constant operand of an addition to a tensor of `rank` under the scale (or its inverse): it
/// becomes a vector of channels if it was one number for all. None if it varies in other ways, or
/// for the reasons of RoundedTo.
std::optional<Tensor> ScaledAddend(const Tensor& c, const Scale& scale, int64_t rank);

}  // namespace lathe
