#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lathe/support/element_type.h"
#include "src/lower/schedule/leaves.h"

namespace lathe::schedule {

/// An element that is read or written: its index per axis of the memory.
struct Element {
  Operation* op = nullptr;
  Value memory = {};
  std::vector<Dim> at = {};

  ElementType type() const;
};

/// Two elements that are multiplied.
struct Factors {
  Element left, right;
};

/// Loops over the elements of a block of a product of matrices, as Tensorize takes them.
struct ProductNest {
  std::vector<const Operation*> loops;  ///< perfectly nested, outermost first; constant extents
  Element stored;
  std::optional<Element> start;       ///< that each sum starts from; nothing: zero
  const Operation* blocks = nullptr;  ///< of depth, the loop around `depth`; null: none
  const Operation* depth = nullptr;   ///< constant extent
  std::vector<Factors> products;      ///< of an iteration of `depth`

  /// Elements that a tile unit multiplies at once, one after the other down the depth.
  int64_t group() const;
};

/// Returns why the loop is no such nest; empty if it is.
std::string FindProducts(Operation* loop, Leaves& leaves, ProductNest& nest);

}  // namespace lathe::schedule
