#pragma once

#include <functional>

#include "src/lower/compute/compute.h"

/// Convolutions of extents that no strategy takes, a piece of an image's positions at a time: the
/// patch of the input that each position sees is written to memory, then all filters are multiplied
/// by the patches of the piece.
namespace lathe::lower {

/// Filters of a group by patches.
struct PatchProduct {
  const WholeTensorEmitter& w;
  ElementType type;  ///< of the patches and sums
  Value patches;     ///< [rows, points]
  Dim first_row;     ///< of the group
  int64_t points;    ///< between the rows of `patches`
  Dim filters;
  std::function<Value(const Dim& filter, const Dim& row)> weight;  ///< of `type`
  std::function<Value(const Dim& filter, const Dim& i)> start;     ///< of the sum, of `type`
  std::function<Dim(const Dim& filter, const Dim& i)> place;       ///< in the first result
};

/// Writes the sums over `depth` rows of the patches for the first `count` points.
void Multiply(const PatchProduct& product, const Dim& depth, const Dim& count);

/// nn.conv and nn.conv_transpose, `w.op`, whose operands are arguments of the function.
void WriteByPatches(const WholeTensorEmitter& w);
/// Whether extents of the filters are open, and what WriteByPatches needs is there.
bool AreOpenFilters(const Operation& op);

}  // namespace lathe::lower
