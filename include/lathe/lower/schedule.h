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
void Vectorize(Operation* loop, int64_t lanes);
std::string WhyNotVectorize(const Operation* loop);
/// The same over squares of iterations of two perfectly nested loops, for loads that read
/// neighbors along the outer one: they are read so, and turned in registers.
void VectorizeTurned(Operation* outer, int vector_bytes);
std::string WhyNotVectorizeTurned(const Operation* outer);
/// Whether some load in `inner` reads neighbors along `outer`, a loop around it, and elements far
/// apart along `inner`.
bool ReadsAlong(const Operation* outer, const Operation* inner);
/// Lanes such that the widest of the vectors fills a register.
int64_t SuitableLanes(const Operation* loop, int vector_bytes);

// ---- memory ----
// A memory is a function's argument or a `loop.alloc`, outside of the loop. What a loop touches of
// it must be a box of constant size: its indices are made of counters of loops, those within of
// constant extent.

struct Cache {
  Value memory;     ///< as large as what is touched
  Operation* copy;  ///< the loops that fill it (that write it back); null if it is one element
};
/// Before the loop, what it reads of a memory is copied to one of its own, which it reads instead.
Cache CacheRead(Operation* loop, Value memory);
std::string WhyNotCacheRead(const Operation* loop, Value memory);

/// The loop stores in a memory of its own, which is copied to its place afterwards. Where the loop
/// reads that memory, too, or does not write all of it, it is filled first.
Cache CacheWrite(Operation* loop, Value memory);
std::string WhyNotCacheWrite(const Operation* loop, Value memory);

/// `producer` are perfectly nested loops that compute all elements of a memory, which only `loop`
/// reads. Afterwards each iteration of `loop` computes the elements that it reads itself. Returns
/// the loops that do; null if it is one element.
Operation* ComputeAt(Operation* producer, Operation* loop);
std::string WhyNotComputeAt(const Operation* producer, const Operation* loop);

/// The elements of a `loop.alloc` lie in another order: that axis becomes two, blocks of `factor`
/// elements, and the inner one the last of all.
Value Pack(Value memory, size_t axis, int64_t factor);
std::string WhyNotPack(Value memory, size_t axis, int64_t factor);

// ---- tiles ----

/// Nested loops that compute a product of blocks become operations on tiles (see loop.tile_mma), in
/// the same order of sums, so that no bit changes. The loops are, from `loop` inwards, perfectly
/// nested ones over rows and columns of what is stored; then the sum of one element, from zero or
/// from what was stored there; last its store:
///
///   for i: for j: s = for k, carrying from 0: s + products at depth k;  store s at (i, j)
///
/// The innermost loops of rows and of columns are those of a tile (16 rows, 16 columns at most),
/// the others of constant extent those of a block of tiles, of which as many sums are held in
/// registers at once. `k` may be a loop around another one: each iteration of that is one tile of
/// depth (64 bytes at most). The right matrix lies with the depth in groups, as `Pack` of its depth
/// leaves it: pairs of bf16, four bytes. Sums of bytes are i32, in any form. Those of bf16 are f32,
/// two of them, interleaved, from zero, with one rounding a product, which are added before what is
/// carried is added:
///
///   (e, o) = for k, carrying (0, 0): (fma(a[2k], b[k, j, 0], e), fma(a[2k+1], b[k, j, 1], o))
///   s + (e + o)
void Tensorize(Operation* loop);
std::string WhyNotTensorize(const Operation* loop);

/// Memories outside of a loop that it touches, in order of the first access.
std::vector<Value> MemoriesOf(const Operation* loop);

}  // namespace lathe::schedule
