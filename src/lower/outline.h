#pragma once

#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "lathe/ir/operation.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

/// Turns operations of one block, each after what it reads, into the body of a region that sees
/// nothing around it.
///
///   Outliner out(rewriter, ops, embeds);
///   ... create the op that holds the region, with out.arguments() and types of out.results() ...
///   out.MoveInto(holder->region(0).AddBlock(), results of the holder);
///   ... end the block with out.results() ...
class Outliner {
 public:
  /// Whether what operand `i` of `op` (made outside) reads is copied into the region.
  using Embeds = std::function<bool(const Operation* op, size_t i)>;
  Outliner(Rewriter& rewriter, std::span<Operation* const> ops, const Embeds& embeds);

  /// Values from outside, each once, in the order of their first use.
  const std::vector<Value>& arguments() const { return arguments_; }
  /// Operations outside that are copied into the region, before the others.
  const std::vector<Operation*>& embedded() const { return embedded_; }
  /// Values that are used outside, each once, in the order of the operations.
  const std::vector<Value>& results() const { return results_; }
  std::vector<Type> result_types() const;
  /// Of all the operations.
  Location location() const;

  /// Uses of the results from outside become uses of `replacements`; the operations move to the end
  /// of `body`, a new block. Copied ones that are left without use are erased.
  void MoveInto(Block* body, std::span<const Value> replacements);

 private:
  void FindInputs(const Embeds& embeds);
  void FindResults();
  bool IsInside(const Operation* op) const { return inside_.count(op) != 0; }

  Rewriter& rewriter_;
  std::vector<Operation*> ops_;
  std::vector<Value> arguments_, results_;
  std::vector<Operation*> embedded_;
  std::unordered_map<const Operation*, bool> inside_;  // looked up, never iterated
};

}  // namespace lathe
