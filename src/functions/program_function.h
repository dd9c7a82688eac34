#pragma once

#include <span>
#include <string>
#include <vector>

#include "lathe/ir/operation.h"
#include "lathe/runtime/function.h"

namespace lathe {

/// Why the evaluation of its operators cannot compute a function; empty if it can.
std::string WhyNotEvaluated(const Operation* function);

/// Evaluates the operations of a function, which must live as long and not change.
runtime::Function FunctionOf(const Operation* function);

/// The operations of functions, and of those that they call, that no library of functions has: they
/// are of a plug-in. Each name once.
std::vector<std::string> ForeignOperations(std::span<const Operation* const> functions);

/// A function by itself, as PlanFunction::text.
std::string FunctionText(const Operation* function);

/// As runtime::FunctionLibrary.
std::vector<runtime::Function> FunctionsFromText(const std::vector<std::string>& texts);

}  // namespace lathe
