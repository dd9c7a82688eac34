#include "src/lower/fusion_draft.h"

#include <algorithm>
#include <unordered_map>

#include "lathe/dialect/recomputed.h"
#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "src/lower/fusion_price.h"

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

}  // namespace

bool IsKernelOp(const Operation* op) {
  if (!op->HasTrait<HasValueSemantics>() || op->HasTrait<ConstantLike>() ||
      op->HasTrait<SideEffect>() || op->HasTrait<Terminator>() || op->num_regions() > 0 ||
      op->use_empty()) {
    return false;
  }
  return !AnyValue(op, [](Value v) { return !IsTensorValue(v); });
}

bool FusionGroup::HasSeveralResults() const {
  std::unordered_map<const Operation*, bool> members;  // looked up, never iterated
  for (const Operation* op : ops) members.emplace(op, true);
  for (const Operation* op : ops) {
    if (op == root()) continue;
    for (size_t r = 0; r < op->num_results(); ++r) {
      for (const OpOperand use : op->result(r).uses()) {
        if (!members.contains(use.owner())) return true;
      }
    }
  }
  return false;
}

FusionDraft::FusionDraft(Block* block, const FusionOptions& options)
    : options_(options), flow_(block), shapes_(flow_) {
  const uint32_t n = flow_.size();
  groups_.resize(n);
  next_.assign(n, Dataflow::kNone);
  forgotten_.assign(n, false);
  for (uint32_t i = 0; i < n; ++i) {
    const Operation* op = flow_.op(i);
    kernel_.push_back(IsKernelOp(op));
    own_.push_back(kernel_[i] && !AnyValue(op, IsString) ? KindOf(op) : OpKind::kOpaque);
    recomputed_at_.push_back(RecomputedAt(op));
    root_.push_back(i);
    Group& g = groups_[i];
    g.anchor = g.first = g.last = i;
    g.kind = own_[i];
    g.injective = g.kind == OpKind::kInjective;
    if (g.kind == OpKind::kReduction) g.reduction = i;
    if (g.kind <= OpKind::kInjective) g.work = fusion::ArithmeticNs(op);
  }
}

uint32_t FusionDraft::Find(uint32_t op) {
  while (root_[op] != op) op = root_[op] = root_[root_[op]];
  return op;
}

void FusionDraft::Join(uint32_t from, uint32_t into, double work) {
  Group &a = groups_[from], &b = groups_[into];
  root_[from] = into;
  next_[b.last] = from;
  b.last = a.last;
  b.first = std::min(a.first, b.first);
  b.size += a.size;
  b.injective |= a.injective;
  b.work += work;
  if (b.reduction == Dataflow::kNone) b.reduction = a.reduction;
  if (a.kind > b.kind || (a.kind == b.kind && a.anchor > b.anchor)) b.anchor = a.anchor;
  b.kind = std::max(b.kind, a.kind);
}

FusionDraft::Rows FusionDraft::RowsOf(uint32_t i) const {
  const Operation* op = flow_.op(i);
  const Value full = op->operand(0), reduced = op->result(0);
  return {full, reduced, RankOf(full) == RankOf(reduced) && RankOf(full) != ~size_t{0}};
}

bool FusionDraft::SameRows(uint32_t a, uint32_t b) const {
  if (a == b) return true;
  const Rows x = RowsOf(a), y = RowsOf(b);
  if (!x.kept || !y.kept || shapes_.Same(x.full, x.reduced)) return false;
  return shapes_.Same(x.full, y.full) && shapes_.Same(x.reduced, y.reduced);
}

// ---- the result ----

void FusionDraft::Refused(uint32_t op, uint32_t into, const Obstacle& o, bool is_merge) {
  if (options_.explain) refusals_.push_back({op, into, o, is_merge});
}

FusionPlan FusionDraft::Collect() {
  FusionPlan plan;
  for (const uint32_t id : flow_.program_order()) {
    if (root_[id] == id && kernel_[id]) plan.groups.push_back(Finish(id));
  }
  for (const Refusal& r : refusals_) {
    if (r.into != Dataflow::kNone && Find(r.op) == Find(r.into)) continue;  // they met later
    if (forgotten_[r.op] && r.obstacle.obstacle == FusionObstacle::kUsers && !r.is_merge) continue;
    const Operation* into = r.into == Dataflow::kNone ? nullptr : flow_.op(r.into);
    plan.refusals.push_back({flow_.op(r.op), into, r.obstacle.why, r.obstacle.obstacle,
                             r.obstacle.apart_ns * 1e-3, r.obstacle.together_ns * 1e-3});
  }
  std::stable_sort(plan.refusals.begin(), plan.refusals.end(),
                   [](const FusionRefusal& a, const FusionRefusal& b) {
                     return a.op != b.op && a.op->IsBefore(b.op);
                   });
  return plan;
}

FusionGroup FusionDraft::Finish(uint32_t root) const {
  std::vector<uint32_t> members;
  for (uint32_t m = root; m != Dataflow::kNone; m = next_[m]) members.push_back(m);
  std::sort(members.begin(), members.end());
  FusionGroup result;
  result.kind = groups_[root].kind;
  bool all_same = result.kind == OpKind::kBroadcast;
  for (const uint32_t m : members) {
    if (m == groups_[root].anchor) result.anchor = result.ops.size();
    result.ops.push_back(flow_.op(m));
    all_same = all_same && IsElementwiseHere(flow_.op(m));
  }
  if (all_same) result.kind = OpKind::kElementwise;
  return result;
}

// Every operand is a scalar or has the shape of the result: one loop over all elements will do.
bool FusionDraft::IsElementwiseHere(const Operation* op) const {
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const Value v = op->operand(i);
    if (v && !IsScalar(v) && !shapes_.Same(v, op->result(0))) return false;
  }
  return true;
}

}  // namespace lathe
