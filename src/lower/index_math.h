#pragma once

#include <unordered_map>
#include <vector>

#include "lathe/lower/loop_builder.h"

namespace lathe::lower {

/// Arithmetic on the integers of loops as arithmetic on dim expressions, which are simplified and
/// become code where a value is asked for.
class IndexMath {
 public:
  explicit IndexMath(LoopBuilder& lb) : lb_(lb) {}

  /// A value as an expression; it must not be negative.
  Dim Of(Value v);
  /// An extent of the function's types as an expression of values.
  Dim Extent(const Dim& dim) { return dim.is_constant() ? dim : Of(lb_.Extent(dim)); }
  /// That share the parallel loops of the kernel; outside of them. No result may depend on it.
  Dim NumThreads();
  /// The value of an expression of values.
  Value At(const Dim& expr);
  /// The same expression as one name; it must not be negative.
  Dim Name(const Dim& expr) { return expr.is_constant() ? expr : Of(At(expr)); }
  std::vector<Value> At(std::initializer_list<Dim> exprs);
  /// A loop over 0 .. extent-1; not written where it is known to run never or once.
  void For(const Dim& extent, bool parallel, const std::function<void(const Dim& i)>& body);

 private:
  LoopBuilder& lb_;
  std::vector<Value> values_;                   // behind the names
  std::unordered_map<Value, size_t> position_;  // in values_; looked up, never iterated
};

}  // namespace lathe::lower
