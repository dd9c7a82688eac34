#include "src/transform/min_cut.h"

#include <algorithm>

namespace lathe {

size_t MinCut::AddNode() {
  first_.push_back(kNone);
  return first_.size() - 1;
}

void MinCut::AddEdge(size_t from, size_t to, int64_t cost) {
  edges_.push_back({to, cost, first_[from]});
  first_[from] = edges_.size() - 1;
  edges_.push_back({from, 0, first_[to]});
  first_[to] = edges_.size() - 1;
}

/// Distances from the source over edges that have something left; whether the sink has one.
bool MinCut::Level() {
  level_.assign(first_.size(), -1);
  level_[kSource] = 0;
  std::vector<size_t> queue{kSource};
  for (size_t i = 0; i < queue.size(); ++i) {
    for (size_t e = first_[queue[i]]; e != kNone; e = edges_[e].next) {
      if (edges_[e].left == 0 || level_[edges_[e].to] >= 0) continue;
      level_[edges_[e].to] = level_[queue[i]] + 1;
      queue.push_back(edges_[e].to);
    }
  }
  return level_[kSink] >= 0;
}

/// Sends what one path of growing distance can carry; 0 if there is no such path left.
int64_t MinCut::Push() {
  std::vector<size_t> path;
  size_t node = kSource;
  while (node != kSink) {
    size_t& e = at_[node];
    while (e != kNone && (edges_[e].left == 0 || level_[edges_[e].to] != level_[node] + 1)) {
      e = edges_[e].next;
    }
    if (e != kNone) {
      path.push_back(e);
      node = edges_[e].to;
      continue;
    }
    if (path.empty()) return 0;
    node = edges_[path.back() ^ 1].to;  // a dead end: never this way again
    at_[node] = edges_[path.back()].next;
    path.pop_back();
  }
  int64_t amount = kNever;
  for (const size_t e : path) amount = std::min(amount, edges_[e].left);
  for (const size_t e : path) {
    edges_[e].left -= amount;
    edges_[e ^ 1].left += amount;
  }
  return amount;
}

int64_t MinCut::Solve() {
  int64_t total = 0;
  while (Level()) {
    at_ = first_;
    while (const int64_t amount = Push()) total += amount;
  }
  return total;
}

}  // namespace lathe
