#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <unordered_map>

#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/graph.h"

namespace lathe {

namespace {

/// Who reads whom among the operations of one block, by position in it.
class ReadGraph {
 public:
  explicit ReadGraph(Block* block) {
    std::unordered_map<const Operation*, uint32_t> positions;  // look-up only
    for (Operation& op : *block) {
      positions.emplace(&op, static_cast<uint32_t>(ops_.size()));
      ops_.push_back(&op);
    }
    readers_.resize(ops_.size());
    pending_.resize(ops_.size());
    for (uint32_t i = 0; i < ops_.size(); ++i) {
      for (OpWalker w(ops_[i]); const Operation* inner = w.Next();) {
        for (const detail::OpOperandImpl& o : inner->operands()) {
          const Operation* maker = o.value == nullptr ? nullptr : Value(o.value).defining_op();
          const auto at = positions.find(maker);
          if (at == positions.end()) continue;
          readers_[at->second].push_back(i);
          ++pending_[i];
        }
      }
    }
  }

  /// What can be ordered, each after what it reads, the earliest first; the rest has circles.
  std::vector<uint32_t> Order() {
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
    for (uint32_t i = 0; i < ops_.size(); ++i) {
      if (pending_[i] == 0) ready.push(i);
    }
    std::vector<uint32_t> order;
    while (!ready.empty()) {
      const uint32_t i = ready.top();
      ready.pop();
      order.push_back(i);
      for (const uint32_t reader : readers_[i]) {
        if (--pending_[reader] == 0) ready.push(reader);
      }
    }
    return order;
  }

  /// After `Order`: one circle among what was left. From anything left, steps back to a maker that
  /// is left too come round.
  std::vector<uint32_t> Circle() const {
    std::vector<uint32_t> maker(ops_.size(), kNone);
    for (uint32_t i = 0; i < ops_.size(); ++i) {
      if (pending_[i] == 0) continue;
      for (const uint32_t reader : readers_[i]) {
        if (pending_[reader] != 0 && maker[reader] == kNone) maker[reader] = i;
      }
    }
    const auto left = std::find_if(pending_.begin(), pending_.end(), [](uint32_t n) { return n; });
    if (left == pending_.end()) return {};
    std::vector<bool> seen(ops_.size());
    uint32_t at = static_cast<uint32_t>(left - pending_.begin());
    while (!seen[at]) {
      seen[at] = true;
      at = maker[at];
    }
    std::vector<uint32_t> circle{at};
    for (uint32_t next = maker[at]; next != at; next = maker[next]) circle.push_back(next);
    std::sort(circle.begin(), circle.end());
    return circle;
  }

  Operation* op(uint32_t i) const { return ops_[i]; }
  size_t size() const { return ops_.size(); }
  const std::vector<uint32_t>& readers(uint32_t i) const { return readers_[i]; }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  std::vector<Operation*> ops_;
  std::vector<std::vector<uint32_t>> readers_;
  std::vector<uint32_t> pending_;  // reads that are not ordered yet
};

}  // namespace

std::vector<Operation*> Graph::TopologySortOperations() const {
  ReadGraph reads(block_);
  std::vector<Operation*> ops;
  for (const uint32_t i : reads.Order()) ops.push_back(reads.op(i));
  if (ops.size() == reads.size()) return ops;
  Error error(ErrorCode::kVerify, "graph/cycle", "operations read one another in a circle");
  for (const uint32_t i : reads.Circle()) error.Note(reads.op(i)->Describe());
  throw error;
}

void Graph::SortTopologically() {
  for (Operation* op : TopologySortOperations()) op->MoveToEnd(block_);
}

std::vector<Operation*> Graph::FindCircle() const {
  ReadGraph reads(block_);
  reads.Order();
  std::vector<Operation*> circle;
  for (const uint32_t i : reads.Circle()) circle.push_back(reads.op(i));
  return circle;
}

size_t Graph::GraphNum() const {
  const ReadGraph reads(block_);
  std::vector<uint32_t> part(reads.size());
  std::iota(part.begin(), part.end(), 0);
  const auto find = [&](uint32_t i) {
    while (part[i] != i) i = part[i] = part[part[i]];
    return i;
  };
  size_t count = reads.size();
  for (uint32_t i = 0; i < reads.size(); ++i) {
    for (const uint32_t reader : reads.readers(i)) {
      const uint32_t a = find(i);
      const uint32_t b = find(reader);
      if (a == b) continue;
      part[b] = a;
      --count;
    }
  }
  return count;
}

}  // namespace lathe
