#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/dialect/size_constraints.h"
#include "lathe/ir/program.h"
#include "lathe/runtime/plan.h"

namespace lathe {

/// As a plan holds them.
std::vector<runtime::PlanConstraint> PlanConstraintsOf(
    const std::vector<SizeConstraint>& constraints);

/// Where the program declares an extent of a result that only a run knows, makes the program bind
/// it; the constraints that it is what was declared (`run/result-type`). Operations within regions
/// are left out.
std::vector<SizeConstraint> BindDeclaredSizes(Program& program);

/// Erases the bindings that nothing reads and whose sizes inference knows (pass `release_sizes`);
/// the names with what they are.
std::map<std::string, Dim, std::less<>> TakeReleasedSizes(Program& program);

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
