#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/support/dim.h"

namespace lathe::nn {

/// What an equation of einsum says about operands of these shapes.
struct EinsumPlan {
  /// A label is a letter, or a dim under "..." counted from the back: kDots + 0 is the last one.
  static constexpr int kDots = 256;
  using Term = std::vector<int>;
  /// Of every label; 1 gives way to any other.
  using Extents = std::vector<std::pair<int, Dim>>;

  std::vector<Term> operands;  ///< labels of the dims of each
  Term result;
  std::vector<int> summed;  ///< labels that are not in the result
  Extents extents;
  SymShape shape;  ///< of the result

  /// Throws shape/einsum.
  static EinsumPlan Of(std::string_view equation, std::span<const SymShape> shapes);
  const Dim& ExtentOf(int label) const;
};

}  // namespace lathe::nn
