#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lathe/ir/operation.h"

namespace lathe {

/// The operations of a block, numbered by what they compute: in post-order from the sinks, operands
/// in order, sinks by name and content. Two ways to write the same program give the same numbers.
/// A snapshot; operations in regions count as part of the operation of the block that holds them.
class Dataflow {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Use {
    uint32_t user;
    uint32_t operand;  ///< kNone: read inside the user's regions
  };

  explicit Dataflow(Block* block);

  uint32_t size() const { return static_cast<uint32_t>(ops_.size()); }
  Operation* op(uint32_t id) const { return ops_[id]; }
  /// kNone if the op is not of this block.
  uint32_t id(const Operation* op) const;
  /// What makes the value, or kNone.
  uint32_t producer(Value value) const { return id(value ? value.defining_op() : nullptr); }
  /// Ids above that of the op.
  std::span<const Use> uses(uint32_t id) const {
    return {uses_.data() + use_base_[id], uses_.data() + use_base_[id + 1]};
  }
  /// The nearest op through which every path from `id` to a sink goes; kNone if there is none.
  uint32_t post_dominator(uint32_t id) const { return parent_[id] == size() ? kNone : parent_[id]; }

 private:
  struct Edge {
    uint32_t from, to, operand;
  };
  std::vector<Edge> FindEdges(const std::vector<Operation*>& ops) const;
  void Number(const std::vector<Operation*>& ops, const std::vector<Edge>& edges);
  void IndexUses(const std::vector<Edge>& edges, const std::vector<uint32_t>& number);
  void FindPostDominators();
  uint32_t Meet(uint32_t a, uint32_t b) const;

  Block* block_;
  std::vector<Operation*> ops_;
  std::unordered_map<const Operation*, uint32_t> ids_;  // looked up, never iterated
  std::vector<uint32_t> use_base_;
  std::vector<Use> uses_;
  // The post-dominator tree, its root (the exit) at size(), with jumps for logarithmic ancestors.
  std::vector<uint32_t> parent_, jump_, depth_;
};

}  // namespace lathe
