#include <algorithm>
#include <set>

#include "lathe/dialect/nn/activation.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/support/error.h"
#include "src/dialect/nn/features_tree.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/scalars.h"

// Decision trees: tables of nodes that a loop goes through from each root on.
namespace lathe::lower {
namespace {

constexpr ElementType kWide = ElementType::kF64;

using Op = nn::TreeEnsembleOp;
using Mode = nn::TreeNode::Mode;

std::optional<nn::Trees> TreesOf(const Operation& op) {
  try {
    return nn::Trees::Of(Op(const_cast<Operation*>(&op)));
  } catch (const Error&) {
    return std::nullopt;
  }
}

// How many nodes there are at most on a way from each node to a leaf; nothing if there are cycles.
std::optional<std::vector<int64_t>> Heights(const std::vector<nn::TreeNode>& nodes) {
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

std::string Refuse(const Operation& op) {
  const auto trees = TreesOf(op);
  if (!trees) return "its trees contradict themselves";
  const Dim features = DimsOf(op.operand(0))[1];
  if (!features.is_constant()) return "how many features there are is not known";
  for (const nn::TreeNode& node : trees->nodes) {
    if (static_cast<int64_t>(node.feature) >= features.value()) return "a feature is missing";
  }
  return Heights(trees->nodes) ? NeedSizes(op) : "its nodes form a cycle";
}

class Ensemble {
 public:
  explicit Ensemble(const WholeOf& w)
      : w_(w), e_(w.e), s_(w.e), op_(const_cast<Operation*>(w.op)), trees_(*TreesOf(*w.op)) {
    for (const nn::TreeNode& node : trees_.nodes) modes_.insert(node.mode);
  }

  void Write() {
    if (trees_.width == 0) return;
    const Dim rows = w_.Dims(0)[0];
    const auto roots = static_cast<int64_t>(trees_.roots.size());
    width_ = static_cast<int64_t>(trees_.width);
    sums_ = e_.Scratch(kWide, rows * width_);
    reached_ = e_.Scratch(ElementType::kI64, rows * width_);
    if (roots > 0) MakeTables();
    e_.For(rows, WholeOf::IsMuch(rows * (roots * 8)), [&](const Dim& row) {
      e_.For(width_, false, [&](const Dim& target) {
        e_.Store(sums_, row * width_ + target, s_.Number(kWide, 0.0));
        e_.Store(reached_, row * width_ + target, e_.lb().Int(0));
      });
      if (roots > 0) e_.For(roots, false, [&](const Dim& tree) { AddTree(row, tree); });
      Finish(row);
    });
  }

 private:
  template <class T, class F>
  Value Table(size_t count, const F& entry) {
    std::vector<T> entries;
    for (size_t i = 0; i < count; ++i) entries.push_back(static_cast<T>(entry(i)));
    return e_.lb().Constant(Tensor::Of<T>({static_cast<int64_t>(count)}, entries));
  }
  template <class T, class F>
  Value OfNodes(const F& entry) {
    return Table<T>(trees_.nodes.size(), [&](size_t i) { return entry(trees_.nodes[i]); });
  }

  // Leaves are numbered behind the nodes.
  void MakeTables() {
    const auto heights = *Heights(trees_.nodes);
    const auto number = [&](const nn::TreeBranch& branch) {
      return branch.leaf ? branch.to + trees_.nodes.size() : branch.to;
    };
    const size_t roots = trees_.roots.size(), leaves = trees_.targets.size();
    roots_ = Table<int64_t>(roots, [&](size_t i) { return trees_.roots[i]; });
    heights_ = Table<int64_t>(
        roots, [&](size_t i) { return heights[static_cast<size_t>(trees_.roots[i])]; });
    features_ = OfNodes<int64_t>([](const nn::TreeNode& n) { return n.feature; });
    splits_ = OfNodes<double>([](const nn::TreeNode& n) { return n.split; });
    yes_ = OfNodes<int64_t>([&](const nn::TreeNode& n) { return number(n.yes); });
    no_ = OfNodes<int64_t>([&](const nn::TreeNode& n) { return number(n.no); });
    if (modes_.size() > 1) {
      mode_table_ =
          OfNodes<int64_t>([](const nn::TreeNode& n) { return static_cast<int>(n.mode); });
    }
    if (std::ranges::any_of(trees_.nodes, &nn::TreeNode::missing_is_true)) {
      missing_ = OfNodes<int64_t>([](const nn::TreeNode& n) { return n.missing_is_true ? 1 : 0; });
    }
    targets_ = Table<int64_t>(leaves, [&](size_t i) { return trees_.targets[i]; });
    weights_ = Table<double>(leaves, [&](size_t i) { return trees_.weights[i]; });
    if (modes_.count(Mode::kMember) != 0) MakeMembers();
  }

  void MakeMembers() {
    std::vector<double> all;
    std::vector<int64_t> begins;
    for (const nn::TreeNode& node : trees_.nodes) {
      begins.push_back(static_cast<int64_t>(all.size()));
      all.insert(all.end(), node.members.begin(), node.members.end());
    }
    begins.push_back(static_cast<int64_t>(all.size()));
    most_members_ = begins.back();
    all.push_back(0);
    begins_ = Table<int64_t>(begins.size(), [&](size_t i) { return begins[i]; });
    members_ = Table<double>(all.size(), [&](size_t i) { return all[i]; });
  }

  Value IsMember(const Dim& node, Value x) {
    const Dim begin = e_.Loaded(e_.LoadFrom(begins_, node), most_members_ + 1);
    const Dim end = e_.Loaded(e_.LoadFrom(begins_, node + 1), most_members_ + 1);
    const Value none = s_.Less(x, x);
    return e_.For(end - begin, {none}, [&](const Dim& i, std::span<const Value> before) {
      const Value same = s_.Equal(x, e_.LoadFrom(members_, begin + i));
      return std::vector<Value>{s_.Or(before[0], same)};
    })[0];
  }

  Value HoldsAs(Mode mode, const Dim& node, Value x, Value split) {
    switch (mode) {
      case Mode::kLeq:
        return s_.AtMost(x, split);
      case Mode::kLt:
        return s_.Less(x, split);
      case Mode::kGte:
        return s_.AtMost(split, x);
      case Mode::kGt:
        return s_.Less(split, x);
      case Mode::kEq:
        return s_.Equal(x, split);
      case Mode::kNeq:
        return s_.Not(s_.Equal(x, split));
      case Mode::kMember:
        return IsMember(node, x);
    }
    return {};
  }

  Value Holds(const Dim& row, const Dim& node) {
    const Dim features = w_.Dims(0)[1];
    const Dim feature = e_.Loaded(e_.LoadFrom(features_, node), features);
    const Value x = s_.Cast(w_.Operand(0, {row, feature}), kWide);
    const Value split = e_.LoadFrom(splits_, node);
    Value holds;
    for (const Mode mode : modes_) {
      const Value now = HoldsAs(mode, node, x, split);
      if (!holds) {
        holds = now;
        continue;
      }
      const Value number = e_.lb().Int(static_cast<int64_t>(mode));
      holds = s_.Select(s_.Equal(e_.LoadFrom(mode_table_, node), number), now, holds);
    }
    if (!missing_) return holds;
    const Value tracks = s_.Equal(e_.LoadFrom(missing_, node), e_.lb().Int(1));
    return s_.Or(holds, s_.And(tracks, s_.Not(s_.Equal(x, x))));
  }

  Value LeafOf(const Dim& row, const Dim& tree) {
    const auto nodes = static_cast<int64_t>(trees_.nodes.size());
    const Dim height = e_.Loaded(e_.LoadFrom(heights_, tree), nodes + 1);
    const auto next = [&](const Dim&, std::span<const Value> before) {
      const Value is_leaf = s_.Less(e_.lb().Int(nodes - 1), before[0]);
      const Dim node = e_.Loaded(s_.Min(before[0], e_.lb().Int(nodes - 1)), nodes);
      const Value to = s_.Select(Holds(row, node), e_.LoadFrom(yes_, node), e_.LoadFrom(no_, node));
      return std::vector<Value>{s_.Select(is_leaf, before[0], to)};
    };
    const Value number = e_.For(height, {e_.LoadFrom(roots_, tree)}, next)[0];
    return s_.Sub(number, e_.lb().Int(nodes));
  }

  void AddTree(const Dim& row, const Dim& tree) {
    const Dim leaf = e_.Loaded(LeafOf(row, tree), static_cast<int64_t>(trees_.targets.size()));
    const Dim target = e_.Loaded(e_.LoadFrom(targets_, leaf), width_);
    const Dim at = row * width_ + target;
    const Value weight = e_.LoadFrom(weights_, leaf), total = e_.LoadFrom(sums_, at);
    Value next = s_.Add(total, weight);
    if (trees_.aggregate > 1) {
      const Value better = trees_.aggregate == 2 ? s_.Less(weight, total) : s_.Less(total, weight);
      const Value first = s_.Equal(e_.LoadFrom(reached_, at), e_.lb().Int(0));
      next = s_.Select(s_.Or(first, better), weight, total);
    }
    e_.Store(sums_, at, next);
    e_.Store(reached_, at, e_.lb().Int(1));
  }

  // ---- what becomes of the sums ----

  Value Sum(const Dim& row, const Dim& target) {
    const Value sum = e_.LoadFrom(sums_, row * width_ + target);
    if (trees_.aggregate != 0 || trees_.roots.empty()) return sum;
    return s_.Div(sum, s_.Number(kWide, static_cast<double>(trees_.roots.size())));
  }

  void Finish(const Dim& row) {
    const int64_t kind = op_.post_transform();
    if (kind == 1 || kind == 3) Softmax(row, kind == 3);
    e_.For(width_, false, [&](const Dim& target) {
      Value y = Sum(row, target);
      if (kind == 1 || kind == 3) y = e_.LoadFrom(sums_, row * width_ + target);
      if (kind == 2) y = nn::SigmoidOp::Create(e_.lb().b(), y).y();
      e_.Store(w_.memory[0], row * width_ + target, s_.Cast(y, w_.Element(0)));
    });
  }

  void Softmax(const Dim& row, bool keeps_zeros) {
    const Value none = s_.Number(kWide, 0.0);
    const Value largest =
        e_.For(width_, {Sum(row, 0)}, [&](const Dim& target, std::span<const Value> before) {
          const Value x = Sum(row, target);
          return std::vector<Value>{s_.Select(s_.Less(before[0], x), x, before[0])};
        })[0];
    const Value sum = e_.For(width_, {none}, [&](const Dim& target, std::span<const Value> before) {
      const Value x = Sum(row, target);
      Value power = s_.Exp(s_.Sub(x, largest));
      if (keeps_zeros) power = s_.Select(s_.Equal(x, none), none, power);
      e_.Store(sums_, row * width_ + target, power);
      return std::vector<Value>{s_.Add(before[0], power)};
    })[0];
    e_.For(width_, false, [&](const Dim& target) {
      const Value share = s_.Div(e_.LoadFrom(sums_, row * width_ + target), sum);
      e_.Store(sums_, row * width_ + target, s_.Select(s_.Equal(sum, none), none, share));
    });
  }

  const WholeOf& w_;
  Elements& e_;
  Scalars s_;
  Op op_;
  nn::Trees trees_;
  std::set<Mode> modes_;
  Dim width_, most_members_;
  Value sums_, reached_;
  Value roots_, heights_, features_, splits_, yes_, no_, mode_table_, missing_, targets_, weights_;
  Value begins_, members_;
};

void WriteEnsemble(const WholeOf& w) { Ensemble(w).Write(); }

constexpr Compute kComputes[] = {
    {nn::kTreeEnsemble, nullptr, Refuse, nullptr, WriteEnsemble},
};

}  // namespace

std::span<const Compute> TreeComputes() { return kComputes; }

}  // namespace lathe::lower
