#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lathe/dialect/nn/features.h"

namespace lathe::nn {

struct TreeBranch {
  size_t to;  ///< the number of a leaf or of a node
  bool leaf;
};

struct TreeNode {
  enum class Mode : uint8_t { kLeq, kLt, kGte, kGt, kEq, kNeq, kMember };
  size_t feature;
  Mode mode;
  double split;
  bool missing_is_true;  ///< NaN takes the branch `yes`
  std::vector<double> members;
  TreeBranch yes, no;
};

/// The decision trees of an operation.
struct Trees {
  std::vector<int64_t> roots;
  std::vector<int64_t> targets;  ///< of leaves
  std::vector<double> weights;   ///< of leaves
  int64_t aggregate;             ///< 0 average, 1 sum, 2 minimum, 3 maximum
  size_t width;                  ///< how many targets there are
  std::vector<TreeNode> nodes;

  /// Throws run/tree-ensemble where attributes contradict each other; cycles are not looked for.
  static Trees Of(TreeEnsembleOp op);
};

}  // namespace lathe::nn
