#pragma once

#include <functional>
#include <string>

#include "test/differential/graph_grower.h"

namespace lathe::testing {

/// Whether a candidate shows what is looked for.
using Shows = std::function<bool(const Case&)>;

/// Of a case, as small a one as can be found that still shows it: fewer input sets, outputs,
/// operations (values become inputs, or one that was computed of another takes its place), symbols
/// and elements. `shows` is asked at most `most` times.
Case ShrinkCase(const Case& trial, const Shows& shows, int most);

}  // namespace lathe::testing
