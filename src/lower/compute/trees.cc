#include <algorithm>
#include <set>

#include "lathe/dialect/nn/activation.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/support/error.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/scalars.h"
#include "src/lower/compute/tree_nodes.h"

// Decision trees: tables of nodes that a loop goes through from each root on.
namespace lathe::lower {
namespace {

using Mode = nn::TreeNode::Mode;

std::optional<nn::Trees> TreesOf(const Operation& op) {
  try {
    return nn::Trees::Of(nn::TreeEnsembleOp(&op));
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string Refuse(const Operation& op) {
  const auto trees = TreesOf(op);
  if (!trees) return "its trees contradict themselves";
  const Dim features = DimsOf(op.operand(0))[1];
  if (!features.is_constant()) return "how many features there are is not known";
  for (const nn::TreeNode& node : trees->nodes) {
    if (static_cast<int64_t>(node.feature) >= features.value()) return "a feature is missing";
  }
  return TreeHeights(trees->nodes) ? NeedSizes(op) : "its nodes form a cycle";
}

class Ensemble {
 public:
  explicit Ensemble(const WholeTensorEmitter& w)
      : w_(w), e_(w.e), s_(w.e), op_(w.op), trees_(JoinEqualNodes(*TreesOf(*w.op))) {
    for (const nn::TreeNode& node : trees_.nodes) modes_.insert(node.mode);
  }

  void Write() {
    if (trees_.width == 0) return;
    const Dim rows = w_.Dims(0)[0];
    const auto roots = static_cast<int64_t>(trees_.roots.size());
    width_ = static_cast<int64_t>(trees_.width);
    sums_ = e_.Scratch(kWide, rows * width_);
    if (KeepsReached()) reached_ = e_.Scratch(ElementType::kI64, rows * width_);
    if (roots > 0) MakeTables();
    // A tree stays in the cache for the rows of a block.
    constexpr int64_t kRows = 16;
    const bool is_much = WholeTensorEmitter::IsWorthParallelizing(rows * (roots * 8));
    e_.For(CeilDiv(rows, kRows), is_much, [&](const Dim& block) {
      const Dim count = Min(rows - block * kRows, kRows);
      const auto for_rows = [&](const std::function<void(const Dim& row)>& body) {
        e_.For(count, false, [&](const Dim& i) { body(block * kRows + i); });
      };
      for_rows([&](const Dim& row) { Begin(row); });
      e_.For(roots / kAtOnce, false, [&](const Dim& group) {
        for_rows([&](const Dim& row) { AddTrees(row, group, kAtOnce); });
      });
      const int64_t rest = roots % kAtOnce;
      if (rest > 0) for_rows([&](const Dim& row) { AddTrees(row, roots / kAtOnce, rest); });
      for_rows([&](const Dim& row) { Finish(row); });
    });
  }

 private:
  // Ways down that many trees do not wait for one another.
  static constexpr int64_t kAtOnce = 8;

  bool KeepsReached() const { return trees_.aggregate > 1; }

  void Begin(const Dim& row) {
    e_.For(width_, false, [&](const Dim& target) {
      e_.Store(sums_, row * width_ + target, s_.Number(kWide, 0.0));
      if (KeepsReached()) e_.Store(reached_, row * width_ + target, e_.lb().Int(0));
    });
  }

  template <class T, class F>
  Value Table(size_t count, const F& entry) {
    std::vector<T> entries;
    for (size_t i = 0; i < count; ++i) entries.push_back(static_cast<T>(entry(i)));
    return e_.lb().Constant(Tensor::Of<T>({static_cast<int64_t>(count)}, entries));
  }
  // Of nodes, then leaves, from which all ways lead back to them.
  template <class T, class F>
  Value OfNodes(const F& entry, bool of_leaves = false) {
    const size_t nodes = trees_.nodes.size();
    return Table<T>(nodes + trees_.targets.size(), [&](size_t i) {
      if (i < nodes) return static_cast<T>(entry(trees_.nodes[i]));
      return of_leaves ? static_cast<T>(i) : T{};
    });
  }

  // Whether f32 tells elements of the operand from the numbers in the nodes as well as f64 does.
  bool IsNarrow() const {
    const ElementType type = TensorOf(op_.x()).element();
    const auto fits = [](double x) {
      return x != x || static_cast<double>(static_cast<float>(x)) == x;
    };
    return IsFloat(type) && BitWidth(type) <= 32 &&
           std::ranges::all_of(trees_.nodes, [&](const nn::TreeNode& node) {
             return fits(node.split) && std::ranges::all_of(node.members, fits);
           });
  }

  template <class F>
  Value OfSplits(const F& make) {
    return compared_ == kWide ? make(double{}) : make(float{});
  }

  // The trees of a group take as many steps as its highest one.
  void MakeHeights() {
    const auto heights = *TreeHeights(trees_.nodes);
    const size_t roots = trees_.roots.size(), groups = (roots + kAtOnce - 1) / kAtOnce;
    std::vector<int64_t> most(groups, 0);
    for (size_t i = 0; i < roots; ++i) {
      int64_t& height = most[i / kAtOnce];
      height = std::max(height, heights[static_cast<size_t>(trees_.roots[i])]);
    }
    heights_ = Table<int64_t>(groups, [&](size_t i) { return most[i]; });
  }

  void MakeTables() {
    const auto number = [&](const nn::TreeBranch& branch) {
      return branch.leaf ? branch.to + trees_.nodes.size() : branch.to;
    };
    const size_t leaves = trees_.targets.size();
    MakeHeights();
    roots_ = Table<int64_t>(trees_.roots.size(), [&](size_t i) { return trees_.roots[i]; });
    features_ = OfNodes<int32_t>([](const nn::TreeNode& n) { return n.feature; });
    compared_ = IsNarrow() ? ElementType::kF32 : kWide;
    splits_ = OfSplits(
        [&]<class T>(T) { return OfNodes<T>([](const nn::TreeNode& n) { return n.split; }); });
    yes_ = OfNodes<int32_t>([&](const nn::TreeNode& n) { return number(n.yes); }, true);
    no_ = OfNodes<int32_t>([&](const nn::TreeNode& n) { return number(n.no); }, true);
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
    const auto is_small = [](const nn::TreeNode& node) { return IsSmallSet(node.members); };
    if (std::ranges::all_of(trees_.nodes, is_small)) {
      bits_ = OfNodes<uint64_t>([](const nn::TreeNode& node) {
        uint64_t bits = 0;
        for (const double member : node.members)
          bits |= uint64_t{1} << static_cast<int64_t>(member);
        return bits;
      });
      return;
    }
    std::vector<double> all;
    std::vector<int64_t> begins;
    for (const nn::TreeNode& node : trees_.nodes) {
      begins.push_back(static_cast<int64_t>(all.size()));
      all.insert(all.end(), node.members.begin(), node.members.end());
    }
    begins.resize(begins.size() + trees_.targets.size() + 1, std::ssize(all));
    most_members_ = begins.back();
    all.push_back(0);
    begins_ = Table<int64_t>(begins.size(), [&](size_t i) { return begins[i]; });
    members_ = OfSplits(
        [&]<class T>(T) { return Table<T>(all.size(), [&](size_t i) { return all[i]; }); });
  }

  // False for numbers beyond the last bit, and for those that are not whole.
  Value IsInBits(const Dim& node, Value x) {
    Builder& b = e_.lb().b();
    const Value whole = s_.Cast(x, ElementType::kI64), one = e_.lb().Splat(ElementType::kU64, 1);
    const Value shifted =
        nn::BitShiftOp::Create(b, e_.LoadFrom(bits_, node), s_.Cast(whole, ElementType::kU64),
                               {.direction = "RIGHT"})
            .z();
    const Value bit = nn::BitwiseAndOp::Create(b, shifted, one).c();
    return s_.And(s_.Equal(bit, one), s_.Equal(s_.Cast(whole, compared_), x));
  }

  Value IsMember(const Dim& node, Value x) {
    if (bits_) return IsInBits(node, x);
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
    const Dim feature = e_.Loaded(Wide(e_.LoadFrom(features_, node)), features);
    const Value x = s_.Cast(w_.Operand(0, {row, feature}), compared_);
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

  Value Wide(Value number) { return s_.Cast(number, ElementType::kI64); }

  // The leaves that a row comes to in trees of a group.
  std::vector<Value> LeavesOf(const Dim& row, const Dim& group, int64_t trees) {
    const auto nodes = static_cast<int64_t>(trees_.nodes.size());
    const Dim places = nodes + static_cast<int64_t>(trees_.targets.size());
    std::vector<Value> at;
    for (int64_t i = 0; i < trees; ++i) at.push_back(e_.LoadFrom(roots_, group * kAtOnce + i));
    const Dim height = e_.Loaded(e_.LoadFrom(heights_, group), nodes + 1);
    at = e_.For(height, at, [&](const Dim&, std::span<const Value> before) {
      std::vector<Value> next;
      for (const Value place : before) {
        const Dim node = e_.Loaded(place, places);
        next.push_back(
            Wide(s_.Select(Holds(row, node), e_.LoadFrom(yes_, node), e_.LoadFrom(no_, node))));
      }
      return next;
    });
    for (Value& place : at) place = s_.Sub(place, e_.lb().Int(nodes));
    return at;
  }

  void AddTrees(const Dim& row, const Dim& group, int64_t trees) {
    for (const Value leaf : LeavesOf(row, group, trees)) Add(row, leaf);
  }

  void Add(const Dim& row, Value reached) {
    const Dim leaf = e_.Loaded(reached, static_cast<int64_t>(trees_.targets.size()));
    const Dim target = e_.Loaded(e_.LoadFrom(targets_, leaf), width_);
    const Dim at = row * width_ + target;
    const Value weight = e_.LoadFrom(weights_, leaf), total = e_.LoadFrom(sums_, at);
    Value next = s_.Add(total, weight);
    if (KeepsReached()) {
      const Value better = trees_.aggregate == 2 ? s_.Less(weight, total) : s_.Less(total, weight);
      const Value first = s_.Equal(e_.LoadFrom(reached_, at), e_.lb().Int(0));
      next = s_.Select(s_.Or(first, better), weight, total);
    }
    e_.Store(sums_, at, next);
    if (KeepsReached()) e_.Store(reached_, at, e_.lb().Int(1));
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

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  nn::TreeEnsembleOp op_;
  nn::Trees trees_;
  std::set<Mode> modes_;
  ElementType compared_ = kWide;
  Dim width_, most_members_;
  Value sums_, reached_;
  Value roots_, heights_, features_, splits_, yes_, no_, mode_table_, missing_, targets_, weights_;
  Value begins_, members_, bits_;
};

void WriteEnsemble(const WholeTensorEmitter& w) { Ensemble(w).Write(); }

constexpr Compute kTreeComputes[] = {
    {nn::kTreeEnsemble, nullptr, Refuse, nullptr, WriteEnsemble},
};

}  // namespace

std::span<const Compute> TreeComputes() { return kTreeComputes; }

}  // namespace lathe::lower
