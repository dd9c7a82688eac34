#pragma once

#include "src/driver/reduce_edits.h"

/// Edits of loops (reduce_edits.h says what an edit is).
namespace lathe::reduction {

/// Loops and scans, of which the first round stays, in their place.
size_t CountLoops(const FailingCase& c);
bool KeepRound(FailingCase& c, size_t begin, size_t end, CaseValues& values);

/// Loops that go more than one round by their trip count: they go one.
size_t CountTripCounts(const FailingCase& c);
bool GoOneRound(FailingCase& c, size_t begin, size_t end, CaseValues& values);

/// What loops carry and change: it is what it was before the loop, and no longer carried.
size_t CountCarried(const FailingCase& c);
bool HoldCarried(FailingCase& c, size_t begin, size_t end, CaseValues& values);

/// What loops stack and nobody reads.
size_t CountUnreadStacks(const FailingCase& c);
bool DropStacks(FailingCase& c, size_t begin, size_t end, CaseValues& values);

}  // namespace lathe::reduction
