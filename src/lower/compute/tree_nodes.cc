#include "src/lower/compute/tree_nodes.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <tuple>

namespace lathe::lower {
namespace {

using Mode = nn::TreeNode::Mode;

bool IsSmallWhole(double x) { return x >= 0 && x < kSetBits && x == static_cast<int64_t>(x); }

class EqualNodes {
 public:
  explicit EqualNodes(nn::Trees trees) : trees_(std::move(trees)) {}

  nn::Trees Join() {
    const std::vector<int64_t> heights = *TreeHeights(trees_.nodes);
    std::vector<size_t> order(trees_.nodes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t i) { return heights[i]; });
    same_.resize(order.size());
    for (const size_t i : order) same_[i] = SameAs(i);
    KeepReached();
    return std::move(trees_);
  }

 private:
  using Leaf = std::pair<int64_t, uint64_t>;
  using Way = std::pair<size_t, bool>;
  using Key = std::tuple<size_t, Mode, uint64_t, bool, std::vector<double>, Way, Way>;

  // What lies below has been seen.
  size_t SameAs(size_t i) {
    nn::TreeNode& node = trees_.nodes[i];
    for (nn::TreeBranch* branch : {&node.yes, &node.no}) {
      branch->to = branch->leaf ? SameLeaf(branch->to) : same_[branch->to];
    }
    if (node.mode == Mode::kEq && IsSmallWhole(node.split)) {
      node.mode = Mode::kMember;
      node.members = {node.split};
      node.split = 0;
    }
    std::ranges::sort(node.members);
    TakeNext(node);
    const auto way = [](const nn::TreeBranch& branch) { return Way{branch.to, branch.leaf}; };
    const Key key{node.feature,         node.mode,    std::bit_cast<uint64_t>(node.split),
                  node.missing_is_true, node.members, way(node.yes),
                  way(node.no)};
    return nodes_.emplace(key, i).first->second;
  }

  size_t SameLeaf(size_t i) {
    const Leaf leaf{trees_.targets[i], std::bit_cast<uint64_t>(trees_.weights[i])};
    return leaves_.emplace(leaf, i).first->second;
  }

  // A node that asks of the same feature whether it is in a set, where the answer is the same.
  void TakeNext(nn::TreeNode& node) const {
    if (!IsSet(node) || node.no.leaf) return;
    const nn::TreeNode& next = trees_.nodes[node.no.to];
    const bool is_same = IsSet(next) && next.feature == node.feature &&
                         next.yes.leaf == node.yes.leaf && next.yes.to == node.yes.to;
    if (!is_same) return;
    std::vector<double> both;
    std::ranges::set_union(node.members, next.members, std::back_inserter(both));
    node.members = std::move(both);
    node.missing_is_true |= next.missing_is_true;
    node.no = next.no;
  }

  static bool IsSet(const nn::TreeNode& node) { return node.mode == Mode::kMember; }

  // In the order in which ways down come by, tree by tree.
  void KeepReached() {
    std::map<size_t, size_t> numbers;
    std::vector<size_t> kept;
    const auto number = [&](size_t node) {
      const auto [found, is_new] = numbers.emplace(node, kept.size());
      if (is_new) kept.push_back(node);
      return found->second;
    };
    size_t next = 0;
    for (int64_t& root : trees_.roots) {
      root = static_cast<int64_t>(number(same_[static_cast<size_t>(root)]));
      for (; next < kept.size(); ++next) {
        nn::TreeNode& node = trees_.nodes[kept[next]];
        for (nn::TreeBranch* branch : {&node.yes, &node.no}) {
          if (!branch->leaf) branch->to = number(branch->to);
        }
      }
    }
    std::vector<nn::TreeNode> nodes;
    for (const size_t node : kept) nodes.push_back(std::move(trees_.nodes[node]));
    trees_.nodes = std::move(nodes);
  }

  nn::Trees trees_;
  std::vector<size_t> same_;  // by node, the first one that is equal
  std::map<Key, size_t> nodes_;
  std::map<Leaf, size_t> leaves_;
};

}  // namespace

std::optional<std::vector<int64_t>> TreeHeights(const std::vector<nn::TreeNode>& nodes) {
  enum class State : uint8_t { kNew, kOpen, kDone };
  std::vector<int64_t> heights(nodes.size(), 0);
  std::vector<State> states(nodes.size(), State::kNew);
  std::vector<size_t> way;
  for (size_t start = 0; start < nodes.size(); ++start) {
    way.push_back(start);
    while (!way.empty()) {
      const size_t at = way.back();
      const bool opens = states[at] == State::kNew;
      if (states[at] == State::kOpen) states[at] = State::kDone;
      if (opens) states[at] = State::kOpen;
      if (!opens) way.pop_back();
      int64_t below = 0;
      for (const nn::TreeBranch& branch : {nodes[at].yes, nodes[at].no}) {
        if (branch.leaf) continue;
        if (opens && states[branch.to] == State::kOpen) return std::nullopt;
        if (opens && states[branch.to] == State::kNew) way.push_back(branch.to);
        below = std::max(below, heights[branch.to]);
      }
      heights[at] = below + 1;
    }
  }
  return heights;
}

bool IsSmallSet(const std::vector<double>& members) {
  return std::ranges::all_of(members, IsSmallWhole);
}

nn::Trees JoinEqualNodes(nn::Trees trees) {
  const auto is_large = [](const nn::TreeNode& node) { return !IsSmallSet(node.members); };
  const auto compares = [](const nn::TreeNode& node) {
    return node.mode == Mode::kEq || node.mode == Mode::kMember;
  };
  const bool pays =
      std::ranges::any_of(trees.nodes, compares) && std::ranges::none_of(trees.nodes, is_large);
  return pays ? EqualNodes(std::move(trees)).Join() : trees;
}

}  // namespace lathe::lower
