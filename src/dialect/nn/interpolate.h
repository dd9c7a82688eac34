#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/dialect/nn/term.h"

// Reading between the elements of an image, written with operations that have gradients.
namespace lathe::nn {

/// One dim of an image, and how points outside of it are read: zeros, border or reflection.
struct Line {
  int64_t extent;
  bool align;  ///< the outermost points are the centers of the outermost elements
  std::string padding, mode;

  double low() const { return align ? 0 : -0.5; }
  double high() const { return static_cast<double>(extent) - (align ? 1 : 0.5); }
  /// Points moved inside, if the padding says so.
  Term Inside(const Term& x) const;
  /// Reflected at both ends.
  Term Reflected(const Term& x) const;
};

/// [N, C, Q] from an image [N, C, elements] at points whose places along each dim are [N, Q].
/// `mode` of the lines: nearest, linear or cubic (with a = -0.75).
Term Interpolated(const Term& image, const std::vector<Line>& lines,
                  const std::vector<Term>& places);

}  // namespace lathe::nn
