#pragma once

#include <functional>
#include <vector>

#include "lathe/ir/operation.h"

namespace lathe {

/// Visits operations in program order, an operation before (or after) those in its regions. Keeps
/// its own stack, so nesting may be arbitrarily deep.
///
///   for (OpWalker w(root); Operation* op = w.Next();) ...            // includes `root`
///
/// The operation just returned may be erased or moved before the next step; others may not.
class OpWalker {
 public:
  explicit OpWalker(Operation* root);
  explicit OpWalker(Block* block);
  /// The next operation in pre-order, or null at the end.
  Operation* Next();
  /// Does not enter the regions of the operation just returned.
  void SkipRegions();

 private:
  void Push(Block* block);
  struct Frame {
    Operation* next;
    Block* block;
    size_t region;
    Operation* owner;
  };
  std::vector<Frame> stack_;
  Operation* pending_ = nullptr;  // returned last; its regions are entered on the next step
  Operation* root_ = nullptr;
};

/// Calls `fn` for each operation below and including `root`, each after those in its regions.
void WalkPostOrder(Operation* root, const std::function<void(Operation*)>& fn);

/// Maps values (and blocks) of a cloned piece to their copies.
class IrMapping {
 public:
  void Map(Value from, Value to) { values_[from] = to; }
  /// The copy, or `from` itself if it is not mapped.
  Value Lookup(Value from) const;
  bool Contains(Value from) const { return values_.count(from) != 0; }

 private:
  std::unordered_map<Value, Value> values_;
};

/// A detached deep copy of `op`; operands go through `mapping`, into which results are entered.
/// Not recursive.
Operation* Clone(const Operation* op, IrMapping& mapping);

}  // namespace lathe
