#pragma once

#include <unordered_map>

#include "lathe/ir/program.h"

namespace lathe {

/// A list, optional, dict ... of mutable tensors, however deep.
bool HoldsMutable(Type type);

/// Which containers of mutable tensors an operation of which nothing is known can reach. Those that
/// one operation takes, makes or hands through its regions stand or fall together, since their
/// types depend on each other.
class Containers {
 public:
  explicit Containers(const Program& program);
  /// The first such operation, or null.
  const Operation* UnknownUser(Value value) const;

 private:
  Value Find(Value value) const;
  void Join(Value& group, Value value);
  void Visit(Operation* op);

  // Looked up, never iterated.
  std::unordered_map<Value, Value> parent_;
  std::unordered_map<Value, const Operation*> unknown_;  // by group
};

}  // namespace lathe
