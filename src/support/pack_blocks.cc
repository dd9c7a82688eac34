#include "lathe/support/pack_blocks.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>

#include "lathe/support/error.h"

namespace lathe {

namespace {

size_t Aligned(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) & ~(alignment - 1);
}

/// Blocks by the steps at which they are needed: a segment tree over steps.
class LiveIndex {
 public:
  explicit LiveIndex(uint32_t steps) {
    while (size_ < steps) size_ *= 2;
    nodes_.resize(2 * size_);
    filled_.resize(2 * size_);
  }

  void Insert(const MemoryBlock& block, uint32_t id) {
    ForCanonical(block, [&](size_t node) {
      nodes_[node].push_back(id);
      for (size_t at = node; at > 0 && !filled_[at]; at /= 2) filled_[at] = true;
    });
    seen_.resize(std::max<size_t>(seen_.size(), id + 1));
  }

  /// Ids of all blocks inserted that overlap `block`, each once.
  const std::vector<uint32_t>& Overlapping(const MemoryBlock& block) {
    found_.clear();
    ++round_;
    ForCanonical(block, [&](size_t node) {
      for (size_t above = node / 2; above > 0; above /= 2) Take(above);
      open_.push_back(node);
      while (!open_.empty()) {
        const size_t at = open_.back();
        open_.pop_back();
        if (!filled_[at]) continue;
        Take(at);
        if (at >= size_) continue;
        open_.push_back(2 * at);
        open_.push_back(2 * at + 1);
      }
    });
    return found_;
  }

 private:
  template <class F>
  void ForCanonical(const MemoryBlock& block, F&& fn) {
    size_t low = block.begin + size_;
    size_t high = block.end + size_ + 1;
    for (; low < high; low /= 2, high /= 2) {
      if (low & 1) fn(low++);
      if (high & 1) fn(--high);
    }
  }

  void Take(size_t node) {
    for (const uint32_t id : nodes_[node]) {
      if (seen_[id] == round_) continue;
      seen_[id] = round_;
      found_.push_back(id);
    }
  }

  size_t size_ = 1;
  std::vector<std::vector<uint32_t>> nodes_;
  std::vector<bool> filled_;  // something at or below the node
  std::vector<uint32_t> seen_;
  std::vector<uint32_t> found_;
  std::vector<size_t> open_;
  uint32_t round_ = 0;
};

/// The smallest gap between `taken` (offset, end) that holds `bytes`, or the end of them.
size_t BestGap(std::vector<std::pair<size_t, size_t>>& taken, size_t bytes) {
  std::sort(taken.begin(), taken.end());
  size_t end = 0;
  size_t best = 0;
  size_t best_gap = ~size_t{0};
  for (const auto& [from, to] : taken) {
    if (from >= end + bytes && from - end < best_gap) {
      best = end;
      best_gap = from - end;
    }
    end = std::max(end, to);
  }
  return best_gap == ~size_t{0} ? end : best;
}

/// Each block in that order where it fits best among those placed before.
size_t PackInOrder(std::vector<MemoryBlock>& blocks, const std::vector<uint32_t>& order,
                   size_t alignment) {
  uint32_t steps = 0;
  for (const MemoryBlock& b : blocks) steps = std::max(steps, b.end + 1);
  LiveIndex index(steps);
  std::vector<std::pair<size_t, size_t>> taken;
  size_t peak = 0;
  for (const uint32_t id : order) {
    MemoryBlock& block = blocks[id];
    const size_t bytes = Aligned(block.bytes, alignment);
    taken.clear();
    for (const uint32_t other : index.Overlapping(block)) {
      const MemoryBlock& b = blocks[other];
      taken.emplace_back(b.offset, b.offset + Aligned(b.bytes, alignment));
    }
    block.offset = BestGap(taken, bytes);
    peak = std::max(peak, block.offset + bytes);
    index.Insert(block, id);
  }
  return peak;
}

/// As an allocator would that takes the smallest free piece: n log n whatever overlaps.
class StepByStep {
 public:
  size_t Take(size_t bytes) {
    const auto fit = by_size_.lower_bound({bytes, 0});
    if (fit != by_size_.end()) {
      const auto [size, offset] = *fit;
      Remove(offset, size);
      if (size > bytes) Add(offset + bytes, size - bytes);
      return offset;
    }
    size_t offset = end_;
    if (!free_.empty()) {  // the last free piece may grow
      const auto [at, size] = *free_.rbegin();
      if (at + size == end_) {
        Remove(at, size);
        offset = at;
      }
    }
    end_ = offset + bytes;
    return offset;
  }

  void Free(size_t offset, size_t bytes) {
    auto after = free_.lower_bound(offset);
    if (after != free_.end() && after->first == offset + bytes) {
      bytes += after->second;
      Remove(after->first, after->second);
      after = free_.lower_bound(offset);
    }
    if (after != free_.begin()) {
      const auto [at, size] = *std::prev(after);
      if (at + size == offset) {
        Remove(at, size);
        offset = at;
        bytes += size;
      }
    }
    Add(offset, bytes);
  }

  size_t end() const { return end_; }

 private:
  void Add(size_t offset, size_t bytes) {
    free_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }
  void Remove(size_t offset, size_t bytes) {
    free_.erase(offset);
    by_size_.erase({bytes, offset});
  }

  std::map<size_t, size_t> free_;                // offset to bytes
  std::set<std::pair<size_t, size_t>> by_size_;  // bytes, offset
  size_t end_ = 0;
};

size_t PackByStep(std::vector<MemoryBlock>& blocks, size_t alignment) {
  std::vector<uint32_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::make_tuple(blocks[a].begin, blocks[b].bytes) <
           std::make_tuple(blocks[b].begin, blocks[a].bytes);
  });
  using Ending = std::pair<uint32_t, uint32_t>;  // step, block
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> alive;
  StepByStep arena;
  for (const uint32_t id : order) {
    while (!alive.empty() && alive.top().first < blocks[id].begin) {
      const MemoryBlock& dead = blocks[alive.top().second];
      arena.Free(dead.offset, Aligned(dead.bytes, alignment));
      alive.pop();
    }
    blocks[id].offset = arena.Take(Aligned(blocks[id].bytes, alignment));
    alive.emplace(blocks[id].end, id);
  }
  return arena.end();
}

/// Pairs of blocks needed at one step.
size_t CountOverlaps(const std::vector<MemoryBlock>& blocks) {
  std::vector<uint32_t> begins;
  std::vector<uint32_t> ends;
  for (const MemoryBlock& b : blocks) {
    begins.push_back(b.begin);
    ends.push_back(b.end);
  }
  std::sort(begins.begin(), begins.end());
  std::sort(ends.begin(), ends.end());
  size_t pairs = 0;
  size_t ended = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    while (ends[ended] < begins[i]) ++ended;
    pairs += i - ended;
  }
  return pairs;
}

template <class Key>
std::vector<uint32_t> OrderBy(const std::vector<MemoryBlock>& blocks, Key key) {
  std::vector<uint32_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return key(blocks[a]) > key(blocks[b]); });
  return order;
}

}  // namespace

size_t MaxLiveBytes(const std::vector<MemoryBlock>& blocks, size_t alignment) {
  std::map<uint32_t, int64_t> change;
  for (const MemoryBlock& b : blocks) {
    const auto bytes = static_cast<int64_t>(Aligned(b.bytes, alignment));
    change[b.begin] += bytes;
    change[b.end + 1] -= bytes;
  }
  int64_t live = 0;
  int64_t most = 0;
  for (const auto& [step, bytes] : change) most = std::max(most, live += bytes);
  return static_cast<size_t>(most);
}

size_t PackBlocks(std::vector<MemoryBlock>& blocks, size_t alignment) {
  LATHE_CHECK(alignment != 0 && (alignment & (alignment - 1)) == 0, "alignment ", alignment);
  std::vector<MemoryBlock> used;
  std::vector<size_t> places;
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].offset = 0;
    if (blocks[i].bytes == 0) continue;
    used.push_back(blocks[i]);
    places.push_back(i);
  }
  // Placing large blocks first packs best but looks at all overlaps; there may be too many.
  constexpr size_t kMaxOverlaps = 20'000'000;
  const size_t bound = MaxLiveBytes(used, alignment);
  size_t peak = PackByStep(used, alignment);
  const bool may_search = CountOverlaps(used) <= kMaxOverlaps;
  const auto length = [](const MemoryBlock& b) { return b.end - b.begin + 1; };
  const auto attempt = [&](const std::vector<uint32_t>& order) {
    if (peak == bound || !may_search) return;
    std::vector<MemoryBlock> other = used;
    const size_t other_peak = PackInOrder(other, order, alignment);
    if (other_peak >= peak) return;
    peak = other_peak;
    used = std::move(other);
  };
  attempt(OrderBy(used, [](const MemoryBlock& b) { return std::make_tuple(b.bytes); }));
  attempt(OrderBy(used, [&](const MemoryBlock& b) {
    return std::make_tuple(static_cast<double>(b.bytes) * length(b));
  }));
  attempt(OrderBy(used, [&](const MemoryBlock& b) { return std::make_tuple(length(b), b.bytes); }));
  for (size_t i = 0; i < used.size(); ++i) blocks[places[i]].offset = used[i].offset;
  return peak;
}

}  // namespace lathe
