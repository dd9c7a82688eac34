#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lathe/ir/operation.h"

/// Transformations of loops that keep what they compute. Each takes a `loop.for` and checks its
/// precondition; where that does not hold it throws lower/schedule with the program, the loop
/// marked, and nothing has changed. `WhyNot...` asks before; empty if it can be done.
namespace lathe::schedule {

/// The only loop directly in the body of another one that holds nothing else; null if it is not so.
Operation* PerfectlyNested(const Operation* loop);

struct SplitLoops {
  Operation* outer;
  Operation* inner;  ///< of `factor` iterations
  Operation* rest;   ///< the last iterations, fewer than `factor`; null if there are none
};
/// for i < n: for o < n / factor: for i < factor, then the rest. The loop is erased.
SplitLoops Split(Operation* loop, int64_t factor);
std::string WhyNotSplit(const Operation* loop, int64_t factor);

/// A loop and the one perfectly nested in it become one. Returns that.
Operation* Fuse(Operation* outer);
std::string WhyNotFuse(const Operation* outer);
/// Whether no index would need a division afterwards.
bool FusesWithoutDivision(const Operation* outer);

/// A loop and the one perfectly nested in it change places; returns the new outer one. Iterations
/// must not depend on one another.
Operation* Interchange(Operation* outer);
std::string WhyNotInterchange(const Operation* outer);

/// Blocks of rows x columns iterations of two perfectly nested loops: four loops and the rests.
/// Returns the outermost ones.
std::vector<Operation*> Tile(Operation* outer, int64_t rows, int64_t columns);

/// Writes out all iterations of a loop of constant extent.
void Unroll(Operation* loop);
std::string WhyNotUnroll(const Operation* loop);

/// Iterations may run at once: none writes what another reads or writes.
void Parallel(Operation* loop);
std::string WhyNotParallel(const Operation* loop);

/// Scalars become vectors of `lanes` iterations, with a masked rest. Stores must advance by one
/// element in the last axis, loads by any constant number, or not at all.
void Vectorise(Operation* loop, int64_t lanes);
std::string WhyNotVectorise(const Operation* loop);
/// The same over squares of iterations of two perfectly nested loops, for loads that read
/// neighbours along the outer one: they are read so, and turned in registers.
void VectoriseTurned(Operation* outer, int vector_bytes);
std::string WhyNotVectoriseTurned(const Operation* outer);
/// Whether some load in `inner` reads neighbours along `outer`, a loop around it, and elements far
/// apart along `inner`.
bool ReadsAlong(const Operation* outer, const Operation* inner);
/// Lanes such that the widest of the vectors fills a register.
int64_t SuitableLanes(const Operation* loop, int vector_bytes);

}  // namespace lathe::schedule
