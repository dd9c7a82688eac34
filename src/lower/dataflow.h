#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lathe/ir/operation.h"

namespace lathe {

/// Numbers of operations, by address; look-up only. Fuller than a std::unordered_map, and one cache
/// line a look-up.
class OpNumbers {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  explicit OpNumbers(size_t count);
  void Set(const Operation* op, uint32_t number) { *Slot(op) = {op, number}; }
  uint32_t Get(const Operation* op) const {
    return op == nullptr ? kNone : const_cast<OpNumbers*>(this)->Slot(op)->number;
  }

 private:
  struct Entry {
    const Operation* op = nullptr;
    uint32_t number = kNone;
  };
  Entry* Slot(const Operation* op);
  std::vector<Entry> entries_;
};

/// The operations of a block, numbered by what they compute: in post-order from the sinks, operands
/// in order, sinks by name and content. Two ways to write the same program give the same numbers.
/// A snapshot; operations in regions count as part of the operation of the block that holds them.
class Dataflow {
 public:
  static constexpr uint32_t kNone = OpNumbers::kNone;
  struct Use {
    uint32_t user;
    uint32_t operand;  ///< kNone: read inside the user's regions
  };

  explicit Dataflow(Block* block);

  uint32_t size() const { return static_cast<uint32_t>(ops_.size()); }
  Operation* op(uint32_t id) const { return ops_[id]; }
  /// kNone if the op is not of this block.
  uint32_t id(const Operation* op) const { return ids_.Get(op); }
  /// What makes the value, or kNone.
  uint32_t producer(Value value) const { return id(value ? value.defining_op() : nullptr); }
  /// What makes each operand (kNone: nothing in the block), then what the regions read.
  std::span<const uint32_t> inputs(uint32_t id) const {
    return {inputs_.data() + input_base_[id], inputs_.data() + input_base_[id + 1]};
  }
  /// Of higher ids.
  std::span<const Use> uses(uint32_t id) const {
    return {uses_.data() + use_base_[id], uses_.data() + use_base_[id + 1]};
  }
  /// Ids as the block has them.
  const std::vector<uint32_t>& program_order() const { return order_; }
  /// The nearest op through which every path from `id` to a sink goes; kNone if there is none.
  uint32_t post_dominator(uint32_t id) const { return parent_[id] == size() ? kNone : parent_[id]; }

 private:
  /// The block in program order, with what each op reads.
  struct Listing {
    std::vector<Operation*> ops;
    std::vector<uint32_t> base, inputs;
    std::span<const uint32_t> of(uint32_t i) const {
      return {inputs.data() + base[i], inputs.data() + base[i + 1]};
    }
  };
  void AppendCaptured(Operation* op, std::vector<uint32_t>& inputs) const;
  static std::vector<uint32_t> SinksOf(const Listing& listing);
  void Number(const Listing& listing);
  void IndexEdges(const Listing& listing);
  void FindPostDominators();
  uint32_t Meet(uint32_t a, uint32_t b) const;

  std::vector<Operation*> ops_;
  OpNumbers ids_;
  std::vector<uint32_t> order_, input_base_, inputs_, use_base_;
  std::vector<Use> uses_;
  // The post-dominator tree, its root (the exit) at size(), with jumps for logarithmic ancestors.
  std::vector<uint32_t> parent_, jump_, depth_;
};

}  // namespace lathe
