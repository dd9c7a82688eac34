#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/ir/stated_constraints.h"

namespace lathe {

/// Checks what a program states that it relies on, while it is interpreted: conditions on sizes
/// that inputs have or that a `nn.bind_sizes` has said.
class StatedSizes {
 public:
  explicit StatedSizes(const Program& program);

  /// Throws the error of a condition that does not hold of the inputs.
  void Begin(std::span<Operation* const> feeds, const NamedValues& inputs);
  /// The same once an operation has said sizes.
  void AfterOp(const Operation* op, std::span<const RtValue> results);
  /// The same of what the region states that ends there.
  void AtEnd(const Operation* terminator) const;

 private:
  void Check(std::span<const SizeConstraint> constraints) const;

  std::vector<SizeConstraint> constraints_;
  bool has_any_;
  std::map<std::string, int64_t, std::less<>> sizes_;
};

}  // namespace lathe
