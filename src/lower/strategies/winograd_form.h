#pragma once

#include <cstdint>
#include <vector>

#include "lathe/lower/loop_builder.h"
#include "lathe/lower/lower_function.h"

namespace lathe::lower {

/// Winograd's minimal filtering F(m x m, 3 x 3) [Lavin, Gray: Fast Algorithms for Convolutional
/// Neural Networks, 2016]: a tile of m x m outputs of a 3 x 3 convolution is the transform of the
/// products, place by place, of a transformed tile of inputs and the transformed weights. Both
/// transforms are the same along rows and columns.
class WinogradForm {
 public:
  /// Polynomials are evaluated at `points`, m + 1 of them, and at infinity: 0, then pairs of a
  /// number and its negative. They are binary fractions of few digits: all that is derived of them
  /// is exact, but for what weights are multiplied by. Points and sums are those of least error
  /// [Barabasz, Anderson, Soodhalter, Gregg: Error Analysis and Improving the Accuracy of Winograd
  /// Convolution for Deep Neural Networks, 2020].
  explicit WinogradForm(std::vector<double> points);

  int64_t outputs() const { return static_cast<int64_t>(output_.size()); }  ///< m
  int64_t inputs() const { return static_cast<int64_t>(input_.size()); }    ///< m + 2
  int64_t products() const { return inputs() * inputs(); }                  ///< of a tile

  /// What the nine weights become, a row of nine factors each: products() transformed ones, row by
  /// row, then the weights themselves. Each row of factors is scaled by a power of two, which the
  /// output transform takes back, so that the first is at least 1: small weights do not underflow.
  std::vector<double> WeightSums() const;

  /// Operations that either takes for a tile, or for nine weights.
  int64_t weights_cost() const;
  int64_t input_cost() const;
  int64_t output_cost() const;

  /// Of inputs() values of a row or a column of a tile, scalars or vectors of f32: as many.
  std::vector<Value> InputAlong(LoopBuilder& lb, const Machine& machine,
                                const std::vector<Value>& values) const;
  /// Of nine vectors of weights: products() transformed ones, as WeightSums() has them but for
  /// rounding.
  std::vector<Value> TransformWeights(LoopBuilder& lb, const Machine& machine,
                                      const std::vector<Value>& taps) const;
  /// Of inputs() sums of products of a row or a column: outputs() values.
  std::vector<Value> OutputAlong(LoopBuilder& lb, const Machine& machine,
                                 std::vector<Value> values) const;

 private:
  using Matrix = std::vector<std::vector<double>>;

  Matrix input_, weights_, output_;  // per place of a tile's side; outputs have scales taken back
  Matrix powers_;                    // of a place's point: multiples of its weights
};

}  // namespace lathe::lower
