#pragma once

#include <optional>

namespace lathe::python {

/// Seconds of a timeout that Python gives; 0, which means without a limit, for None and more than a
/// century. Errors: run/timeout unless it is more than 0.
double SecondsOf(std::optional<double> timeout);

}  // namespace lathe::python
