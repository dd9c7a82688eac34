#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "lathe/ir/builder.h"
#include "lathe/support/dim.h"

namespace lathe::schedule {

/// Index expressions over values that are no `loop.index` themselves: counters, extents, loaded
/// integers. Each such leaf is a symbol.
class Leaves {
 public:
  /// `keeps`: expressions are kept, as nothing changes while this is in use.
  explicit Leaves(bool keeps = false) : keeps_(keeps) {}

  /// What an integer is made of.
  Dim Of(Value v);
  Dim SymbolOf(Value leaf);
  /// The leaf of that symbol; null if it is none.
  Value Leaf(std::string_view symbol) const;
  std::vector<Value> In(const Dim& expr) const;
  bool Reads(const Dim& expr, Value leaf) const;
  /// How much the expression grows where the leaf grows by one; unknown if that is not fixed.
  Dim Slope(const Dim& expr, Value leaf);
  Dim Replace(const Dim& expr, Value leaf, const Dim& by);
  Value Emit(Builder& b, const Dim& expr) const;

 private:
  std::vector<Value> leaves_;
  bool keeps_;
  std::unordered_map<Value, Dim> kept_;
};

/// Iterations of a loop.for.
Dim ExtentOf(const Operation* loop, Leaves& leaves);
Value CounterOf(const Operation* loop);
/// An empty loop here; its block lacks the terminator.
Operation* MakeLoop(Builder& b, const Leaves& leaves, const Dim& extent, bool parallel = false);
void EndLoop(Operation* loop);
/// Uses of a counter become uses of an expression.
void ReplaceCounter(Value counter, const Dim& expr, Leaves& leaves);
/// The memory that a load or store goes to, through views.
Value BaseMemory(Value memory);

[[noreturn]] void Refuse(const Operation* loop, std::string_view primitive, std::string_view why);

}  // namespace lathe::schedule
