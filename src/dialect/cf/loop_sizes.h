#pragma once

#include <string>
#include <vector>

#include "lathe/ir/operation.h"

/// The extents of what a `cf.while` gives that only a run knows.
namespace lathe::cf {

/// Arguments of a loop's body before the carried values: the iteration number and the condition.
inline constexpr size_t kLoopArguments = 2;

/// The name that the extents of result `i` are made of; empty if there is none.
std::string SizesName(const Operation* loop, size_t i);

/// The type with each unknown extent as the symbol that it is in an iteration; the same without a
/// name or a rank.
Type InRound(Type type, const std::string& name);
/// The same of the result, or of its first `axes` axes.
Type AtEnd(Type type, const std::string& name, size_t axes = ~size_t{0});
/// The type of an argument with such symbols unknown again.
Type WithoutRound(Type type, const std::string& name);

struct LoopSize {
  size_t carried;  ///< which value
  size_t axis;
  std::string round, end;  ///< symbols: what each iteration starts from, and the result
};
/// Those that have names, in the order of the carried values and their axes.
std::vector<LoopSize> LoopSizes(const Operation* loop);

struct StackSize {
  size_t result;    ///< which scan output
  std::string end;  ///< symbol of the number of its pieces
};
std::vector<StackSize> StackSizes(const Operation* loop);

}  // namespace lathe::cf
