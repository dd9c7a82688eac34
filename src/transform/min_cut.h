#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace lathe {

/// The cheapest way to part a directed graph so that no edge leads from the source's side to the
/// sink's but those that are paid for. Dinic's algorithm, without recursion.
class MinCut {
 public:
  static constexpr size_t kSource = 0, kSink = 1;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;

  MinCut() : first_(2, kNone) {}
  size_t AddNode();
  void AddEdge(size_t from, size_t to, int64_t cost);
  /// The cost of the cut.
  int64_t Solve();
  /// After Solve.
  bool OnSourceSide(size_t node) const { return level_[node] >= 0; }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  struct Edge {
    size_t to;
    int64_t left;
    size_t next;  ///< of the same node
  };
  bool Level();
  int64_t Push();

  std::vector<size_t> first_;  ///< edge of each node; edge i ^ 1 is the way back of edge i
  std::vector<Edge> edges_;
  std::vector<int> level_;
  std::vector<size_t> at_;
};

}  // namespace lathe
