#pragma once

#include <vector>

#include "src/transform/optimizer/optimizer.h"

namespace lathe {

/// What an optimizer does about a loss that scale_loss has scaled; nothing if the program has none.
class LossScaling {
 public:
  /// Reads variables where `reads` stands, computes where `b` does.
  LossScaling(Program& program, Builder& reads, Builder& b);

  /// Divides the gradients, of which each of `nranks` ranks has a shard, by the scale.
  void Unscale(std::vector<nn::Term>& gradients, int64_t nranks);
  /// Variables stay as they are unless all gradients are finite; the scale follows.
  void Guard(std::vector<VariableUpdate>& updates);

 private:
  Builder& b_;
  Value scale_, good_steps_;  ///< null if the loss is not scaled
  Value finite_;
};

}  // namespace lathe
