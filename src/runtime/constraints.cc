#include "lathe/runtime/constraints.h"

#include <algorithm>

#include "lathe/support/error.h"

namespace lathe::runtime {
namespace {

const BoundSymbol* Find(std::span<const BoundSymbol> symbols, std::string_view name) {
  const auto found = std::ranges::find(symbols, name, &BoundSymbol::name);
  return found == symbols.end() ? nullptr : &*found;
}

std::vector<std::string> NamesIn(const SizeCondition& condition) {
  std::vector<std::string> names;
  condition.a.CollectSymbols(names);
  condition.b.CollectSymbols(names);
  return names;
}

Error Violation(const PlanConstraint& constraint, std::span<const BoundSymbol> symbols) {
  Error error(ErrorCode::kShape, constraint.id, constraint.message);
  if (!constraint.origin.empty()) error.At(constraint.origin);
  for (const std::string& note : constraint.notes) error.Note(note);
  error.Note(StrCat("it relies on ", constraint.condition.ToString()));
  for (const std::string& name : NamesIn(constraint.condition)) {
    const BoundSymbol* symbol = Find(symbols, name);
    const bool computed = symbol->input.empty();
    error.Note(
        StrCat(name, " = ", symbol->value,
               computed ? ", computed by the program" : StrCat(" by input '", symbol->input, "'")));
  }
  if (!constraint.hint.empty()) error.Hint(constraint.hint);
  return error;
}

}  // namespace

void CheckConstraints(std::span<const PlanConstraint> constraints,
                      std::span<const BoundSymbol> symbols) {
  const auto value_of = [&](std::string_view name) -> std::optional<int64_t> {
    const BoundSymbol* symbol = Find(symbols, name);
    return symbol == nullptr ? std::nullopt : std::optional(symbol->value);
  };
  for (const PlanConstraint& constraint : constraints) {
    if (constraint.condition.Holds(value_of)) continue;
    const auto is_bound = [&](const std::string& name) { return value_of(name).has_value(); };
    if (std::ranges::all_of(NamesIn(constraint.condition), is_bound)) {
      throw Violation(constraint, symbols);
    }
  }
}

}  // namespace lathe::runtime
