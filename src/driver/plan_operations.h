#pragma once

#include <vector>

#include "src/dialect/cf/loop_sizes.h"
#include "src/driver/plan_builder.h"

namespace lathe {

class ObjectValues;

/// All operations in the order in which a run comes to them, with those of the regions that are
/// planned.
std::vector<Operation*> PlannedOrder(const Program& program);

/// The operations of the program's block that outputs depend on, in program order; after a `cf.if`
/// or a `cf.while` those that its regions depend on, each with its terminator. What a call of a
/// data function passes besides the data (the shape of a reshape) is not read, nor is a constant as
/// it is that the kernel takes in an order of its own.
std::vector<Operation*> NeededOperations(const Program& program, const PlannedFunctions& functions,
                                         const ObjectValues& objects);

/// What a `cf.while` takes, as far as it is given.
struct LoopOperands {
  explicit LoopOperands(const Operation* loop);
  Value trip_count, condition;
  std::vector<Value> carried;
};
using cf::kLoopArguments;

/// Whether carried value `i` of a `cf.while` is of one type from its start to the result, but for
/// extents that have names (cf/loop_sizes.h).
bool KeepsTypeInLoop(const Operation* loop, size_t i);
/// Whether the rounds of a loop compute sizes of such a type, of a result: its memory is placed
/// once, and another round would place it again without what rounds before have put there.
bool IsSaidInRounds(const Operation* loop, Type type);

/// What a call runs; null if nothing is known of it.
const PlannedFunction* CalleeOf(const Operation* op, const PlannedFunctions& functions);

/// The names that a `nn.bind_sizes` gives to its elements, an empty one where it binds nothing;
/// null for another operation.
std::vector<std::string> BoundNames(const Operation* op);

/// The symbols that are a dim of some input, the first of each name.
std::vector<runtime::PlanSymbol> SymbolsOf(const Program& program);

}  // namespace lathe
