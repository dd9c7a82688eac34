#include "src/lower/dataflow.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <unordered_map>

#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "lathe/support/hash.h"

namespace lathe {

namespace {

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

size_t CountOps(const Block* block) {
  size_t count = 0;
  for (auto at = block->begin(); at != block->end(); ++at) ++count;
  return count;
}

}  // namespace

OpNumbers::OpNumbers(size_t count) : entries_(std::bit_ceil(2 * count + 1)) {}

OpNumbers::Entry* OpNumbers::Slot(const Operation* op) {
  const size_t mask = entries_.size() - 1;
  size_t at = HashMix(reinterpret_cast<uintptr_t>(op)) & mask;
  while (entries_[at].op != nullptr && entries_[at].op != op) at = (at + 1) & mask;
  return &entries_[at];
}

Dataflow::Dataflow(Block* block) : ids_(CountOps(block)) {
  Listing listing;
  for (Operation& op : *block) {
    ids_.Set(&op, static_cast<uint32_t>(listing.ops.size()));
    listing.ops.push_back(&op);
  }
  for (Operation* op : listing.ops) {
    listing.base.push_back(static_cast<uint32_t>(listing.inputs.size()));
    for (size_t k = 0; k < op->num_operands(); ++k) {
      listing.inputs.push_back(producer(op->operand(k)));
    }
    if (op->num_regions() > 0) AppendCaptured(op, listing.inputs);
  }
  listing.base.push_back(static_cast<uint32_t>(listing.inputs.size()));
  Number(listing);
  FindPostDominators();
}

/// What is of this block and read within the op's regions.
void Dataflow::AppendCaptured(Operation* op, std::vector<uint32_t>& inputs) const {
  OpWalker w(op);
  (void)w.Next();
  if (op->HasTrait<IsolatedFromAbove>()) return;
  while (const Operation* inner = w.Next()) {
    for (size_t k = 0; k < inner->num_operands(); ++k) {
      const uint32_t from = producer(inner->operand(k));
      if (from != kNone) inputs.push_back(from);
    }
    if (inner->HasTrait<IsolatedFromAbove>()) w.SkipRegions();
  }
}

/// Ops that nobody reads, by name and by what they compute.
std::vector<uint32_t> Dataflow::SinksOf(const Listing& listing) {
  const auto n = static_cast<uint32_t>(listing.ops.size());
  ContentHasher hasher;
  std::vector<uint64_t> cones(n);  // what each op computes, as a hash of everything before it
  std::vector<bool> used(n, false);
  for (uint32_t i = 0; i < n; ++i) {
    const Operation* op = listing.ops[i];
    cones[i] = hasher.Of(op);
    const std::span<const uint32_t> inputs = listing.of(i);
    for (size_t k = 0; k < inputs.size(); ++k) {
      const Value v = k < op->num_operands() ? op->operand(k) : Value();
      cones[i] = HashCombine(cones[i], v ? v.index() : ~uint64_t{0});
      if (inputs[k] == kNone) continue;
      cones[i] = HashCombine(cones[i], cones[inputs[k]]);
      used[inputs[k]] = true;
    }
  }
  std::vector<uint32_t> sinks;
  for (uint32_t i = 0; i < n; ++i) {
    if (!used[i]) sinks.push_back(i);
  }
  std::stable_sort(sinks.begin(), sinks.end(), [&](uint32_t a, uint32_t b) {
    return std::tuple(listing.ops[a]->name(), cones[a]) <
           std::tuple(listing.ops[b]->name(), cones[b]);
  });
  return sinks;
}

/// In post-order from the sinks.
void Dataflow::Number(const Listing& listing) {
  const auto n = static_cast<uint32_t>(listing.ops.size());
  order_.assign(n, kNone);
  std::vector<std::pair<uint32_t, size_t>> stack;  // op, next input
  std::vector<bool> seen(n, false);
  for (const uint32_t sink : SinksOf(listing)) {
    stack.emplace_back(sink, 0);
    seen[sink] = true;
    while (!stack.empty()) {
      auto& [at, next] = stack.back();
      const std::span<const uint32_t> inputs = listing.of(at);
      if (next == inputs.size()) {
        order_[at] = size();
        ops_.push_back(listing.ops[at]);
        stack.pop_back();
        continue;
      }
      const uint32_t from = inputs[next++];
      if (from == kNone || seen[from]) continue;
      seen[from] = true;
      stack.emplace_back(from, 0);
    }
  }
  LATHE_CHECK(size() == n, "the block has a cycle");
  for (uint32_t i = 0; i < n; ++i) ids_.Set(listing.ops[i], order_[i]);
  IndexEdges(listing);
}

void Dataflow::IndexEdges(const Listing& listing) {
  const uint32_t n = size();
  std::vector<uint32_t> position(n);
  for (uint32_t i = 0; i < n; ++i) position[order_[i]] = i;
  use_base_.assign(n + 1, 0);
  for (uint32_t id = 0; id < n; ++id) {
    input_base_.push_back(static_cast<uint32_t>(inputs_.size()));
    for (const uint32_t from : listing.of(position[id])) {
      inputs_.push_back(from == kNone ? kNone : order_[from]);
      if (from != kNone) ++use_base_[order_[from] + 1];
    }
  }
  input_base_.push_back(static_cast<uint32_t>(inputs_.size()));
  for (uint32_t i = 0; i < n; ++i) use_base_[i + 1] += use_base_[i];
  uses_.resize(use_base_[n]);
  std::vector<uint32_t> next(use_base_.begin(), use_base_.end() - 1);
  for (uint32_t id = 0; id < n; ++id) {
    const std::span<const uint32_t> from = inputs(id);
    for (uint32_t k = 0; k < from.size(); ++k) {
      if (from[k] == kNone) continue;
      uses_[next[from[k]]++] = {id, k < ops_[id]->num_operands() ? k : kNone};
    }
  }
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
