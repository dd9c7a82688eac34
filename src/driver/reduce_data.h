#pragma once

#include "src/driver/reduce_edits.h"

/// Edits of the sizes and the weights of a program (reduce_edits.h says what an edit is).
namespace lathe::reduction {

/// Inputs of symbolic or unknown sizes, which get those of the one set of inputs; without inputs
/// symbols, which become kUsualExtent. None if there are several sets.
size_t CountOpenSizes(const FailingCase& c);
bool FixSize(FailingCase& c, size_t begin, size_t end, CaseValues& values);

/// Static extents, each with smaller ones: wherever inputs and parameters have the extent, and in
/// all types that follow. None if there are several sets of inputs.
size_t CountSmallerExtents(const FailingCase& c);
bool ShrinkExtent(FailingCase& c, size_t begin, size_t end, CaseValues& values);

/// Floating-point parameters that do not change, and large constants: all elements become one
/// number.
size_t CountWeights(const FailingCase& c);
bool SplatWeights(FailingCase& c, size_t begin, size_t end, CaseValues& values);
/// Whether an operation makes such a weight: it does not count as one.
bool IsSplat(const Operation& op);

}  // namespace lathe::reduction
