#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lathe/ir/operation.h"

namespace lathe {

/// Operations that stand in open blocks by (type, attributes, operands, result types). Open
/// addressing keyed by handles; nothing iterates it, so addresses decide nothing.
class ValueTable {
 public:
  ValueTable() : slots_(1024) {}

  /// An equal operation seen before in an open scope, or null after remembering `op`.
  Operation* FindOrInsert(Operation* op);
  size_t OpenScope() const { return inserted_.size(); }
  /// Forgets what was remembered since OpenScope gave `mark`.
  void CloseScope(size_t mark);

 private:
  struct Slot {
    uint64_t hash = 0;
    Operation* op = nullptr;
  };
  void Grow();
  Slot* Locate(const Slot& wanted);

  std::vector<Slot> slots_;
  std::vector<Slot> inserted_;
};

}  // namespace lathe
