#include <algorithm>
#include <cstdio>
#include <unordered_map>

#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "lathe/lower/fusion.h"
#include "lathe/support/text.h"
#include "src/lower/fusion_draft.h"
#include "src/lower/fusion_price.h"

namespace lathe {

namespace {

using enum FusionObstacle;

class Planner {
 public:
  explicit Planner(FusionDraft& draft)
      : draft_(draft),
        flow_(draft.flow()),
        shapes_(draft.shapes()),
        too_large_(draft.size(), false),
        repeated_(draft.size(), 1) {}

  /// Each op takes in the ops that it post-dominates, nearest first; producers come before users,
  /// so these have taken in theirs.
  void FuseAll() {
    const uint32_t n = flow_.size();
    std::vector<uint32_t> first(n, Dataflow::kNone), after(n, Dataflow::kNone);
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t to = flow_.post_dominator(i);
      if (to == Dataflow::kNone) {
        if (draft_.is_kernel(i))
          Refused(i, Dataflow::kNone, {"its uses do not meet in one op", kUsers});
        continue;
      }
      after[i] = first[to];  // so that the highest comes first
      first[to] = i;
    }
    std::vector<uint32_t> children;
    for (uint32_t to = 0; to < n; ++to) {
      children.clear();
      for (uint32_t c = first[to]; c != Dataflow::kNone; c = after[c]) {
        if (draft_.is_kernel(c)) children.push_back(c);
      }
      if (!children.empty()) TakeIn(to, children);
    }
  }

 private:
  void TakeIn(uint32_t to, const std::vector<uint32_t>& children) {
    FindTooLargeDiamonds(to, children);
    std::vector<uint32_t> waiting;
    const auto is_anchor = [&](uint32_t c) {
      return draft_.group(c).kind == OpKind::kOutElementwiseFusable;
    };
    for (const uint32_t c : children) {
      if (is_anchor(c) || !Try(c, to)) waiting.push_back(c);
    }
    for (size_t i = waiting.size(); i-- > 0;) {  // by operands
      if (is_anchor(waiting[i]) && Try(waiting[i], to)) waiting[i] = Dataflow::kNone;
    }
    for (const uint32_t c : waiting) {
      if (c != Dataflow::kNone && !Try(c, to)) Refused(c, to, Hinders(c, to));
    }
  }

  bool Try(uint32_t c, uint32_t to) {
    if (Hinders(c, to).exists()) return false;
    const double times = TimesComputed(c, to);
    draft_.Join(c, to, draft_.group(c).work * times);
    repeated_[c] = times;
    return true;
  }

  /// Why the group of `c` cannot join that of `to`.
  Obstacle Hinders(uint32_t c, uint32_t to) {
    const OpKind own = draft_.own_kind(to);
    if (!draft_.is_kernel(to)) {
      const bool is_output = flow_.op(to)->num_results() == 0;
      return {"that op is not computed by a kernel", is_output ? kOutput : kNoKernel};
    }
    if (own == OpKind::kOpaque) return {"that op is opaque", kNoKernel};
    if (draft_.group(c).kind == OpKind::kOpaque) return {"it is opaque", kNoKernel};
    if (const auto stop = flow_.op(c)->attribute(kFuseStop).dyn_cast<BoolAttribute>()) {
      if (stop.value()) return {"it is marked fuse_stop", kMarked};
    }
    if (draft_.recomputed_at(to) != 0 && draft_.recomputed_at(c) != draft_.recomputed_at(to)) {
      return {"that op is computed again later", kMarked};
    }
    for (const Dataflow::Use& use : flow_.uses(c)) {
      if (use.operand == Dataflow::kNone) return {"a region reads it", kUsers};
      if (NeedsWhole(flow_.op(use.user), use.operand))
        return {"sizes or axes are computed by it", kUsers};
      if (draft_.Find(use.user) != to) return {"it is read outside the group as well", kUsers};
      if (const Obstacle o = HindersBefore(c, use); o.exists()) return o;
    }
    if (const Obstacle o = KindsHinder(c, to, own); o.exists()) return o;
    if (draft_.group(c).size + draft_.group(to).size > draft_.options().max_ops)
      return {"the group would be too large", kLimit};
    if (too_large_[c]) return {"the diamond that it is part of would be too large", kLimit};
    return PriceHinders(c, to);
  }

  /// Whether an op that packs or copies what it reads can compute it then.
  Obstacle HindersBefore(uint32_t c, const Dataflow::Use& use) const {
    if (draft_.own_kind(use.user) != OpKind::kOutElementwiseFusable) return {};
    if (fusion::TimesComputed(flow_.op(use.user), use.operand) == 0)
      return {"that op reads its operands as a whole"};
    if (draft_.group(c).kind == OpKind::kOutElementwiseFusable)
      return {"there is another such op in the group"};
    if (IsReadTurned(c, use)) return {};
    if (draft_.group(c).kind > OpKind::kBroadcast)
      return {"only elementwise ops are computed where that op reads its operand"};
    return {};
  }

  /// A product reads a transposed matrix as it lies, as long as one of its own axes comes last.
  bool IsReadTurned(uint32_t c, const Dataflow::Use& use) const {
    const Operation* op = flow_.op(c);
    if (!op->isa<nn::TransposeOp>() || draft_.group(c).size > 1) return false;
    const auto type = op->result(0).type().dyn_cast<AnyTensorType>();
    if (!flow_.op(use.user)->isa<nn::MatmulOp>() || !type || !type.has_rank()) return false;
    const auto perm = nn::TransposeOp(op).perm();
    const size_t rank = type.rank();
    if (!perm || rank < 2) return rank >= 2;
    const auto last = static_cast<int64_t>(rank) - 1;
    return (*perm)[rank - 1] == last || (*perm)[rank - 2] == last;
  }

  /// Whether nothing but products and convolutions reads it.
  bool IsBefore(uint32_t c) const {
    return std::ranges::all_of(flow_.uses(c), [&](const Dataflow::Use& use) {
      return draft_.own_kind(use.user) == OpKind::kOutElementwiseFusable;
    });
  }

  /// How often each element of `c` is computed once it has joined `to`.
  double TimesComputed(uint32_t c, uint32_t to) const {
    double times = 0;
    for (const Dataflow::Use& use : flow_.uses(c)) {
      const Operation* user = flow_.op(use.user);
      if (draft_.own_kind(use.user) == OpKind::kOutElementwiseFusable) {
        times += fusion::TimesComputed(user, use.operand);
      } else if (draft_.group(c).kind == OpKind::kReduction ||
                 draft_.group(to).kind == OpKind::kReduction) {
        times = std::max(times, 1.0);  // what is the same for a row is computed once a row
      } else {
        const double repeated = fusion::TimesRepeated(flow_.op(c)->result(0), user->result(0));
        times = std::max(times, repeated * repeated_[use.user]);
      }
    }
    return times;
  }

  /// A value that is not written and read again, and a kernel less, against computing it again.
  Obstacle PriceHinders(uint32_t c, uint32_t to) const {
    const double work = draft_.group(c).work, times = TimesComputed(c, to);
    const double moved = 2 * fusion::BytesOf(flow_.op(c)->result(0));
    const double apart = fusion::kCallNs + fusion::PassNs(moved) + work, together = work * times;
    if (together <= apart) return {};
    return {"it would be computed again and again, which costs more than writing it", kPrice, apart,
            together};
  }

  Obstacle KindsHinder(uint32_t c, uint32_t to, OpKind own) const {
    const FusionDraft::Group &from = draft_.group(c), &into = draft_.group(to);
    switch (from.kind) {
      case OpKind::kInjective:
        if (into.kind != OpKind::kOutElementwiseFusable || IsBefore(c)) return {};
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
    const FusionDraft::Group &from = draft_.group(c), &into = draft_.group(to);
    if (own == OpKind::kInjective) return {"that op moves the elements of the reduction's rows"};
    if (into.kind == OpKind::kOutElementwiseFusable)
      return {"a convolution or product is in the group"};
    if (into.injective) return {"an injective op may move the elements of the reduction's rows"};
    if (into.reduction != Dataflow::kNone && !draft_.SameRows(from.reduction, into.reduction)) {
      return {"the reductions are not known to have the same rows", kShape};
    }
    if (own == OpKind::kReduction) return {};
    const Value result = flow_.op(to)->result(0);
    const FusionDraft::Rows rows = draft_.RowsOf(from.reduction);
    if (shapes_.Same(result, rows.reduced)) return {};
    if (rows.kept && shapes_.Same(result, rows.full)) return {};
    return {"the shape of the result does not fit the reduction's rows", kShape};
  }

  // ---- diamonds that do not fit ----

  /// Children of `to` that read a common value outside close a diamond. If together they are more
  /// than a group may hold, none joins: a diamond is never cut.
  void FindTooLargeDiamonds(uint32_t to, const std::vector<uint32_t>& children) {
    uint64_t total = draft_.group(to).size;
    for (const uint32_t c : children) total += draft_.group(c).size;
    if (total <= draft_.options().max_ops || children.size() < 2) return;
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
      size[find(i)] += draft_.group(children[i]).size;
      ++count[find(i)];
    }
    for (uint32_t i = 0; i < children.size(); ++i) {
      const uint32_t root = find(i);
      if (count[root] > 1 && size[root] + draft_.group(to).size > draft_.options().max_ops) {
        too_large_[children[i]] = true;
      }
    }
  }

  /// What the group of `c` reads from outside, constants left out.
  std::vector<Value> ValuesRead(uint32_t c) {
    std::vector<Value> values;
    for (uint32_t m = c; m != Dataflow::kNone; m = draft_.next(m)) {
      const Operation* op = flow_.op(m);
      for (size_t i = 0; i < op->num_operands(); ++i) {
        const Value v = op->operand(i);
        if (!v) continue;
        const uint32_t maker = flow_.inputs(m)[i];
        if (maker != Dataflow::kNone && draft_.Find(maker) == c) continue;
        if (v.defining_op() == nullptr || !v.defining_op()->HasTrait<ConstantLike>()) {
          values.push_back(v);
        }
      }
    }
    return values;
  }

  void Refused(uint32_t op, uint32_t into, const Obstacle& o) { draft_.Refused(op, into, o); }

  FusionDraft& draft_;
  const Dataflow& flow_;
  const SameShapes& shapes_;
  std::vector<bool> too_large_;   ///< parts of diamonds that do not fit
  std::vector<double> repeated_;  ///< how often each element of an op is computed in its group
};

}  // namespace

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
  FusionDraft draft(block, options);
  if (options.fuse) {
    Planner(draft).FuseAll();
    MergeGroups(draft);
  }
  return draft.Collect();
}

}  // namespace lathe
