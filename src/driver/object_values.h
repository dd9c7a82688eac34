#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lathe/ir/program.h"
#include "src/driver/plan_builder.h"

namespace lathe {

/// What a plan of a program holds as objects (runtime::PlanValue): values other than tensors,
/// strings, and tensors of a rank or of sizes that are not known where they are made. And which
/// calls are functions of the plan: those that give such values, and those that have no kernel.
class ObjectValues {
 public:
  ObjectValues(const Program& program, const PlannedFunctions& functions);

  bool contains(Value v) const { return objects_.contains(v); }
  /// Its operations are evaluated, also if there is a kernel.
  bool IsEvaluated(const Operation* call) const { return evaluated_.contains(call); }
  /// Which axes of an object say sizes that are known from there on: axis and symbol.
  using Sizes = std::vector<std::pair<uint32_t, std::string>>;
  const Sizes& SizesOf(Value v) const;
  /// Whether its shape says sizes.
  bool SaysSizes(const Operation* op) const;

 private:
  friend class ObjectFinder;
  // Asked, never iterated.
  std::unordered_set<Value> objects_;
  std::unordered_set<const Operation*> evaluated_;
  std::unordered_map<Value, Sizes> sizes_;
};

}  // namespace lathe
