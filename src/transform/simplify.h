#pragma once

#include <functional>
#include <optional>

#include "lathe/pass/fold.h"
#include "lathe/pass/pass.h"
#include "src/transform/call_effects.h"
#include "src/transform/value_table.h"

namespace lathe {

/// One forward walk folds and merges, one backward walk drops what is unused. Near linear; the
/// blocks being walked are kept on a stack of its own. The passes `constant_folding`, `cse` and
/// `dead_code` are parts of it.
class SimplifyPass : public Pass {
 public:
  struct Parts {
    bool fold = true;   ///< reads option max_bytes
    bool merge = true;  ///< reads option skip and the pass attribute of that name
    bool drop = true;
  };
  /// Pass attribute "skip" of `cse`: true for an op that is not to be merged.
  using Skip = std::function<bool(const Operation*)>;

  SimplifyPass() = default;
  explicit SimplifyPass(Parts parts) : parts_(parts) {}

 protected:
  void ApplyImpl(Graph& graph) override;

 private:
  struct Frame {
    Block* block;
    Operation* next;
    size_t scope;
  };
  void Forward(Block* top);
  void ForwardIn(Block* top, std::vector<Block*>& isolated);
  void Visit(Operation* op);
  bool Fold(Operation* op);
  bool FoldConstants(Operation* op);
  Value Known(Value value);
  void Replace(Operation* op, size_t i, Value value);
  void Merge(Operation* op, Operation* earlier);
  void Backward(Block* top);

  Parts parts_;
  Program* program_ = nullptr;
  std::optional<Rewriter> rewriter_;
  std::optional<ProgramConstants> constants_;
  std::optional<CallEffects> functions_;
  Skip skip_;
  ValueTable table_;
  int64_t folded_ = 0, merged_ = 0, dead_ = 0;
};

}  // namespace lathe
