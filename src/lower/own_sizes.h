#pragma once

#include <string>
#include <string_view>
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

/// Names the symbols of a function s0, s1 and so on, in the order in which its types have them,
/// with `own` those of OwnSizes among them: functions that differ in names only, or in what extents
/// are outside, are one.
class StandardSymbols {
 public:
  StandardSymbols(Operation* function, bool own);

  /// Each symbol, and what it stands for outside.
  const std::vector<std::pair<std::string, Dim>>& symbols() const { return symbols_; }
  /// Whether extents have symbols that were none before.
  bool has_own() const { return has_own_; }
  /// An expression over these symbols as it is outside.
  Dim Outside(const Dim& dim) const;
  /// A message in terms of what is outside.
  std::string Outside(std::string_view text) const;

 private:
  std::vector<std::pair<std::string, Dim>> symbols_;
  bool has_own_ = false;
};

}  // namespace lathe::lower
