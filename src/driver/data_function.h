#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lathe/ir/operation.h"
#include "lathe/support/dim.h"

namespace lathe {

/// A function that computes nothing: its results are bytes of its arguments, so that memory can be
/// planned such that nothing, or little, is to be done.
struct DataFunction {
  /// `bytes` of argument `argument` from `offset` on.
  struct Part {
    size_t argument;
    uint64_t offset;
    Dim bytes;
  };
  /// Per result what lies in it, one after the other; all but the last part of constant size.
  std::vector<std::vector<Part>> results;
};

/// What a `builtin.func` is as such a function, before it is lowered; nothing if it computes
/// something. Such are chains of reshapes, transpositions of axes of extent 1, concatenations along
/// the outermost axis, and what is cut out along it.
std::optional<DataFunction> AsDataFunction(const Operation* function);

/// Bytes of a tensor, made of the symbols of its dims; unknown if those are.
Dim BytesOf(AnyTensorType type);

}  // namespace lathe
