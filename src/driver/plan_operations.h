#pragma once

#include <vector>

#include "src/dialect/cf/loop_sizes.h"
#include "src/driver/plan_builder.h"

namespace lathe {

/// The operations of the program's block that outputs depend on, in program order; after a `cf.if`
/// or a `cf.while` those that its regions depend on, each with its terminator. What a call of a
/// data function passes besides the data (the shape of a reshape) is not read, nor is a constant as
/// it is that the kernel takes in an order of its own.
std::vector<Operation*> NeededOperations(const Program& program, const PlannedFunctions& functions);

/// What a `cf.while` takes, as far as it is given.
struct LoopOperands {
  explicit LoopOperands(const Operation* loop);
  Value trip_count, condition;
  std::vector<Value> carried;
};
using cf::kLoopArguments;

/// What a call runs; null if nothing is known of it.
const PlannedFunction* CalleeOf(const Operation* op, const PlannedFunctions& functions);

/// The names that a `nn.bind_sizes` gives to its elements, an empty one where it binds nothing;
/// null for another operation.
std::vector<std::string> BoundNames(const Operation* op);

/// The symbols that are a dim of some input, the first of each name.
std::vector<runtime::PlanSymbol> SymbolsOf(const Program& program);

}  // namespace lathe
