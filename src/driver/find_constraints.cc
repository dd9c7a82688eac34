#include "src/driver/find_constraints.h"

#include <algorithm>

#include "lathe/dialect/size_constraints.h"
#include "lathe/ir/functions.h"
#include "lathe/pass/pass_manager.h"

namespace lathe {
namespace {

runtime::PlanConstraint Planned(const SizeConstraint& constraint) {
  const Error& error = constraint.error;
  runtime::PlanConstraint planned{.condition = constraint.condition,
                                  .id = error.id(),
                                  .message = error.message(),
                                  .origin = error.where(),
                                  .hint = error.hints().empty() ? "" : error.hints().front(),
                                  .notes = {}};
  for (const Note& note : error.notes()) planned.notes.push_back(note.text);
  return planned;
}

}  // namespace

std::vector<runtime::PlanConstraint> FindConstraints(Program& program) {
  if (!FunctionTable(program).empty()) {
    Program inlined = program.Clone();
    PassManager manager;
    manager.Add("inline");
    manager.Run(inlined);
    if (FunctionTable(inlined).empty()) return FindConstraints(inlined);
  }
  std::vector<runtime::PlanConstraint> all;
  for (const SizeConstraint& found : FindSizeConstraints(program)) all.push_back(Planned(found));
  return all;
}

std::vector<runtime::PlanConstraint> ConstraintsOn(
    const std::vector<runtime::PlanSymbol>& symbols,
    const std::vector<runtime::PlanConstraint>& constraints) {
  std::vector<runtime::PlanConstraint> decided;
  for (const runtime::PlanConstraint& c : constraints) {
    std::vector<std::string> names;
    c.condition.a.CollectSymbols(names);
    c.condition.b.CollectSymbols(names);
    const auto is_known = [&](const std::string& name) {
      return std::ranges::find(symbols, name, &runtime::PlanSymbol::name) != symbols.end();
    };
    if (std::ranges::all_of(names, is_known)) decided.push_back(c);
  }
  return decided;
}

}  // namespace lathe
