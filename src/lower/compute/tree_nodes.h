#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/dialect/nn/features_tree.h"

namespace lathe::lower {

/// How many nodes there are at most on a way from each node to a leaf; nothing if there are cycles.
std::optional<std::vector<int64_t>> TreeHeights(const std::vector<nn::TreeNode>& nodes);

/// Members of a set are whole numbers from 0 to here, so that a word holds it.
inline constexpr int64_t kSetBits = 64;

/// Whether a word holds the set.
bool IsSmallSet(const std::vector<double>& members);

/// The same trees, without cycles, with fewer nodes and shorter ways: equal subtrees are one, and a
/// chain that compares a feature with one number after the other, each of which leads to the same
/// subtree, is one node of mode kMember. Exporters write categories so, with a copy of the subtree
/// for each. Trees that compare no number for equality, or have sets that are not small, stay as
/// they are.
nn::Trees JoinEqualNodes(nn::Trees trees);

}  // namespace lathe::lower
