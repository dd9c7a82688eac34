#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lathe/ir/operation.h"

namespace lathe::lower {

/// Leaves all elements in their order: reshape, flatten, squeeze, unsqueeze.
bool IsReshape(const Operation& op);
/// Moves each element somewhere: a reshape, or a transposition.
bool IsLayout(const Operation& op);

/// Where the elements of a tensor of known extents lie after reshapes and transpositions.
class ElementLayout {
 public:
  /// Indices of a loop that are taken apart: (index / stride) % extent.
  struct Part {
    size_t loop;
    int64_t extent, stride;
    bool operator==(const Part&) const = default;
  };

  /// The tensor: per axis its extent and the loop that walks it. Neighboring axes of one loop are
  /// walked as one.
  ElementLayout(std::span<const int64_t> extents, std::span<const size_t> loops);

  /// False if the elements cannot be told apart by parts of indices; then the layout is of no use.
  bool Apply(const Operation& op);
  /// The axes that the elements lie in at last, row-major; no axis is of extent 1.
  std::vector<Part> Parts() const;

 private:
  using Axis = std::vector<Part>;
  bool Reshape(std::span<const int64_t> extents);
  std::vector<Axis> axes_;
};

}  // namespace lathe::lower
