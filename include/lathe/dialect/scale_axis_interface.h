#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lathe/ir/interfaces.h"

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
  /// 1 / s; where `divides` does not hold it may not be finite.
  Scale Reciprocal() const;
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

/// Given to `ScaleAxis`: a multiplication by `scale()` is to move past an op. Backward, result
/// `position()` has to become scaled; forward, operand `position()` loses the scale that it has,
/// while the other operands stay as they are. The op answers which operands have to be scaled, or
/// which results lose the scale, and which of its constants change; all results of which it does
/// not speak must stay as they are. Nothing is changed; who asked decides.
class ScaleAxisContext {
 public:
  enum class Direction : uint8_t { kBackward, kForward };

  ScaleAxisContext(Operation* op, size_t position, Scale scale, Direction direction,
                   ValueFacts& facts)
      : op_(op),
        position_(position),
        scale_(std::move(scale)),
        is_forward_(direction == Direction::kForward),
        facts_(facts) {}

  // ---- the question ----
  Operation* op() const { return op_; }
  size_t position() const { return position_; }
  const Scale& scale() const { return scale_; }
  bool is_forward() const { return is_forward_; }
  /// Null for what is absent, or not known to be constant.
  const Tensor* Constant(size_t operand) const;
  /// Operand `i` and result 0 have the same type, whose extents are provably equal.
  bool HasTypeOfResult(size_t i) const;

  // ---- the answer ----
  /// Backward: operand `i` has to become scaled, too.
  void Operand(size_t i, Scale scale) { operands_.emplace_back(i, std::move(scale)); }
  /// Forward: result `i` loses the scale instead.
  void Result(size_t i, Scale scale) { results_.emplace_back(i, std::move(scale)); }
  /// The one of these for the direction: operand `i` and result 0 are scaled alike.
  bool Pass(size_t operand, const Scale& scale);
  /// Constant operand `i` is multiplied; computed only once every op on the way has agreed.
  void ScaleConstant(size_t i, Scale scale, ChannelLayout channels) {
    scaled_constants_.push_back({i, std::move(scale), channels});
  }
  /// A constant in the place of operand `i`.
  void SetConstant(size_t i, Tensor value) { constants_.emplace_back(i, std::move(value)); }
  /// Returns false, for the op to return; the reason is shown by `--explain`.
  bool Refuse(std::string why);

  // ---- for who asked ----
  struct ScaledConstant {
    size_t operand;
    Scale scale;
    ChannelLayout channels;
  };
  const std::vector<std::pair<size_t, Scale>>& operands() const { return operands_; }
  const std::vector<std::pair<size_t, Scale>>& results() const { return results_; }
  const std::vector<ScaledConstant>& scaled_constants() const { return scaled_constants_; }
  const std::vector<std::pair<size_t, Tensor>>& constants() const { return constants_; }
  const std::string& refusal() const { return refusal_; }

 private:
  Operation* op_;
  size_t position_;
  Scale scale_;
  bool is_forward_;
  ValueFacts& facts_;
  std::vector<std::pair<size_t, Scale>> operands_, results_;
  std::vector<ScaledConstant> scaled_constants_;
  std::vector<std::pair<size_t, Tensor>> constants_;
  std::string refusal_;
};

/// How a multiplication by constants per channel moves past an op (FScaleAxisBackward and
/// FScaleAxisForward of NNVM):
///   static bool ScaleAxis(ScaleAxisContext& c);   // false: it does not
/// Passes: fold_scale_axis_backward, fold_scale_axis_forward.
class ScaleAxisInterface : public OpInterface<ScaleAxisInterface> {
 public:
  struct Concept {
    bool (*scale_axis)(ScaleAxisContext&);
  };
  template <class OpT>
  struct Model : Concept {
    Model() : Concept{&OpT::ScaleAxis} {}
  };
  using OpInterface::OpInterface;
  bool ScaleAxis(ScaleAxisContext& c) const { return table()->scale_axis(c); }
};

}  // namespace lathe
