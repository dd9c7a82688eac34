#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lathe/ir/program.h"

namespace lathe {

/// Where the interpreter keeps each value of a program, and when it may drop it. A value lives in a
/// slot; an in-place op's result shares the slot of what it writes, so that later reads of either
/// see the new value. A view of a mutable tensor has no slot of its own: it is the slot of the
/// tensor and a second slot with the index, into that tensor, of each of its elements.
///
/// Values that enter a region as arguments or leave it as results are new tensors; what a region
/// captures it shares. So who shares with whom is known before anything runs. A function never runs
/// within itself, so its values have slots like those of any block.
class RunPlan {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Step {
    Operation* op;
    uint32_t operands;  ///< first of op->num_operands() entries of `slots`
    uint32_t results;   ///< first of op->num_results() entries of `slots`
    uint32_t drops;     ///< slots to drop afterwards: entries [drops, drops_end) of `drops`
    uint32_t drops_end;
    uint32_t callee = kNone;  ///< of a call: which block it runs
  };
  struct BlockPlan {
    std::vector<uint32_t> arguments;
    std::vector<Step> steps;
    bool has_terminator = false;
  };
  /// A program input of type `tensor` that some op writes, and where its value is.
  struct WrittenInput {
    const Operation* feed;
    uint32_t slot;
  };

  /// Throws run/no-eval if an op cannot be run.
  explicit RunPlan(const Program& program);

  uint32_t num_slots() const { return num_slots_; }
  const BlockPlan& block(const Block* block) const { return blocks_[block_index_.at(block)]; }
  const BlockPlan& callee(const Step& step) const { return blocks_[step.callee]; }
  std::span<const uint32_t> operands(const Step& step) const {
    return {slots_.data() + step.operands, step.op->num_operands()};
  }
  std::span<const uint32_t> results(const Step& step) const {
    return {slots_.data() + step.results, step.op->num_results()};
  }
  /// Of each operand that is a view, where its indices are; else kNone.
  std::span<const uint32_t> operand_indices(const Step& step) const {
    return {indices_.data() + step.operands, step.op->num_operands()};
  }
  std::span<const uint32_t> result_indices(const Step& step) const {
    return {indices_.data() + step.results, step.op->num_results()};
  }
  /// In program order.
  std::span<const WrittenInput> written_inputs() const { return written_inputs_; }
  /// The op's result 0 is a view of a mutable tensor.
  static bool IsMutableView(const Operation* op);
  std::span<const uint32_t> drops(const Step& step) const {
    return {drops_.data() + step.drops, step.drops_end - step.drops};
  }

 private:
  class Maker;
  uint32_t num_slots_ = 0;
  std::vector<uint32_t> slots_;
  std::vector<uint32_t> indices_;  // parallel to slots_
  std::vector<uint32_t> drops_;
  std::vector<BlockPlan> blocks_;
  std::vector<WrittenInput> written_inputs_;
  std::unordered_map<const Block*, size_t> block_index_;  // looked up, never iterated
};

}  // namespace lathe
