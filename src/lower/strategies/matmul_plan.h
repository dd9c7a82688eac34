#pragma once

#include "lathe/lower/lowering.h"
#include "src/lower/strategies/matmul_form.h"
#include "src/lower/tiles.h"

namespace lathe::lower {

inline constexpr int64_t kFewRows = 4;

/// Where a tile finds the right matrix.
enum class RightPlace : uint8_t {
  kInPlace,  ///< where the argument lies, its columns side by side
  kPanel,    ///< in a panel that is packed while the kernel runs
  kPacked,   ///< in the argument, packed into panels when the program is compiled
};

/// How a product is cut. An item of work is a block of rows by a group of panels.
struct ProductPlan {
  RightPlace right = RightPlace::kPanel;
  ElementType sum = ElementType::kUndefined;  ///< that products are summed in
  int64_t lanes = 1;
  Tile tile{1, 1};
  int64_t block_rows = 1;
  int64_t block_depth = 1;
  int64_t group_panels = 1;
  bool pack_left = false;
  bool writes_sums = false;  ///< result 0 can hold sums until they are complete
  Dim leading_blocks;        ///< of depth, before the last one; each is full
  Dim row_blocks, groups, items;
  Dim chunk;  ///< items that one thread takes at a time
};

/// What the products of elements of that type are summed in.
ElementType SumElement(ElementType element);

/// `computes_left`: elements of the left matrix are computed where they are read. No knob changes a
/// bit of the result: each sum goes down the depth, in whatever pieces.
ProductPlan PlanProduct(const ProductForm& form, RightPlace right, const Machine& machine,
                        bool writes_sums, bool computes_left, Knobs& knobs);

}  // namespace lathe::lower
