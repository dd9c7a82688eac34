#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/ir/program.h"
#include "lathe/runtime/plan.h"

namespace lathe {

/// Gives every extent of an input that no symbol of an input decides one of its own, "x.0", so that
/// what a run must fit can be said, and infers the other types again.
void NameUnknownExtents(Program& program);

/// Where the program declares an extent of a result that only a run knows, makes the program bind
/// it and adds the constraint that it is what was declared (`run/result-type`). Operations within
/// regions are left out.
void BindDeclaredSizes(Program& program, std::vector<runtime::PlanConstraint>& constraints);

/// Adds the size constraints of a program and of the functions that it calls, as a plan holds them,
/// each condition once. The program is the same afterwards. Throws where an operation cannot be
/// right.
void AddConstraints(Program& program, std::vector<runtime::PlanConstraint>& constraints);

/// Erases the bindings that nothing reads and whose sizes inference knows (pass `release_sizes`);
/// the names with what they are.
std::map<std::string, Dim, std::less<>> TakeReleasedSizes(Program& program);

/// The attribute of a region's terminator that says which of the conditional constraints its
/// operations rely on: indices. Without it nobody knows.
inline constexpr const char* kReliesOnAttr = "relies_on";
/// Adds the constraints of operations within regions, of which there are no functions, and marks
/// the regions with them, beside those that they are marked with. A region keeps the marks of
/// before a pass: what the pass builds on may no longer be in it.
void MarkRegions(Program& program, std::vector<runtime::PlanConstraint>& conditional);

using SymbolSet = std::set<std::string_view>;
/// Their names, which are the symbols' own.
SymbolSet NamesOf(const std::vector<runtime::PlanSymbol>& symbols);
/// Whether the symbols of these names decide a condition.
bool AreKnown(const SymbolSet& names, const SizeCondition& condition);
/// Those that the symbols decide.
std::vector<runtime::PlanConstraint> ConstraintsOn(
    const std::vector<runtime::PlanSymbol>& symbols,
    const std::vector<runtime::PlanConstraint>& constraints);

}  // namespace lathe
