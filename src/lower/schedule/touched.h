#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lathe/ir/builder.h"
#include "src/lower/schedule/leaves.h"

namespace lathe::schedule {

/// A box of elements of a memory.
struct Box {
  std::vector<Dim> begin;       ///< per axis, of what is outside of the loops that are looked at
  std::vector<int64_t> extent;  ///< per axis
};

/// What loops read and write of one memory.
struct Touched {
  Box box;  ///< the least that holds all of it; not larger than the memory
  std::vector<Operation*> loads;
  std::vector<Operation*> stores;  ///< in program order, like the loads
};

enum class Scope : uint8_t { kWholeLoop, kIteration };

/// Finds what the iterations of a loop, or one of them, read and write of a memory that lies
/// outside of it. Returns why that is not known; empty if it is.
std::string FindTouched(const Operation* loop, Scope scope, Value memory, Leaves& leaves,
                        Touched& touched);
/// Whether one store writes each element of the box.
bool Covers(const Operation* loop, Scope scope, const Touched& touched, Leaves& leaves);

/// Memory for a box.
Value AllocBox(Builder& b, const Box& box, ElementType element);
/// Loops that copy as many elements as `extent` says from one place to another. Returns the
/// outermost; null where it is one element.
Operation* CopyBox(Builder& b, Leaves& leaves, const std::vector<int64_t>& extent, Value from,
                   const std::vector<Dim>& from_begin, Value to, const std::vector<Dim>& to_begin);
/// Makes a load or store go to memory that holds only the box.
void Redirect(Operation* access, Value to, const std::vector<Dim>& begin, Leaves& leaves);

bool IsInside(const Operation* op, const Operation* loop);
/// The loop around the operation that is parallel, if there is one.
const Operation* ParallelAround(const Operation* op);
/// Whether anything within an operation stores in a memory, or in a view of it.
bool StoresIn(Operation* op, Value memory);

}  // namespace lathe::schedule
