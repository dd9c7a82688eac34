#pragma once

#include <string>

#include "lathe/ir/operation.h"
#include "lathe/runtime/function.h"

namespace lathe {

/// Why the evaluation of its operators cannot compute a function; empty if it can.
std::string WhyNotEvaluated(const Operation* function);

/// Evaluates the operations of a function, which must live as long and not change.
runtime::Function FunctionOf(const Operation* function);

/// A function by itself, as PlanFunction::text.
std::string FunctionText(const Operation* function);

/// As runtime::FunctionLibrary.
runtime::Function FunctionFromText(const std::string& text);

}  // namespace lathe
