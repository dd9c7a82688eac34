#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lathe/ir/operation.h"

namespace lathe::lower {

/// Gives a function symbols of its own for extents of its arguments that are expressions over
/// symbols which no argument has: of `[N, floordiv(H, 4), 8]` alone nobody can tell H, but
/// `[N, e0, 8]` says all that its kernel needs. Types of results are inferred anew. Where these
/// would not follow from the new symbols (the height of a concatenation against that of its parts),
/// the function stays as it is.
class OwnSizes {
 public:
  explicit OwnSizes(Operation* function);
  /// Each new symbol and what it stands for; nothing if there are none.
  const std::vector<std::pair<std::string, Dim>>& symbols() const { return symbols_; }
  /// The types that were there before, for a function that nobody lowers.
  void Restore();

 private:
  void Set(Value v, Type type);
  bool Rename(Operation* function);

  std::vector<std::pair<Value, Type>> before_;
  std::vector<std::pair<std::string, Dim>> symbols_;
};

}  // namespace lathe::lower
