#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "lathe/lower/external.h"
#include "src/lower/dataflow.h"

namespace lathe {

/// Finds convex regions of supported operations, and puts the operations of each beside one
/// another.
///
/// Every operation has a level that never falls along a path, and rises where a path goes from
/// supported to other operations or back. Connected supported operations of one level are a region:
/// a path that leaves it through another operation comes to higher levels only.
class ConvexRegions {
 public:
  ConvexRegions(const Program& program, Block* block,
                const std::function<bool(const Operation*)>& supported);

  /// Each in order of what it computes; see FindRegions.
  const std::vector<std::vector<Operation*>>& regions() const { return regions_; }
  /// Reorders the block so that each region stands in one piece; otherwise the order stays as far
  /// as it can.
  void MakeContiguous();

 private:
  struct Edge {
    uint32_t from, to;
    bool direct;  ///< an operand; not read by a region, nor a matter of order
  };
  void FindEdges(const Program& program);
  bool IsOrdered(const Operation* op) const;
  void FindLevels();
  void Join();
  void Raise();
  uint32_t Find(uint32_t i);
  void Collect();

  Block* block_;
  Dataflow flow_;
  std::vector<uint32_t> order_;     ///< ids in program order
  std::vector<uint32_t> position_;  ///< by id
  std::vector<bool> supported_;
  std::vector<std::vector<Edge>> out_;  ///< by id
  std::vector<uint32_t> level_;
  std::vector<uint32_t> parent_;   ///< of supported ones of one region
  std::set<std::string> written_;  ///< names of parameters that some op sets
  bool has_random_ = false;
  std::vector<std::vector<Operation*>> regions_;
};

}  // namespace lathe
