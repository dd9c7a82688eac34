#include "src/driver/find_constraints.h"

#include <algorithm>

#include "lathe/dialect/shape_inference.h"
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

void AddFound(Program& program, std::vector<runtime::PlanConstraint>& constraints) {
  for (const SizeConstraint& found : FindSizeConstraints(program)) {
    const auto same = [&](const runtime::PlanConstraint& c) {
      return c.condition == found.condition;
    };
    if (std::ranges::none_of(constraints, same)) constraints.push_back(Planned(found));
  }
}

// What functions compute, in terms of their calls.
Program Inlined(const Program& program) {
  Program inlined = program.Clone();
  PassManager manager;
  manager.Add("inline{max_ops=1000}");
  manager.Run(inlined);
  ShapeInferencer(&inlined.parameters()).Visit(inlined);
  return inlined;
}

}  // namespace

void AddConstraints(Program& program, std::vector<runtime::PlanConstraint>& constraints) {
  if (!FunctionTable(program).empty()) {
    Program inlined = Inlined(program);
    return AddFound(inlined, constraints);
  }
  AddFound(program, constraints);
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
