#include "src/lower/convex_regions.h"

#include <algorithm>
#include <queue>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/ir/context.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"

namespace lathe {

namespace {

bool IsMutable(Value v) { return v && v.type().isa<TensorType>(); }

}  // namespace

ConvexRegions::ConvexRegions(const Program& program, Block* block,
                             const std::function<bool(const Operation*)>& supported)
    : block_(block),
      flow_(block),
      order_(flow_.program_order()),
      position_(flow_.size()),
      supported_(flow_.size()),
      out_(flow_.size()),
      level_(flow_.size(), 0),
      parent_(flow_.size()) {
  uint32_t next = 0;
  for (const uint32_t id : order_) {
    position_[id] = next++;
    parent_[id] = id;
    supported_[id] = supported(flow_.op(id));
  }
  FindEdges(program);
  FindLevels();
  Join();
  Raise();
  Join();
  Collect();
}

void ConvexRegions::FindEdges(const Program& program) {
  for (OpWalker w(program.module()); Operation* op = w.Next();) {
    EffectsContext effects(op);
    if (auto interface = op->dyn_cast<EffectsInterface>()) interface.Effects(effects);
    written_.insert(effects.resource_writes().begin(), effects.resource_writes().end());
    has_random_ |= op->HasTrait<lathe::Random>();
  }
  for (uint32_t id = 0; id < flow_.size(); ++id) {
    for (const Dataflow::Use& use : flow_.uses(id)) {
      out_[id].push_back({id, use.user, use.operand != Dataflow::kNone});
    }
  }
  uint32_t last = Dataflow::kNone;
  for (const uint32_t id : order_) {
    if (!IsOrdered(flow_.op(id))) continue;
    LATHE_CHECK(!supported_[id], flow_.op(id)->Describe(), " has effects");
    if (last != Dataflow::kNone) out_[last].push_back({last, id, false});
    last = id;
  }
}

/// Whether the op must keep its place among its kind.
bool ConvexRegions::IsOrdered(const Operation* op) const {
  if (op->HasTrait<SideEffect>() || op->HasTrait<lathe::Random>() || op->HasTrait<Terminator>()) {
    return true;
  }
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (IsMutable(op->operand(i))) return true;
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (IsMutable(op->result(i))) return true;
  }
  if (op->num_regions() > 0) return !IsRemovableWhenUnused(op);
  // Functions take and give immutable values, and read no inputs.
  if (op->isa<builtin::CallOp>()) return !written_.empty() || has_random_;
  EffectsContext effects(const_cast<Operation*>(op));
  if (auto interface = effects.op()->dyn_cast<EffectsInterface>()) interface.Effects(effects);
  const auto written = [&](const std::string& name) { return written_.count(name) != 0; };
  return !effects.resource_writes().empty() ||
         std::any_of(effects.resource_reads().begin(), effects.resource_reads().end(), written);
}

/// The lowest levels, producers first.
void ConvexRegions::FindLevels() {
  for (const uint32_t id : order_) {
    for (const Edge& e : out_[id]) {
      const uint32_t step = supported_[e.from] != supported_[e.to] ? 1 : 0;
      level_[e.to] = std::max(level_[e.to], level_[id] + step);
    }
  }
}

uint32_t ConvexRegions::Find(uint32_t i) {
  while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
  return i;
}

void ConvexRegions::Join() {
  for (const uint32_t id : order_) {
    for (const Edge& e : out_[id]) {
      if (!e.direct || !supported_[e.from] || !supported_[e.to]) continue;
      if (level_[e.from] == level_[e.to]) parent_[Find(e.from)] = Find(e.to);
    }
  }
}

/// Lifts each region, and each other operation, as high as its users allow, highest first: so that
/// what only a later region reads joins that one.
void ConvexRegions::Raise() {
  const uint32_t top = 2 * flow_.size() + 2;
  std::vector<std::vector<uint32_t>> members(flow_.size());
  std::vector<uint32_t> units;
  for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
    members[Find(*at)].push_back(*at);
  }
  for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
    if (Find(*at) == *at) units.push_back(*at);
  }
  std::stable_sort(units.begin(), units.end(),
                   [&](uint32_t a, uint32_t b) { return level_[a] > level_[b]; });
  for (const uint32_t unit : units) {
    uint32_t highest = top;
    for (const uint32_t id : members[unit]) {
      for (const Edge& e : out_[id]) {
        if (Find(e.to) == unit && supported_[e.to]) continue;
        const uint32_t step = supported_[e.from] != supported_[e.to] ? 1 : 0;
        highest = std::min(highest, level_[e.to] - step);
      }
    }
    for (const uint32_t id : members[unit]) level_[id] = std::max(level_[id], highest);
  }
}

void ConvexRegions::Collect() {
  std::vector<uint32_t> index(flow_.size(), Dataflow::kNone);
  for (uint32_t id = 0; id < flow_.size(); ++id) {
    if (!supported_[id]) continue;
    uint32_t& at = index[Find(id)];
    if (at == Dataflow::kNone) {
      at = static_cast<uint32_t>(regions_.size());
      regions_.emplace_back();
    }
    regions_[at].push_back(flow_.op(id));
  }
}

void ConvexRegions::MakeContiguous() {
  // Units in the order of their last operations, each once what it waits for has come.
  std::vector<uint32_t> waits(flow_.size(), 0), last(flow_.size(), 0);
  const auto unit = [&](uint32_t id) { return supported_[id] ? Find(id) : id; };
  std::vector<std::vector<uint32_t>> members(flow_.size());
  for (uint32_t id = 0; id < flow_.size(); ++id) {
    members[unit(id)].push_back(id);
    last[unit(id)] = std::max(last[unit(id)], position_[id]);
    for (const Edge& e : out_[id]) {
      if (unit(e.from) != unit(e.to)) ++waits[unit(e.to)];
    }
  }
  std::priority_queue<std::pair<uint32_t, uint32_t>, std::vector<std::pair<uint32_t, uint32_t>>,
                      std::greater<>>
      ready;
  for (uint32_t id = 0; id < flow_.size(); ++id) {
    if (unit(id) == id && waits[id] == 0) ready.emplace(last[id], id);
  }
  size_t placed = 0;
  while (!ready.empty()) {
    const uint32_t next = ready.top().second;
    ready.pop();
    for (const uint32_t id : members[next]) {
      flow_.op(id)->MoveToEnd(block_);
      ++placed;
      for (const Edge& e : out_[id]) {
        const uint32_t to = unit(e.to);
        if (to != next && --waits[to] == 0) ready.emplace(last[to], to);
      }
    }
  }
  LATHE_CHECK(placed == flow_.size(), "the regions form a cycle");
}

std::vector<std::vector<Operation*>> FindRegions(
    const Program& program, Block* block, const std::function<bool(const Operation*)>& supported) {
  return ConvexRegions(program, block, supported).regions();
}

}  // namespace lathe
