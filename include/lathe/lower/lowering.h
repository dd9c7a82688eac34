#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/ir/block.h"
#include "lathe/lower/condition.h"
#include "lathe/lower/lower_function.h"

namespace lathe::lower {

/// Sizes that a strategy chooses among: of tiles, blocks, unrolled loops. Those that a tuned record
/// sets are taken, the others as the strategy prefers. What was asked for is remembered, so that a
/// tuner knows what there is to try.
class Knobs {
 public:
  Knobs() = default;
  /// From what ToString writes; tune/knobs for other text.
  static Knobs Parse(std::string_view text);
  void Set(std::string_view name, int64_t value) { set_[std::string(name)] = value; }

  /// The value that was set, if it is one of `values`; else the first of them.
  int64_t Choose(std::string_view name, std::vector<int64_t> values);
  /// The same of the preferred value and others, of which some may be the preferred one again.
  int64_t Choose(std::string_view name, int64_t preferred, std::span<const int64_t> others);
  /// "rows=9" for each that was set, but that nobody asked for or that is none of the values.
  std::vector<std::string> Unused() const;
  const std::vector<KnobChoice>& choices() const { return choices_; }
  /// "{rows=6,vectors=2}": what was set, in order of names; "" if nothing.
  std::string ToString() const;
  /// The same of what was set and taken.
  std::string TakenText() const;

 private:
  std::string Text(const std::function<bool(const std::string&, int64_t)>& shown) const;

  std::map<std::string, int64_t, std::less<>> set_;
  std::vector<KnobChoice> choices_;
};

/// A function that a strategy is asked to lower.
struct Lowering {
  const Block& function;
  Block* body;  ///< empty; its arguments are those of the function
  const Machine& machine;
  const std::vector<bool>& constant;
  Precision precision = Precision::kStrict;
  Knobs knobs = {};
  std::string why = {};  ///< why the strategy refuses
  std::vector<PackedLayout> packed = {};
  /// Where the strategy is the one to take. It must be right for all extents unless another
  /// strategy after it is; where extents are symbolic the choice is made at run time.
  Condition where = {};

  /// Whether a value of `function` is an argument that may be packed.
  bool IsConstant(Value v) const;
  /// Has argument `layout.argument` packed; returns the body's argument, of its new type.
  Value Pack(PackedLayout layout);
};

}  // namespace lathe::lower
