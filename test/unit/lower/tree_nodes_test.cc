#include "src/lower/compute/tree_nodes.h"

#include <gtest/gtest.h>

namespace lathe::lower {
namespace {

using Mode = nn::TreeNode::Mode;

nn::TreeBranch Leaf(size_t i) { return {i, true}; }
nn::TreeBranch Node(size_t i) { return {i, false}; }

nn::TreeNode Equals(double split, nn::TreeBranch yes, nn::TreeBranch no, bool missing = false) {
  return {0, Mode::kEq, split, missing, {}, yes, no};
}

nn::TreeNode AtMost(double split, nn::TreeBranch yes, nn::TreeBranch no) {
  return {1, Mode::kLeq, split, false, {}, yes, no};
}

// Leaves 0 and 2 are equal.
nn::Trees TreesWith(std::vector<nn::TreeNode> nodes) {
  return {{0}, {0, 0, 0, 1}, {1.5, 2.5, 1.5, 2.5}, 1, 2, std::move(nodes)};
}

TEST(TreeNodesTest, AChainOfEqualitiesIsASet) {
  const nn::Trees trees =
      JoinEqualNodes(TreesWith({Equals(3, Leaf(0), Node(1)), Equals(1, Leaf(2), Node(2), true),
                                Equals(63, Leaf(0), Leaf(3))}));
  ASSERT_EQ(trees.nodes.size(), 1U);
  EXPECT_EQ(trees.nodes[0].mode, Mode::kMember);
  EXPECT_EQ(trees.nodes[0].members, (std::vector<double>{1, 3, 63}));
  EXPECT_TRUE(trees.nodes[0].missing_is_true);
  EXPECT_EQ(trees.nodes[0].yes.to, 0U);
  EXPECT_EQ(trees.nodes[0].no.to, 3U);
}

TEST(TreeNodesTest, CopiesOfASubtreeAreOne) {
  const nn::Trees trees =
      JoinEqualNodes(TreesWith({Equals(0, Node(1), Node(2)), AtMost(0.5, Leaf(0), Leaf(1)),
                                Equals(2, Node(3), Leaf(3)), AtMost(0.5, Leaf(2), Leaf(1))}));
  ASSERT_EQ(trees.nodes.size(), 2U);
  EXPECT_EQ(trees.nodes[0].members, (std::vector<double>{0, 2}));
  EXPECT_EQ(trees.nodes[0].yes.to, 1U);
  EXPECT_EQ(*TreeHeights(trees.nodes), (std::vector<int64_t>{2, 1}));
}

TEST(TreeNodesTest, WhatIsNotTheSameStaysApart) {
  // Another leaf, another feature, numbers that a word does not hold.
  std::vector<nn::TreeNode> other = {Equals(1, Leaf(1), Node(1)), Equals(2, Leaf(0), Leaf(3))};
  EXPECT_EQ(JoinEqualNodes(TreesWith(other)).nodes.size(), 2U);
  other = {Equals(1, Leaf(0), Node(1)), Equals(2, Leaf(0), Leaf(3))};
  other[1].feature = 1;
  EXPECT_EQ(JoinEqualNodes(TreesWith(other)).nodes.size(), 2U);
  for (const double split : {-1.0, 0.5, 64.0}) {
    const nn::Trees trees =
        JoinEqualNodes(TreesWith({Equals(split, Leaf(0), Node(1)), Equals(2, Leaf(0), Leaf(3))}));
    ASSERT_EQ(trees.nodes.size(), 2U);
    EXPECT_EQ(trees.nodes[0].mode, Mode::kEq);
  }
}

TEST(TreeNodesTest, OtherTreesStayAsTheyAre) {
  const nn::Trees plain =
      JoinEqualNodes(TreesWith({AtMost(0.5, Node(1), Node(2)), AtMost(0.25, Leaf(0), Leaf(1)),
                                AtMost(0.25, Leaf(2), Leaf(1))}));
  EXPECT_EQ(plain.nodes.size(), 3U);
  std::vector<nn::TreeNode> large = {Equals(1, Leaf(0), Node(1)),
                                     {0, Mode::kMember, 0, false, {0.5}, Leaf(0), Leaf(3)}};
  EXPECT_EQ(JoinEqualNodes(TreesWith(large)).nodes[0].mode, Mode::kEq);
}

TEST(TreeNodesTest, Cycles) {
  const nn::Trees trees = TreesWith({Equals(1, Leaf(0), Node(1)), Equals(2, Node(0), Leaf(3))});
  EXPECT_FALSE(TreeHeights(trees.nodes));
}

}  // namespace
}  // namespace lathe::lower
