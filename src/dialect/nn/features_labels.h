#pragma once

#include "lathe/dialect/nn/features.h"
#include "lathe/support/tensor.h"

namespace lathe::nn {

/// The table of a label encoder: as many keys as labels, of equal keys the last counts, and what
/// becomes of elements that are no key, a tensor of one element.
struct LabelTable {
  Tensor keys, labels, fallback;

  /// Throws Error (type/label-encoder) where the attributes contradict one another.
  static LabelTable Of(LabelEncoderOp op);
};

}  // namespace lathe::nn
