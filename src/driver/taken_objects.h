#pragma once

#include "lathe/runtime/plan.h"

namespace lathe {

/// Sets PlanStep::takes: where on every way an object is read for the last time, or before it is
/// written anew, the step may have it.
void MarkTakenObjects(runtime::Plan& plan);

}  // namespace lathe
