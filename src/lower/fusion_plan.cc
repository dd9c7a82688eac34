#include <algorithm>
#include <cstdio>
#include <unordered_map>

#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "lathe/lower/fusion.h"
#include "lathe/support/error.h"
#include "src/lower/dataflow.h"
#include "src/lower/fusion_price.h"
#include "src/lower/same_shapes.h"

namespace lathe {

namespace {

bool IsTensorValue(Value v) {
  if (!v || v.type().isa<NoneType>()) return true;  // absent
  return v.type().isa<VTensorType>();
}

bool IsString(Value v) {
  const auto type = v ? v.type().dyn_cast<AnyTensorType>() : AnyTensorType();
  return type && type.element() == ElementType::kString;
}

template <class F>
bool AnyValue(const Operation* op, F&& f) {
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (f(op->operand(i))) return true;
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (f(op->result(i))) return true;
  }
  return false;
}

size_t RankOf(Value v) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  return type && type.has_rank() ? type.rank() : ~size_t{0};
}

/// A group in the making; `root` is the last op that joined.
struct Group {
  OpKind kind = OpKind::kOpaque;
  uint32_t size = 1;
  uint32_t master = 0;
  uint32_t last = 0;                     ///< end of the list of members
  uint32_t reduction = Dataflow::kNone;  ///< one of its reductions
  bool injective = false;                ///< holds an injective op
  double work = 0;                       ///< arithmetic of elementwise ops, in nanoseconds
};

/// Why an op does not join a group; `why` is null if it does.
struct Obstacle {
  const char* why = nullptr;
  FusionObstacle obstacle = FusionObstacle::kKinds;
  double apart_ns = -1, together_ns = -1;
  bool exists() const { return why != nullptr; }
};

using enum FusionObstacle;

class Planner {
 public:
  Planner(Block* block, const FusionOptions& options)
      : options_(options), flow_(block), shapes_(flow_) {}

  FusionPlan Run() {
    const uint32_t n = flow_.size();
    groups_.resize(n);
    own_.resize(n);
    kernel_.resize(n);
    root_.resize(n);
    next_.assign(n, Dataflow::kNone);
    too_large_.assign(n, false);
    for (uint32_t i = 0; i < n; ++i) Init(i);
    if (options_.fuse) FuseAll();
    return Collect();
  }

 private:
  void Init(uint32_t i) {
    const Operation* op = flow_.op(i);
    kernel_[i] = IsKernelOp(op);
    own_[i] = kernel_[i] && !AnyValue(op, IsString) ? KindOf(op) : OpKind::kOpaque;
    root_[i] = i;
    Group& g = groups_[i];
    g.master = g.last = i;
    g.kind = own_[i];
    g.injective = g.kind == OpKind::kInjective;
    if (g.kind == OpKind::kReduction) g.reduction = i;
    if (g.kind <= OpKind::kBroadcast) g.work = fusion::ArithmeticNs(op);
  }

  uint32_t Find(uint32_t i) {
    while (root_[i] != i) i = root_[i] = root_[root_[i]];
    return i;
  }

  /// Each op takes in the ops that it post-dominates, nearest first; producers come before users,
  /// so these have taken in theirs.
  void FuseAll() {
    const uint32_t n = flow_.size();
    std::vector<uint32_t> first(n, Dataflow::kNone), after(n, Dataflow::kNone);
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t to = flow_.post_dominator(i);
      if (to == Dataflow::kNone) {
        if (kernel_[i]) Refused(i, Dataflow::kNone, {"its uses do not meet in one op", kUsers});
        continue;
      }
      after[i] = first[to];  // so that the highest comes first
      first[to] = i;
    }
    std::vector<uint32_t> children;
    for (uint32_t to = 0; to < n; ++to) {
      children.clear();
      for (uint32_t c = first[to]; c != Dataflow::kNone; c = after[c]) {
        if (kernel_[c]) children.push_back(c);
      }
      if (!children.empty()) TakeIn(to, children);
    }
  }

  void TakeIn(uint32_t to, const std::vector<uint32_t>& children) {
    FindTooLargeDiamonds(to, children);
    std::vector<uint32_t> waiting;
    const auto is_master = [&](uint32_t c) {
      return groups_[c].kind == OpKind::kOutElementwiseFusable;
    };
    for (const uint32_t c : children) {
      if (is_master(c) || !Try(c, to)) waiting.push_back(c);
    }
    for (size_t i = waiting.size(); i-- > 0;) {  // by operands
      if (is_master(waiting[i]) && Try(waiting[i], to)) waiting[i] = Dataflow::kNone;
    }
    for (const uint32_t c : waiting) {
      if (c != Dataflow::kNone && !Try(c, to)) Refused(c, to, Hinders(c, to));
    }
  }

  bool Try(uint32_t c, uint32_t to) {
    if (Hinders(c, to).exists()) return false;
    Group &from = groups_[c], &into = groups_[to];
    into.work += from.work * TimesComputed(c, to);
    root_[c] = to;
    next_[into.last] = c;
    into.last = from.last;
    into.size += from.size;
    into.injective |= from.injective;
    if (into.reduction == Dataflow::kNone) into.reduction = from.reduction;
    if (from.kind > into.kind || (from.kind == into.kind && from.master > into.master)) {
      into.master = from.master;
    }
    into.kind = std::max(into.kind, from.kind);
    return true;
  }

  /// Why the group of `c` can not join that of `to`.
  Obstacle Hinders(uint32_t c, uint32_t to) {
    const OpKind own = own_[to];
    if (!kernel_[to]) {
      const bool is_output = flow_.op(to)->num_results() == 0;
      return {"that op is not computed by a kernel", is_output ? kOutput : kNoKernel};
    }
    if (own == OpKind::kOpaque) return {"that op is opaque", kNoKernel};
    if (groups_[c].kind == OpKind::kOpaque) return {"it is opaque", kNoKernel};
    if (const auto stop = flow_.op(c)->attribute(kFuseStop).dyn_cast<BoolAttribute>()) {
      if (stop.value()) return {"it is marked fuse_stop", kMarked};
    }
    for (const Dataflow::Use& use : flow_.uses(c)) {
      if (use.operand == Dataflow::kNone) return {"a region reads it", kUsers};
      if (NeedsWhole(flow_.op(use.user), use.operand))
        return {"sizes or axes are computed by it", kUsers};
      if (Find(use.user) != to) return {"it is read outside the group as well", kUsers};
      if (const Obstacle o = HindersBefore(c, use); o.exists()) return o;
    }
    if (const Obstacle o = KindsHinder(c, to, own); o.exists()) return o;
    if (groups_[c].size + groups_[to].size > options_.max_ops)
      return {"the group would be too large", kLimit};
    if (too_large_[c]) return {"the diamond that it is part of would be too large", kLimit};
    return PriceHinders(c, to);
  }

  /// Whether an op that packs or copies what it reads can compute it then.
  Obstacle HindersBefore(uint32_t c, const Dataflow::Use& use) const {
    if (own_[use.user] != OpKind::kOutElementwiseFusable) return {};
    if (fusion::TimesComputed(flow_.op(use.user), use.operand) == 0)
      return {"that op reads its operands as a whole"};
    if (groups_[c].kind > OpKind::kBroadcast)
      return {"only elementwise ops are computed where that op reads its operand"};
    return {};
  }

  /// How often each element of `c` is computed once it has joined `to`.
  double TimesComputed(uint32_t c, uint32_t to) const {
    double times = 0;
    for (const Dataflow::Use& use : flow_.uses(c)) {
      const Operation* user = flow_.op(use.user);
      if (own_[use.user] == OpKind::kOutElementwiseFusable) {
        times += fusion::TimesComputed(user, use.operand);
      } else if (groups_[c].kind == OpKind::kReduction || groups_[to].kind == OpKind::kReduction) {
        times = std::max(times, 1.0);  // what is the same for a row is computed once a row
      } else {
        const double repeated = fusion::TimesRepeated(flow_.op(c)->result(0), user->result(0));
        times = std::max(times, repeated);
      }
    }
    return times;
  }

  /// A value that is not written and read again, and a kernel less, against computing it again.
  Obstacle PriceHinders(uint32_t c, uint32_t to) const {
    const double work = groups_[c].work, times = TimesComputed(c, to);
    const double moved = 2 * fusion::BytesOf(flow_.op(c)->result(0));
    const double apart = fusion::kCallNs + fusion::PassNs(moved) + work, together = work * times;
    if (together <= apart) return {};
    return {"it would be computed again and again, which costs more than writing it", kPrice, apart,
            together};
  }

  Obstacle KindsHinder(uint32_t c, uint32_t to, OpKind own) const {
    const Group &from = groups_[c], &into = groups_[to];
    switch (from.kind) {
      case OpKind::kInjective:
        if (into.kind != OpKind::kOutElementwiseFusable) return {};
        return {"there is a convolution or product in the group"};
      case OpKind::kReduction:
        return ReductionHinders(c, to, own);
      case OpKind::kOutElementwiseFusable:
        if (own == OpKind::kOutElementwiseFusable) return {"that op reads its operands as a whole"};
        if (own > OpKind::kBroadcast)
          return {"only elementwise ops follow such an op in registers"};
        if (into.kind == OpKind::kOutElementwiseFusable)
          return {"there is another such op in the group"};
        if (into.kind > OpKind::kBroadcast)
          return {"an injective op or a reduction is in the group"};
        if (shapes_.Same(flow_.op(c)->result(0), flow_.op(to)->result(0))) return {};
        return {"the shape of the result is another one, or not known to be the same", kShape};
      default:
        return {};
    }
  }

  Obstacle ReductionHinders(uint32_t c, uint32_t to, OpKind own) const {
    const Group &from = groups_[c], &into = groups_[to];
    if (own == OpKind::kInjective) return {"that op moves the elements of the reduction's rows"};
    if (into.kind == OpKind::kOutElementwiseFusable)
      return {"a convolution or product is in the group"};
    if (into.injective) return {"an injective op may move the elements of the reduction's rows"};
    if (into.reduction != Dataflow::kNone && !SameRows(from.reduction, into.reduction)) {
      return {"the reductions are not known to have the same rows", kShape};
    }
    if (own == OpKind::kReduction) return {};
    const Value result = flow_.op(to)->result(0);
    const Rows rows = RowsOf(from.reduction);
    if (shapes_.Same(result, rows.reduced)) return {};
    if (rows.kept && shapes_.Same(result, rows.full)) return {};
    return {"the shape of the result does not fit the reduction's rows", kShape};
  }

  struct Rows {
    Value full, reduced;
    bool kept;  ///< the reduced axes stay, with extent 1
  };
  Rows RowsOf(uint32_t i) const {
    const Operation* op = flow_.op(i);
    const Value full = op->operand(0), reduced = op->result(0);
    return {full, reduced, RankOf(full) == RankOf(reduced) && RankOf(full) != ~size_t{0}};
  }

  bool SameRows(uint32_t a, uint32_t b) const {
    if (a == b) return true;
    const Rows x = RowsOf(a), y = RowsOf(b);
    if (!x.kept || !y.kept || shapes_.Same(x.full, x.reduced)) return false;
    return shapes_.Same(x.full, y.full) && shapes_.Same(x.reduced, y.reduced);
  }

  // ---- diamonds that do not fit ----

  /// Children of `to` that read a common value outside close a diamond. If together they are more
  /// than a group may hold, none joins: a diamond is never cut.
  void FindTooLargeDiamonds(uint32_t to, const std::vector<uint32_t>& children) {
    uint64_t total = groups_[to].size;
    for (const uint32_t c : children) total += groups_[c].size;
    if (total <= options_.max_ops || children.size() < 2) return;
    std::vector<uint32_t> cluster(children.size());
    std::unordered_map<Value, uint32_t> reader;  // looked up, never iterated
    const auto find = [&](uint32_t i) {
      while (cluster[i] != i) i = cluster[i] = cluster[cluster[i]];
      return i;
    };
    for (uint32_t i = 0; i < children.size(); ++i) {
      cluster[i] = i;
      for (const Value v : ValuesRead(children[i])) {
        const auto [at, added] = reader.emplace(v, i);
        if (!added) cluster[find(i)] = find(at->second);
      }
    }
    std::vector<uint64_t> size(children.size(), 0);
    std::vector<uint32_t> count(children.size(), 0);
    for (uint32_t i = 0; i < children.size(); ++i) {
      size[find(i)] += groups_[children[i]].size;
      ++count[find(i)];
    }
    for (uint32_t i = 0; i < children.size(); ++i) {
      const uint32_t root = find(i);
      if (count[root] > 1 && size[root] + groups_[to].size > options_.max_ops) {
        too_large_[children[i]] = true;
      }
    }
  }

  /// What the group of `c` reads from outside, constants left out.
  std::vector<Value> ValuesRead(uint32_t c) {
    std::vector<Value> values;
    for (uint32_t m = c; m != Dataflow::kNone; m = next_[m]) {
      const Operation* op = flow_.op(m);
      for (size_t i = 0; i < op->num_operands(); ++i) {
        const Value v = op->operand(i);
        if (!v) continue;
        const uint32_t maker = flow_.inputs(m)[i];
        if (maker != Dataflow::kNone && Find(maker) == c) continue;
        if (v.defining_op() == nullptr || !v.defining_op()->HasTrait<ConstantLike>()) {
          values.push_back(v);
        }
      }
    }
    return values;
  }

  // ---- the result ----

  void Refused(uint32_t op, uint32_t into, const Obstacle& o) {
    if (!options_.explain) return;
    const Operation* other = into == Dataflow::kNone ? nullptr : flow_.op(into);
    refusals_.push_back(
        {flow_.op(op), other, o.why, o.obstacle, o.apart_ns * 1e-3, o.together_ns * 1e-3});
  }

  FusionPlan Collect() {
    FusionPlan plan;
    for (const uint32_t id : flow_.program_order()) {
      if (root_[id] == id && kernel_[id]) plan.groups.push_back(Finish(id));
    }
    plan.refusals = std::move(refusals_);
    std::stable_sort(plan.refusals.begin(), plan.refusals.end(),
                     [](const FusionRefusal& a, const FusionRefusal& b) {
                       return a.op != b.op && a.op->IsBefore(b.op);
                     });
    return plan;
  }

  FusionGroup Finish(uint32_t root) const {
    std::vector<uint32_t> members;
    for (uint32_t m = root; m != Dataflow::kNone; m = next_[m]) members.push_back(m);
    std::sort(members.begin(), members.end());
    FusionGroup result;
    result.kind = groups_[root].kind;
    bool all_same = result.kind == OpKind::kBroadcast;
    for (const uint32_t m : members) {
      if (m == groups_[root].master) result.master = result.ops.size();
      result.ops.push_back(flow_.op(m));
      all_same = all_same && IsElementwiseHere(flow_.op(m));
    }
    if (all_same) result.kind = OpKind::kElementwise;
    return result;
  }

  /// Every operand is a scalar or has the shape of the result: one loop over all elements will do.
  bool IsElementwiseHere(const Operation* op) const {
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value v = op->operand(i);
      if (v && !IsScalar(v) && !shapes_.Same(v, op->result(0))) return false;
    }
    return true;
  }

  FusionOptions options_;
  Dataflow flow_;
  SameShapes shapes_;
  std::vector<Group> groups_;
  std::vector<OpKind> own_;  ///< of the op by itself
  std::vector<bool> kernel_;
  std::vector<uint32_t> root_, next_;
  std::vector<bool> too_large_;  ///< parts of diamonds that do not fit
  std::vector<FusionRefusal> refusals_;
};

}  // namespace

bool IsKernelOp(const Operation* op) {
  if (!op->HasTrait<HasValueSemantics>() || op->HasTrait<ConstantLike>() ||
      op->HasTrait<SideEffect>() || op->HasTrait<Terminator>() || op->num_regions() > 0 ||
      op->use_empty()) {
    return false;
  }
  return !AnyValue(op, [](Value v) { return !IsTensorValue(v); });
}

std::string_view Name(FusionObstacle obstacle) {
  switch (obstacle) {
    case kNoKernel:
      return "no kernel";
    case kOutput:
      return "output";
    case kMarked:
      return "marked";
    case kKinds:
      return "kinds";
    case kShape:
      return "shape";
    case kUsers:
      return "users";
    case kConvexity:
      return "convexity";
    case kLimit:
      return "limit";
    case kPrice:
      return "price";
  }
  return "";
}

std::string FusionRefusal::ToString() const {
  if (apart_us < 0) return why;
  char figures[64];
  snprintf(figures, sizeof(figures), " (%.1f us apart, %.1f us together)", apart_us, together_us);
  return StrCat(why, figures);
}

FusionPlan PlanFusion(Block* block, const FusionOptions& options) {
  return Planner(block, options).Run();
}

}  // namespace lathe
