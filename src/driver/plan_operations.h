#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lathe/support/text.h"
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

/// The names that each `nn.bind_sizes` gives to its elements, once per block: a size of several
/// results is one symbol, and what is of its stage must have all symbols before it.
class BoundNames {
 public:
  /// By element of the operation, an empty one where it binds nothing, or what an operation before
  /// it in its block, or an element before, has bound; nothing of another operation.
  std::vector<std::string> Of(const Operation* op);

 private:
  std::set<std::pair<const Block*, std::string>> bound_;  // asked, never iterated
};

/// The symbol of what lies in the storage of a carried value: from the end of an iteration on it
/// is that of the next.
inline std::string NextName(const cf::LoopSize& size) { return StrCat(size.round, "_next"); }
inline std::string NextName(const cf::StackSize& size) { return StrCat(size.end, "_next"); }

/// The symbols that are a dim of some input, the first of each name.
std::vector<runtime::PlanSymbol> SymbolsOf(const Program& program);

}  // namespace lathe
