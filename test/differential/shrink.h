#pragma once

#include <functional>

#include "test/differential/graph_grower.h"

namespace lathe::testing {

/// Whether a candidate shows what is looked for.
using Shows = std::function<bool(const Case&)>;

/// Of a case that shows it, as small a one as can be found that does (lathe/driver/reduce.h), with
/// fewer sets of inputs, too. `shows` is asked at most `most` times. Errors: reduce/no-failure.
Case ShrinkCase(const Case& trial, const Shows& shows, int most);

}  // namespace lathe::testing
