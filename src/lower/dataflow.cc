#include "src/lower/dataflow.h"

#include <algorithm>
#include <tuple>

#include "lathe/ir/context.h"
#include "lathe/support/error.h"
#include "lathe/support/hash.h"

namespace lathe {

namespace {

const Operation* AncestorIn(const Block* block, const Operation* op) {
  while (op != nullptr && op->block() != block) op = op->parent_op();
  return op;
}

/// Hashes by content, each attribute once.
class ContentHasher {
 public:
  uint64_t Of(const Operation* op) {
    uint64_t hash = HashString(op->name());
    for (const NamedAttribute& a : op->attributes().entries()) {
      hash = HashCombine(HashCombine(hash, HashString(a.name.value())), Of(a.value));
    }
    return hash;
  }

 private:
  uint64_t Of(Attribute attribute) {
    const auto [at, added] = seen_.emplace(attribute.storage(), 0);
    if (added) at->second = HashString(attribute.ToString());
    return at->second;
  }
  std::unordered_map<const void*, uint64_t> seen_;  // looked up, never iterated
};

/// What each op computes, as a hash of everything before it.
std::vector<uint64_t> ConeHashes(const std::vector<Operation*>& ops,
                                 const std::unordered_map<const Operation*, uint32_t>& ids) {
  ContentHasher hasher;
  std::vector<uint64_t> cones(ops.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    uint64_t hash = hasher.Of(ops[i]);
    for (size_t k = 0; k < ops[i]->num_operands(); ++k) {
      const Value v = ops[i]->operand(k);
      const auto at = v ? ids.find(v.defining_op()) : ids.end();
      const uint64_t cone = at == ids.end() ? 0 : cones[at->second];
      hash = HashCombine(hash, HashCombine(cone, v ? v.index() : ~uint64_t{0}));
    }
    cones[i] = hash;
  }
  return cones;
}

}  // namespace

Dataflow::Dataflow(Block* block) : block_(block) {
  std::vector<Operation*> ops;
  for (Operation& op : *block) {
    ids_.emplace(&op, static_cast<uint32_t>(ops.size()));
    ops.push_back(&op);
  }
  const std::vector<Edge> edges = FindEdges(ops);
  Number(ops, edges);
  FindPostDominators();
}

uint32_t Dataflow::id(const Operation* op) const {
  const auto at = ids_.find(op);
  return at == ids_.end() ? kNone : at->second;
}

/// By user in program order, operands in order, what regions read last.
std::vector<Dataflow::Edge> Dataflow::FindEdges(const std::vector<Operation*>& ops) const {
  std::vector<Edge> edges;
  for (uint32_t i = 0; i < ops.size(); ++i) {
    for (size_t r = 0; r < ops[i]->num_results(); ++r) {
      for (const OpOperand use : ops[i]->result(r).uses()) {
        const Operation* owner = use.owner();
        const bool direct = owner->block() == block_;
        const uint32_t user = id(direct ? owner : AncestorIn(block_, owner));
        LATHE_CHECK(user != kNone, ops[i]->Describe(), " is used outside its block");
        edges.push_back({i, user, direct ? static_cast<uint32_t>(use.index()) : kNone});
      }
    }
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return std::tie(a.to, a.operand, a.from) < std::tie(b.to, b.operand, b.from);
  });
  return edges;
}

void Dataflow::Number(const std::vector<Operation*>& ops, const std::vector<Edge>& edges) {
  const auto n = static_cast<uint32_t>(ops.size());
  std::vector<uint32_t> first(n + 1, 0), number(n, kNone);
  std::vector<bool> used(n, false);
  for (const Edge& e : edges) {
    ++first[e.to + 1];
    used[e.from] = true;
  }
  for (uint32_t i = 0; i < n; ++i) first[i + 1] += first[i];

  const std::vector<uint64_t> cones = ConeHashes(ops, ids_);
  std::vector<uint32_t> sinks;
  for (uint32_t i = 0; i < n; ++i) {
    if (!used[i]) sinks.push_back(i);
  }
  std::stable_sort(sinks.begin(), sinks.end(), [&](uint32_t a, uint32_t b) {
    return std::tuple(ops[a]->name(), cones[a]) < std::tuple(ops[b]->name(), cones[b]);
  });

  std::vector<std::pair<uint32_t, uint32_t>> stack;  // op, next edge
  std::vector<bool> seen(n, false);
  for (const uint32_t sink : sinks) {
    stack.emplace_back(sink, first[sink]);
    seen[sink] = true;
    while (!stack.empty()) {
      auto& [at, edge] = stack.back();
      if (edge == first[at + 1]) {
        number[at] = size();
        ops_.push_back(ops[at]);
        stack.pop_back();
        continue;
      }
      const uint32_t from = edges[edge++].from;
      if (seen[from]) continue;
      seen[from] = true;
      stack.emplace_back(from, first[from]);
    }
  }
  LATHE_CHECK(size() == n, "the block has a cycle");
  for (uint32_t i = 0; i < n; ++i) ids_[ops[i]] = number[i];
  IndexUses(edges, number);
}

void Dataflow::IndexUses(const std::vector<Edge>& edges, const std::vector<uint32_t>& number) {
  use_base_.assign(size() + 1, 0);
  for (const Edge& e : edges) ++use_base_[number[e.from] + 1];
  for (uint32_t i = 0; i < size(); ++i) use_base_[i + 1] += use_base_[i];
  uses_.resize(edges.size());
  std::vector<uint32_t> next(use_base_.begin(), use_base_.end() - 1);
  for (const Edge& e : edges) uses_[next[number[e.from]]++] = {number[e.to], e.operand};
}

void Dataflow::FindPostDominators() {
  const uint32_t exit = size();
  parent_.assign(size() + 1, exit);
  jump_.assign(size() + 1, exit);
  depth_.assign(size() + 1, 0);
  for (uint32_t i = size(); i-- > 0;) {
    uint32_t to = kNone;
    for (const Use& use : uses(i)) to = to == kNone ? use.user : Meet(to, use.user);
    const uint32_t p = to == kNone ? exit : to;
    parent_[i] = p;
    depth_[i] = depth_[p] + 1;
    const uint32_t j = jump_[p];
    jump_[i] = depth_[p] - depth_[j] == depth_[j] - depth_[jump_[j]] ? jump_[j] : p;
  }
}

/// The nearest common ancestor.
uint32_t Dataflow::Meet(uint32_t a, uint32_t b) const {
  if (depth_[a] < depth_[b]) std::swap(a, b);
  while (depth_[a] > depth_[b]) a = depth_[jump_[a]] >= depth_[b] ? jump_[a] : parent_[a];
  while (a != b) {
    const bool far = jump_[a] != jump_[b];
    a = far ? jump_[a] : parent_[a];
    b = far ? jump_[b] : parent_[b];
  }
  return a;
}

}  // namespace lathe
