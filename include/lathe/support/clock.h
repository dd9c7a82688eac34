#pragma once

namespace lathe {

/// Seconds from some point on that pass at the same rate, whatever the clock on the wall does.
double SecondsNow();
/// Processor time of this thread in seconds: what other threads and processes take meanwhile does
/// not count.
double ThreadSeconds();

}  // namespace lathe
