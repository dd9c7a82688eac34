#pragma once

#include <optional>

namespace lathe::python {

/// Seconds of a timeout that Python gives; 0, which is no limit, for None and for more than a
/// century. Errors: run/timeout unless it is more than 0.
double SecondsOf(std::optional<double> timeout);

}  // namespace lathe::python
