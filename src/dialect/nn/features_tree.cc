// Decision trees of the features family.
#include "src/dialect/nn/features_tree.h"

#include <algorithm>
#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/features.h"
#include "lathe/support/error.h"

namespace lathe::nn {

namespace {

[[noreturn]] void FailTree(std::string message) {
  eval::FailArgument("run/tree-ensemble", std::move(message));
}

using Branch = TreeBranch;
using Node = TreeNode;
using Mode = TreeNode::Mode;

bool Holds(const Node& node, double value) {
  if (std::isnan(value) && node.missing_is_true) return true;
  switch (node.mode) {
    case Mode::kLeq:
      return value <= node.split;
    case Mode::kLt:
      return value < node.split;
    case Mode::kGte:
      return value >= node.split;
    case Mode::kGt:
      return value > node.split;
    case Mode::kEq:
      return value == node.split;
    case Mode::kNeq:
      return value != node.split;
    case Mode::kMember:
      return std::find(node.members.begin(), node.members.end(), value) != node.members.end();
  }
  return false;
}

int64_t NumTargets(TreeEnsembleOp op) {
  if (const auto given = op.n_targets()) return *given;
  const auto ids = op.leaf_targetids();
  const int64_t last = ids.empty() ? -1 : *std::max_element(ids.begin(), ids.end());
  if (last == INT64_MAX) FailTree("an entry of leaf_targetids is too large");
  return last + 1;
}

// What branches lead to.
Branch BranchTo(int64_t id, bool leaf, size_t count) {
  if (id >= 0 && static_cast<size_t>(id) < count) return {static_cast<size_t>(id), leaf};
  FailTree(StrCat("a branch leads to ", leaf ? "leaf " : "node ", id, " of ", count));
}

std::vector<Node> NodesOf(TreeEnsembleOp op, size_t leaves) {
  const auto features = op.nodes_featureids();
  const auto modes = ToInt64s(op.nodes_modes());
  const auto splits = ToDoubles(op.nodes_splits());
  const auto yes = op.nodes_truenodeids();
  const auto yes_leaf = op.nodes_trueleafs();
  const auto no = op.nodes_falsenodeids();
  const auto no_leaf = op.nodes_falseleafs();
  const size_t count = features.size();
  const auto missing =
      op.nodes_missing_value_tracks_true().value_or(std::vector<int64_t>(count, 0));
  for (const size_t size : {modes.size(), splits.size(), yes.size(), yes_leaf.size(), no.size(),
                            no_leaf.size(), missing.size()}) {
    if (size != count) FailTree("the nodes_ attributes differ in length");
  }
  std::vector<Node> nodes;
  for (size_t i = 0; i < count; ++i) {
    if (modes[i] < 0 || modes[i] > 6) FailTree(StrCat("a node has mode ", modes[i]));
    nodes.push_back({static_cast<size_t>(features[i]),
                     static_cast<Mode>(modes[i]),
                     splits[i],
                     missing[i] != 0,
                     {},
                     BranchTo(yes[i], yes_leaf[i] != 0, yes_leaf[i] != 0 ? leaves : count),
                     BranchTo(no[i], no_leaf[i] != 0, no_leaf[i] != 0 ? leaves : count)});
  }
  return nodes;
}

// Sets in the order of the nodes that test them.
void ReadMembers(TreeEnsembleOp op, std::vector<Node>& nodes) {
  const auto given = op.membership_values();
  const std::vector<double> values = given ? ToDoubles(*given) : std::vector<double>();
  auto next = values.begin();
  for (Node& node : nodes) {
    if (node.mode != Mode::kMember) continue;
    while (next != values.end() && !std::isnan(*next)) node.members.push_back(*next++);
    if (next != values.end()) ++next;
  }
}

}  // namespace

Trees Trees::Of(TreeEnsembleOp op) {
  Trees trees{op.tree_roots(),
              op.leaf_targetids(),
              ToDoubles(op.leaf_weights()),
              op.aggregate_function(),
              static_cast<size_t>(NumTargets(op)),
              {}};
  if (trees.targets.size() != trees.weights.size()) {
    FailTree("the leaf_ attributes differ in length");
  }
  for (const int64_t target : trees.targets) {
    if (static_cast<size_t>(target) >= trees.width) {
      FailTree(StrCat("a leaf belongs to target ", target, " of ", trees.width));
    }
  }
  if (trees.aggregate > 3) FailTree(StrCat("aggregate_function is ", trees.aggregate));
  trees.nodes = NodesOf(op, trees.targets.size());
  ReadMembers(op, trees.nodes);
  for (const int64_t root : trees.roots) {
    if (static_cast<size_t>(root) >= trees.nodes.size()) {
      FailTree(StrCat("there is no node ", root));
    }
  }
  return trees;
}

namespace {

class Ensemble {
 public:
  explicit Ensemble(TreeEnsembleOp op) : trees_(Trees::Of(op)) {}

  void Row(std::span<const double> features, std::span<double> out) const {
    std::vector<bool> reached(trees_.width, false);
    for (const int64_t root : trees_.roots) {
      const size_t leaf = LeafOf(static_cast<size_t>(root), features);
      const auto target = static_cast<size_t>(trees_.targets[leaf]);
      Add(out[target], trees_.weights[leaf], !reached[target]);
      reached[target] = true;
    }
    if (trees_.aggregate != 0 || trees_.roots.empty()) return;
    for (double& value : out) value /= static_cast<double>(trees_.roots.size());
  }

 private:
  void Add(double& total, double weight, bool first) const {
    if (trees_.aggregate <= 1) {
      total += weight;
    } else if (first) {
      total = weight;
    } else {
      total = trees_.aggregate == 2 ? std::min(total, weight) : std::max(total, weight);
    }
  }

  size_t LeafOf(size_t at, std::span<const double> features) const {
    for (size_t steps = 0; steps <= trees_.nodes.size(); ++steps) {
      const Node& node = trees_.nodes[at];
      if (node.feature >= features.size()) {
        FailTree(StrCat("a node reads feature ", node.feature, " of ", features.size()));
      }
      const Branch& branch = Holds(node, features[node.feature]) ? node.yes : node.no;
      if (branch.leaf) return branch.to;
      at = branch.to;
    }
    FailTree("the nodes form a cycle");
  }

  Trees trees_;
};

void Softmax(std::span<double> row, bool keep_zeros) {
  if (row.empty()) return;
  const double largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (double& value : row) {
    value = keep_zeros && value == 0 ? 0 : std::exp(value - largest);
    sum += value;
  }
  for (double& value : row) value = sum == 0 ? 0 : value / sum;
}

void Transform(std::span<double> row, int64_t kind) {
  if (kind == 1 || kind == 3) Softmax(row, kind == 3);
  for (double& value : row) {
    if (kind == 2) value = 1 / (1 + std::exp(-value));
  }
}

void CheckTransform(TreeEnsembleOp op) {
  if (op.post_transform() <= 3) return;
  throw Error(ErrorCode::kUnsupported, "unsupported/tree-ensemble",
              StrCat("post_transform ", op.post_transform(), " is not supported"))
      .Hint("supported are 0 none, 1 softmax, 2 logistic and 3 softmax without zeros");
}

SymShape TreeRule(const SymShape& in, int64_t targets) {
  if (in.ranked && in.rank() != 2) {
    eval::FailShape("shape/tree-ensemble",
                    StrCat("the input must be [N, features], not of rank ", in.rank()));
  }
  return {in.ranked ? in.dims[0] : Dim(), targets};
}

}  // namespace

void TreeEnsembleOp::InferShape(InferShapeContext& c) {
  const TreeEnsembleOp op(c.op());
  CheckTransform(op);
  c.SetShape(kY, TreeRule(c.shape(kX), NumTargets(op)));
}

void TreeEnsembleOp::Eval(EvalContext& c) {
  const TreeEnsembleOp op(c.op());
  CheckTransform(op);
  const Tensor& x = c.input(kX);
  const Shape shape = *TreeRule(SymShape::FromConstants(x.shape()), NumTargets(op)).Constants();
  Tensor sums(ElementType::kF64, shape);
  const Ensemble ensemble(op);
  const auto features = ToDoubles(x);
  const auto out = sums.mutable_data<double>();
  const auto width = static_cast<size_t>(shape[1]);
  const auto count = static_cast<size_t>(x.shape()[1]);
  for (size_t row = 0; width > 0 && row < out.size() / width; ++row) {
    const auto target = out.subspan(row * width, width);
    ensemble.Row(std::span(features).subspan(row * count, count), target);
    Transform(target, op.post_transform());
  }
  c.SetOutput(kY, Cast(sums, x.element_type()));
}

}  // namespace lathe::nn
