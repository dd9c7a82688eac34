// Decision trees of the features family.
#include <algorithm>
#include <cmath>

#include "lathe/dialect/nn/features.h"
#include "lathe/support/error.h"
#include "src/dialect/eval_util.h"

namespace lathe::nn {

namespace {

[[noreturn]] void FailTree(std::string message) {
  eval::FailArgument("run/tree-ensemble", std::move(message));
}

struct Branch {
  size_t to;
  bool leaf;
};

enum class Mode : uint8_t { kLeq, kLess, kGeq, kGreater, kEqual, kNotEqual, kMember };

struct Node {
  size_t feature;
  Mode mode;
  double split;
  bool missing_is_true;
  std::vector<double> members;
  Branch yes, no;

  bool Holds(double value) const {
    if (std::isnan(value) && missing_is_true) return true;
    switch (mode) {
      case Mode::kLeq:
        return value <= split;
      case Mode::kLess:
        return value < split;
      case Mode::kGeq:
        return value >= split;
      case Mode::kGreater:
        return value > split;
      case Mode::kEqual:
        return value == split;
      case Mode::kNotEqual:
        return value != split;
      case Mode::kMember:
        return std::find(members.begin(), members.end(), value) != members.end();
    }
    return false;
  }
};

int64_t NumTargets(TreeEnsembleOp op) {
  if (const auto given = op.n_targets()) return *given;
  const auto ids = op.leaf_targetids();
  const int64_t last = ids.empty() ? -1 : *std::max_element(ids.begin(), ids.end());
  if (last == INT64_MAX) FailTree("an entry of leaf_targetids is too large");
  return last + 1;
}

class Ensemble {
 public:
  explicit Ensemble(TreeEnsembleOp op)
      : roots_(op.tree_roots()),
        targets_(op.leaf_targetids()),
        weights_(ToDoubles(op.leaf_weights())),
        aggregate_(op.aggregate_function()),
        width_(static_cast<size_t>(NumTargets(op))) {
    if (targets_.size() != weights_.size()) FailTree("the leaf_ attributes differ in length");
    for (const int64_t target : targets_) {
      if (static_cast<size_t>(target) >= width_) {
        FailTree(StrCat("a leaf belongs to target ", target, " of ", width_));
      }
    }
    if (aggregate_ > 3) FailTree(StrCat("aggregate_function is ", aggregate_));
    ReadNodes(op);
    ReadMembers(op);
    for (const int64_t root : roots_) {
      if (static_cast<size_t>(root) >= nodes_.size()) FailTree(StrCat("there is no node ", root));
    }
  }

  void Row(std::span<const double> features, std::span<double> out) const {
    std::vector<bool> reached(width_, false);
    for (const int64_t root : roots_) {
      const size_t leaf = LeafOf(static_cast<size_t>(root), features);
      const auto target = static_cast<size_t>(targets_[leaf]);
      Add(out[target], weights_[leaf], !reached[target]);
      reached[target] = true;
    }
    if (aggregate_ != 0 || roots_.empty()) return;
    for (double& value : out) value /= static_cast<double>(roots_.size());
  }

 private:
  void Add(double& total, double weight, bool first) const {
    if (aggregate_ <= 1) {
      total += weight;
    } else if (first) {
      total = weight;
    } else {
      total = aggregate_ == 2 ? std::min(total, weight) : std::max(total, weight);
    }
  }

  size_t LeafOf(size_t at, std::span<const double> features) const {
    for (size_t steps = 0; steps <= nodes_.size(); ++steps) {
      const Node& node = nodes_[at];
      if (node.feature >= features.size()) {
        FailTree(StrCat("a node reads feature ", node.feature, " of ", features.size()));
      }
      const Branch& branch = node.Holds(features[node.feature]) ? node.yes : node.no;
      if (branch.leaf) return branch.to;
      at = branch.to;
    }
    FailTree("the nodes form a cycle");
  }

  Branch BranchTo(int64_t id, bool leaf) const {
    const size_t count = leaf ? targets_.size() : count_;
    if (id >= 0 && static_cast<size_t>(id) < count) return {static_cast<size_t>(id), leaf};
    FailTree(StrCat("a branch leads to ", leaf ? "leaf " : "node ", id, " of ", count));
  }

  void ReadNodes(TreeEnsembleOp op) {
    const auto features = op.nodes_featureids();
    const auto modes = ToInt64s(op.nodes_modes());
    const auto splits = ToDoubles(op.nodes_splits());
    const auto yes = op.nodes_truenodeids();
    const auto yes_leaf = op.nodes_trueleafs();
    const auto no = op.nodes_falsenodeids();
    const auto no_leaf = op.nodes_falseleafs();
    count_ = features.size();
    const auto missing =
        op.nodes_missing_value_tracks_true().value_or(std::vector<int64_t>(count_, 0));
    for (const size_t size : {modes.size(), splits.size(), yes.size(), yes_leaf.size(), no.size(),
                              no_leaf.size(), missing.size()}) {
      if (size != count_) FailTree("the nodes_ attributes differ in length");
    }
    for (size_t i = 0; i < count_; ++i) {
      if (modes[i] < 0 || modes[i] > 6) FailTree(StrCat("a node has mode ", modes[i]));
      nodes_.push_back({static_cast<size_t>(features[i]),
                        static_cast<Mode>(modes[i]),
                        splits[i],
                        missing[i] != 0,
                        {},
                        BranchTo(yes[i], yes_leaf[i] != 0),
                        BranchTo(no[i], no_leaf[i] != 0)});
    }
  }

  // Sets in the order of the nodes that test them.
  void ReadMembers(TreeEnsembleOp op) {
    const auto given = op.membership_values();
    const std::vector<double> values = given ? ToDoubles(*given) : std::vector<double>();
    auto next = values.begin();
    for (Node& node : nodes_) {
      if (node.mode != Mode::kMember) continue;
      while (next != values.end() && !std::isnan(*next)) node.members.push_back(*next++);
      if (next != values.end()) ++next;
    }
  }

  std::vector<int64_t> roots_, targets_;
  std::vector<double> weights_;
  int64_t aggregate_;
  size_t width_;
  size_t count_ = 0;
  std::vector<Node> nodes_;
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
