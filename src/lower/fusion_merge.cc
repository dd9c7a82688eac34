#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "src/lower/element_layout.h"
#include "src/lower/fusion_draft.h"
#include "src/lower/fusion_price.h"

namespace lathe {

namespace {

using enum FusionObstacle;
using Group = FusionDraft::Group;

constexpr uint32_t kMostSteps = 256;  // of a search for a path that comes back
constexpr size_t kMostReaders = 16;   // of a value that are looked at

bool IsKnown(Value v) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  return type && type.has_rank() &&
         std::ranges::none_of(type.dims(), [](const Dim& d) { return d.is_unknown(); });
}

bool TouchesMutable(const Operation* op) {
  const auto is_mutable = [](Value v) { return v && v.type().isa<TensorType>(); };
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (is_mutable(op->operand(i))) return true;
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (is_mutable(op->result(i))) return true;
  }
  return false;
}

/// Two groups that could share a kernel.
struct Edge {
  uint32_t from, to;  ///< ops: the one that gives a value, and one that reads it; or two readers
  bool siblings;
  double saved_ns;
};

class Merger {
 public:
  explicit Merger(FusionDraft& draft) : draft_(draft), flow_(draft.flow()) {}

  void Run() {
    JoinLayouts();
    if (!MayReorder()) return;
    FindProducers();
    MergeAll();
    FindSiblings();
    MergeAll();
  }

 private:
  /// Operations between those of a group move behind it; so there must be none whose place matters,
  /// but for inputs and outputs, which keep their order among themselves.
  bool MayReorder() const {
    for (uint32_t i = 0; i < draft_.size(); ++i) {
      const Operation* op = flow_.op(i);
      const bool keeps_place = op->num_regions() > 0 || op->HasTrait<lathe::Random>();
      const bool is_pure = op->HasTrait<HasValueSemantics>() || op->HasTrait<ConstantLike>();
      const bool is_end = op->num_results() == 0 || op->num_operands() == 0;
      if (keeps_place || (!is_pure && !is_end) || TouchesMutable(op)) return false;
    }
    return true;
  }

  // ---- candidates; their order follows from the numbers of ops, which follow from the content
  // ----

  /// A group and each that reads its last op, where there are several.
  void FindProducers() {
    for (uint32_t p = 0; p < draft_.size(); ++p) {
      if (draft_.Find(p) != p || !draft_.is_kernel(p) || flow_.op(p)->num_results() != 1) continue;
      if (!HasOthers(p)) continue;
      std::vector<uint32_t> seen, reads;
      for (const Dataflow::Use& use : flow_.uses(p)) {
        const uint32_t c = draft_.Find(use.user);
        if (std::ranges::find(seen, c) != seen.end()) continue;
        seen.push_back(c);
        if (draft_.is_kernel(c)) reads.push_back(use.user);
        if (seen.size() == kMostReaders) break;
      }
      AddProducer(p, reads);
    }
  }

  /// A diamond is not cut: all who read the value could join, or none does.
  void AddProducer(uint32_t p, const std::vector<uint32_t>& reads) {
    const double saved = fusion::kCallNs + fusion::PassNs(fusion::BytesOf(Result(p)));
    uint64_t size = draft_.group(p).size;
    for (const uint32_t read : reads) size += draft_.group(draft_.Find(read)).size;
    if (!reads.empty()) draft_.ForgetUsers(p);
    for (const uint32_t read : reads) {
      if (size > draft_.options().max_ops) {
        draft_.Refused(p, read, {"the group would be too large", kLimit}, true);
      } else {
        edges_.push_back({p, read, false, saved});
      }
    }
  }

  /// Whether several groups read it.
  bool HasOthers(uint32_t p) {
    const auto uses = flow_.uses(p);
    return std::ranges::any_of(
        uses, [&](const auto& u) { return draft_.Find(u.user) != draft_.Find(uses[0].user); });
  }

  /// Neighbors among the elementwise groups that read a value of their own shape.
  void FindSiblings() {
    std::unordered_map<Value, uint32_t> last;  // reader; looked up, never iterated
    for (uint32_t i = 0; i < draft_.size(); ++i) {
      const Operation* op = flow_.op(i);
      if (!draft_.is_kernel(i) || draft_.group(draft_.Find(i)).kind > OpKind::kBroadcast) continue;
      for (size_t k = 0; k < op->num_operands(); ++k) {
        const Value v = op->operand(k);
        if (!v || NeedsWhole(op, k) || IsScalar(v)) continue;
        const auto [at, added] = last.emplace(v, i);
        if (added) continue;
        const uint32_t before = std::exchange(at->second, i);
        if (draft_.Find(before) == draft_.Find(i)) continue;
        const double saved = fusion::kCallNs + fusion::PassNs(fusion::BytesOf(v));
        edges_.push_back({before, i, true, saved});
      }
    }
  }

  // ---- where results are stored ----

  /// What a convolution or product gives may be moved where it is stored, if whole rows move.
  void JoinLayouts() {
    for (uint32_t root = 0; root < draft_.size(); ++root) {
      if (draft_.Find(root) != root || draft_.group(root).kind != OpKind::kInjective) continue;
      const std::vector<uint32_t> chain = LayoutChain(root);
      if (chain.empty()) continue;
      const uint32_t p = flow_.inputs(chain[0])[0];
      if (p == Dataflow::kNone || IsMarked(p)) continue;
      const uint32_t from = draft_.Find(p);
      const Group& group = draft_.group(from);
      if (group.kind != OpKind::kOutElementwiseFusable || group.injective) continue;
      if (group.size + chain.size() > draft_.options().max_ops) continue;
      const bool others = from != p || flow_.uses(p).size() > 1;
      if (!others && RowsStay(flow_.op(group.anchor), p, chain)) {
        draft_.Join(from, root, group.work);
      }
    }
  }

  /// The members of a group that is nothing but a transposition, with reshapes around it.
  std::vector<uint32_t> LayoutChain(uint32_t root) {
    std::vector<uint32_t> chain;
    for (uint32_t m = root; m != Dataflow::kNone; m = draft_.next(m)) chain.push_back(m);
    std::ranges::sort(chain);
    bool moves = false;
    for (size_t i = 0; i < chain.size(); ++i) {
      const Operation* op = flow_.op(chain[i]);
      if (!lower::IsLayout(*op) || (i > 0 && flow_.inputs(chain[i])[0] != chain[i - 1])) return {};
      moves |= !lower::IsReshape(*op);
    }
    return moves ? chain : std::vector<uint32_t>();
  }

  bool RowsStay(const Operation* anchor, uint32_t p, const std::vector<uint32_t>& chain) const {
    const auto type = Result(p).type().dyn_cast<AnyTensorType>();
    if (!type || !type.is_static() || type.rank() == 0) return false;
    const bool is_conv = anchor->isa<nn::ConvOp>();
    if (!is_conv && !anchor->isa<nn::MatmulOp>() && !anchor->isa<nn::GemmOp>()) return false;
    std::vector<int64_t> extents;
    std::vector<size_t> each, merged;  // loops: one an axis, and one for all positions
    for (size_t a = 0; a < type.rank(); ++a) {
      extents.push_back(type.dims()[a].value());
      each.push_back(a);
      merged.push_back(is_conv ? std::min<size_t>(a, 2) : a);
    }
    return EndsInLast(extents, each, chain) && EndsInLast(extents, merged, chain);
  }

  bool EndsInLast(const std::vector<int64_t>& extents, const std::vector<size_t>& loops,
                  const std::vector<uint32_t>& chain) const {
    lower::ElementLayout layout(extents, loops);
    for (const uint32_t op : chain) {
      if (!layout.Apply(*flow_.op(op))) return false;
    }
    int64_t extent = 1;
    for (size_t a = 0; a < loops.size(); ++a) extent *= loops[a] == loops.back() ? extents[a] : 1;
    const auto parts = layout.Parts();
    const lower::ElementLayout::Part last{loops.back(), extent, 1};
    return !parts.empty() && parts.back() == last;
  }

  void MergeAll() {
    std::ranges::stable_sort(edges_, std::greater<>(), &Edge::saved_ns);
    for (const Edge& e : edges_) Merge(e);
    edges_.clear();
  }

  // ---- one candidate ----

  void Merge(const Edge& e) {
    const uint32_t a = draft_.Find(e.from), b = draft_.Find(e.to);
    if (a == b) return;
    const Obstacle o = Hinders(e, a, b);
    if (!o.exists()) return Join(std::min(a, b), std::max(a, b));
    if (!e.siblings) draft_.Refused(e.from, e.to, o, true);
  }

  void Join(uint32_t a, uint32_t b) {
    const size_t streams = StreamsOf(a) + StreamsOf(b) - 1;  // at most: one is shared
    draft_.Join(a, b, draft_.group(a).work);
    draft_.group(b).streams = streams;
    Cover(draft_.group(b).first, b);
  }

  /// Numbers rise along values, but not along groups of which several ops are read. Spans of these
  /// that overlap are one.
  void Cover(uint32_t first, uint32_t last) {
    auto at = spans_.upper_bound(first);
    if (at != spans_.begin() && std::prev(at)->second >= first) --at;
    while (at != spans_.end() && at->first <= last) {
      first = std::min(first, at->first);
      last = std::max(last, at->second);
      at = spans_.erase(at);
    }
    spans_.emplace(first, last);
  }

  /// A number that nothing before the group of root `root` exceeds.
  uint32_t EndOf(uint32_t root) const {
    const auto behind = spans_.upper_bound(root);
    return behind == spans_.begin() ? root : std::max(root, std::prev(behind)->second);
  }

  Obstacle Hinders(const Edge& e, uint32_t a, uint32_t b) {
    const Group &from = draft_.group(a), &to = draft_.group(b);
    if (from.kind == OpKind::kOpaque) return {"it is opaque", kNoKernel};
    if (to.kind == OpKind::kOpaque) return {"that op is opaque", kNoKernel};
    if (IsMarked(e.from)) return {"it is marked fuse_stop", kMarked};
    const int64_t first = draft_.recomputed_at(e.from), second = draft_.recomputed_at(e.to);
    if (first != second && (e.siblings || second != 0)) {
      return {"one of them is computed again later", kMarked};
    }
    if (const Obstacle o = e.siblings ? SiblingsHinder(a, b) : KindsHinder(e, a, b); o.exists()) {
      return o;
    }
    if (from.size + to.size > draft_.options().max_ops) {
      return {"the group would be too large", kLimit};
    }
    if (const Obstacle o = PriceHinders(e, a, b); o.exists()) return o;
    if (Reaches(a, b) || Reaches(b, a)) {
      return {"a path would leave the group and come back", kConvexity};
    }
    return {};
  }

  bool IsMarked(uint32_t op) const {
    const auto stop = flow_.op(op)->attribute(kFuseStop).dyn_cast<BoolAttribute>();
    return stop && stop.value();
  }

  Value Result(uint32_t op) const { return flow_.op(op)->result(0); }

  Obstacle SiblingsHinder(uint32_t a, uint32_t b) const {
    if (draft_.group(a).kind > OpKind::kBroadcast || draft_.group(b).kind > OpKind::kBroadcast) {
      return {"only elementwise groups that read the same are joined"};
    }
    return ShapesHinder(a, b);
  }

  Obstacle ShapesHinder(uint32_t a, uint32_t b) const {
    if (IsKnown(Result(a)) && draft_.shapes().Same(Result(a), Result(b))) return {};
    return {"the shape of the result is another one, or not known to be the same", kShape};
  }

  /// Where a kernel that writes what `e.from` gives may go on to compute the group of `e.to`.
  Obstacle KindsHinder(const Edge& e, uint32_t a, uint32_t b) const {
    const Group &from = draft_.group(a), &to = draft_.group(b);
    for (const Dataflow::Use& use : flow_.uses(e.from)) {
      if (use.operand == Dataflow::kNone) return {"a region reads it", kUsers};
      if (NeedsWhole(flow_.op(use.user), use.operand))
        return {"sizes or axes are computed by it", kUsers};
    }
    if (from.injective || to.injective)
      return {"others read it as well, and an injective op is in a group"};
    if (to.kind == OpKind::kOutElementwiseFusable)
      return {"others read it as well, and a product or convolution does not write what it reads"};
    if (to.kind == OpKind::kReduction) return BeforeReduction(e, from, to);
    return ShapesHinder(e.from, b);
  }

  Obstacle BeforeReduction(const Edge& e, const Group& from, const Group& to) const {
    if (from.kind == OpKind::kOutElementwiseFusable)
      return {"only elementwise ops follow such an op in registers"};
    if (from.kind == OpKind::kReduction && !draft_.SameRows(from.reduction, to.reduction)) {
      return {"the reductions are not known to have the same rows", kShape};
    }
    const FusionDraft::Rows rows = draft_.RowsOf(to.reduction);
    if (IsKnown(rows.full) && draft_.shapes().Same(Result(e.from), rows.full)) return {};
    return {"the shape of the result does not fit the reduction's rows", kShape};
  }

  /// Loops that walk many tensors side by side lose more than they save.
  Obstacle PriceHinders(const Edge& e, uint32_t a, uint32_t b) {
    const size_t streams = StreamsOf(a) + StreamsOf(b) - 1;
    if (streams <= fusion::kStreams) return {};
    const double bytes = fusion::BytesOf(Result(b));
    const double together = fusion::PassNs(bytes) * static_cast<double>(streams - fusion::kStreams);
    if (together <= e.saved_ns) return {};
    return {"one loop would walk many tensors side by side", kPrice, e.saved_ns, together};
  }

  size_t StreamsOf(uint32_t root) {
    size_t& streams = draft_.group(root).streams;
    if (streams == 0) streams = CountStreams(root);
    return streams;
  }

  /// Tensors that the group reads or writes.
  size_t CountStreams(uint32_t root) {
    std::unordered_map<Value, bool> read;  // looked up, never iterated
    size_t written = 0;
    for (uint32_t m = root; m != Dataflow::kNone; m = draft_.next(m)) {
      const Operation* op = flow_.op(m);
      const auto inputs = flow_.inputs(m);
      for (size_t i = 0; i < op->num_operands(); ++i) {
        if (!op->operand(i) || IsScalar(op->operand(i))) continue;
        const bool inside = inputs[i] != Dataflow::kNone && draft_.Find(inputs[i]) == root;
        if (!inside) read.emplace(op->operand(i), true);
      }
      const auto uses = flow_.uses(m);
      const auto outside = [&](const auto& use) { return draft_.Find(use.user) != root; };
      if (std::ranges::any_of(uses, outside)) ++written;
    }
    return read.size() + written;
  }

  /// Whether a path leads from a group over others to another one; yes where that takes long to
  /// find out. Groups behind all that comes before `to` need no look.
  bool Reaches(uint32_t from, uint32_t to) {
    const uint32_t end = EndOf(to);
    std::vector<uint32_t> open{from};
    std::unordered_map<uint32_t, bool> seen;  // looked up, never iterated
    uint32_t steps = 0;
    while (!open.empty()) {
      const uint32_t at = open.back();
      open.pop_back();
      for (uint32_t m = at; m != Dataflow::kNone; m = draft_.next(m)) {
        for (const Dataflow::Use& use : flow_.uses(m)) {
          const uint32_t next = draft_.Find(use.user);
          if (++steps > kMostSteps) return true;
          if (next == at || (at == from && next == to)) continue;
          if (next == to) return true;
          if (draft_.group(next).first < end && seen.emplace(next, true).second) {
            open.push_back(next);
          }
        }
      }
    }
    return false;
  }

  FusionDraft& draft_;
  const Dataflow& flow_;
  std::vector<Edge> edges_;
  std::map<uint32_t, uint32_t> spans_;  // from the first number to the last
};

}  // namespace

void MergeGroups(FusionDraft& draft) { Merger(draft).Run(); }

}  // namespace lathe
