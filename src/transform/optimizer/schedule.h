#pragma once

#include "lathe/pass/pass.h"
#include "src/transform/optimizer/scalar.h"

namespace lathe {

/// The options of every optimizer that say how its rate changes from update to update.
void AddScheduleOptions(PassRegistrar& pass);

/// Errors: optimizer/option for a schedule that does not exist or lacks a number.
void CheckSchedule(const Pass& pass);

/// The rate of the update after `step` others, from the pass's `lr` and its schedule; of `plateau`
/// without the factor that the trainer sets.
Scalar ScheduledRate(const Pass& pass, const Scalar& step);

}  // namespace lathe
