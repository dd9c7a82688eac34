#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "lathe/driver/reduce.h"
#include "src/driver/reduce_values.h"

/// The ways to make a program smaller that Reduce tries.
namespace lathe::reduction {

/// How many items are edited at once at first.
enum class FirstChunk : uint8_t { kAll, kHalf, kOne };

/// A kind of edit: a case has a number of items, in program order, and a range of them can be
/// edited away in a copy of the case.
struct Edit {
  FirstChunk first;
  size_t (*count)(const FailingCase& c);
  /// `copy` is a copy of the case that has these items. False if there is nothing to try. Errors
  /// of shape inference say the same.
  bool (*apply)(FailingCase& copy, size_t begin, size_t end, CaseValues& values);
};

/// In the order in which they pay.
std::span<const Edit> Edits();
/// For when the others find nothing more: afterwards less is known of the weights.
std::span<const Edit> LastEdits();

/// A name for an input or output that a value becomes, added to those that are taken: the one in
/// the file, if there is one and it is free.
std::string FreeName(Value value, std::set<std::string>& taken);

/// Drops operations whose results nobody reads, inputs that nobody reads, and their values.
void EraseUnused(FailingCase& c);

}  // namespace lathe::reduction
