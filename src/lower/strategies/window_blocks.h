#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "src/lower/strategies/conv_rows.h"

namespace lathe::lower {

/// Walks the outputs of windows over planes whose extents are known when the program runs. What a
/// block of outputs reads is copied with its padding; tiles of the block then read it as if all
/// extents were known, and only stores look at where the plane ends.
class WindowBlocks {
 public:
  struct Sizes {
    int64_t lanes = 1;
    int64_t planes = 1;  ///< that are read together
    /// Most sets of such planes that are copied before the first is read: what has just been stored
    /// is read from cache, which takes a while to get there.
    int64_t sets = 1;
    int64_t tile_rows = 1, tile_vectors = 1;
    int64_t cache_bytes = 0;  ///< that what is copied at once should fit into
    double fill = 0;          ///< what the padding holds
    bool copies = true;       ///< else tiles read the input itself, without padding
  };
  /// Outputs of a tile: rows by vectors, from `row` and `column` of the block on.
  struct Tile {
    Dim row, column;
    std::vector<Dim> first;  ///< per spatial dim, of the plane
    Dim whole;               ///< 1 if all of them exist, else 0
  };
  using Body = std::function<void(const Tile&)>;
  using OpenSet = std::function<void(const Dim& set)>;

  WindowBlocks(const ConvGeometry& geometry, const Sizes& sizes);

  /// Of the memory that holds what a block reads.
  int64_t bytes() const;

  /// At the beginning of what a thread computes; `math` outlives the rest.
  void Open(LoopBuilder& lb, IndexMath& math);
  /// All outputs of so many sets of an image's planes from `first_plane` on. `open` comes before
  /// the tiles of a set.
  void Write(const ConvInput& input, const Dim& image, const Dim& first_plane, const Dim& sets,
             const OpenSet& open, const Body& body);
  /// Vector `v` of what place `column` of the kernel's last dim sees, in the block's row that lies
  /// `row` elements of the input behind what the tile's first row sees.
  Value Load(const Tile& tile, const Dim& plane, const Dim& outer, const Dim& row,
             const Dim& column, int64_t v);
  /// What a tile stores: written once for those that are whole and once for the others.
  void Finish(const Tile& tile, const Body& body);
  /// Indices of the output, and how many of a vector's lanes exist; null: all of them.
  std::vector<Value> At(const Tile& tile, const Dim& image, const Dim& channel, int64_t row,
                        int64_t v);
  Value Live(const Tile& tile, int64_t row, int64_t v);

 private:
  bool has_rows() const { return g_.rank() > 1; }
  int64_t RowElements() const;
  int64_t RowsOf(int64_t rows) const;
  void PickBlocks();
  void Clear(int64_t elements);
  Value LoadInput(const Tile& tile, const Dim& plane, Dim outer, const Dim& row, const Dim& column,
                  int64_t v);
  Dim LiveColumns(const Tile& tile, int64_t v) const;
  int64_t width() const { return sizes_.tile_vectors * sizes_.lanes; }
  Dim out_rows() const { return has_rows() ? g_.out[g_.rank() - 2] : Dim(1); }
  void WriteOuter(ConvBlock block, const Body& body);
  void WriteBlock(ConvBlock block, const Body& body);
  void WriteTiles(const ConvBlock& block, const Body& body);

  const ConvGeometry& g_;
  Sizes sizes_;
  int64_t block_rows_ = 1, block_columns_ = 1;  // most of them
  int64_t memory_rows_ = 1;

  // While writing.
  LoopBuilder* lb_ = nullptr;
  IndexMath* math_ = nullptr;
  std::optional<ConvRows> rows_;
  Value memory_;
  const ConvInput* input_ = nullptr;
  Dim rows_of_block_, together_;  // in this run: outputs of a block, and sets that are copied
  Dim image_, first_plane_, first_set_, sets_, set_;
  OpenSet open_;
};

/// How many of `all` sets of planes should be copied together.
int64_t SetsTogether(const Dim& all, int64_t planes);

}  // namespace lathe::lower
