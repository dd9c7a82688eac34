#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "lathe/lower/loop_builder.h"
#include "lathe/lower/lower_function.h"
#include "lathe/support/divide.h"
#include "src/dialect/nn/window.h"

namespace lathe::lower {

/// Largest scratch memory, in bytes, of a strategy that copies the input of its windows.
inline constexpr int64_t kMostScratch = 1 << 19;

/// The product of extents or strides; 1 if there are none.
int64_t ProductOf(std::span<const int64_t> values);

/// A row of a tensor, or each stride-th element of it, on its way to scratch memory.
struct PaddedRow {
  int64_t front = 0;    ///< padding before it
  int64_t count = 0;    ///< elements
  int64_t columns = 0;  ///< that are wanted, the rest is padding
  int64_t first = 0;    ///< the first element's position in the tensor
  int64_t stride = 1;
};

/// Writes columns 0 .. `row.columns`-1, and up to a vector more, of the scratch memory's row `to`.
/// `from`: the indices of the tensor's row; `padding`: a vector.
void CopyPaddedRow(LoopBuilder& lb, const PaddedRow& row, Value tensor, std::vector<Value> from,
                   Value scratch, Value to, Value padding);

/// A vector of outputs along the last axis.
struct OutputVector {
  int64_t offset;  ///< from the first output of its tile
  int64_t live;    ///< how many of its lanes are outputs
};

/// Reads what windows over planes [D1, ..., Dk] (k >= 2) of static extents see, as vectors along
/// the last axis. Without padding it reads the planes themselves. Otherwise a band of the outputs
/// of the first axis at a time is copied to scratch memory with padding around it, in which
/// elements that are a stride apart are neighbors.
class WindowReader {
 public:
  struct Options {
    ElementType element;
    int64_t lanes;
    double padding = 0;       ///< what the padding holds
    int64_t planes = 1;       ///< that are read together
    int64_t tile_rows = 1;    ///< a band holds a multiple of these
    int64_t cache_bytes = 0;  ///< that a band should fit into
    bool masks = false;       ///< the machine loads parts of vectors by one instruction
  };
  WindowReader(const nn::Window& window, const Options& options);

  /// 0: nothing is copied.
  int64_t scratch_bytes() const;
  /// How many outputs of the first axis a band has; the last band may have less.
  int64_t band() const { return band_; }
  int64_t bands() const { return CeilDiv(window_.out[0], band_); }

  /// `memory`: [planes, D1, ..., Dk]. The scratch memory is the calling thread's.
  void Allocate(LoopBuilder& lb, Value memory);
  /// Gets the planes from `plane` on ready for band number `band`.
  void Open(Value plane, Value band);

  /// Places are in this plane of those that are read together, from now on.
  void Select(Value plane) { selected_ = plane; }

  /// Where a tile reads.
  struct Place {
    std::vector<Value> index;
  };
  /// Of the outputs from `outputs` on, that of the first axis counted from the band's first.
  Place At(std::span<const Value> outputs);
  /// The place moved by elements of the input along an axis other than the last.
  Place Moved(const Place& place, size_t axis, Value elements);
  /// The same place in another plane of those that are read together.
  Place OfPlane(const Place& place, Value plane);
  /// What kernel position `k` of the last axis reads for a vector of outputs; along the others,
  /// that many elements of the input from the place on.
  Value Load(const Place& place, std::span<const int64_t> offsets, int64_t k, OutputVector vector);

 private:
  size_t last() const { return window_.rank() - 1; }
  int64_t Reach(size_t axis, int64_t outputs) const;
  int64_t Positions(size_t axis) const;
  bool IsDirect() const;
  void LayOut();
  size_t SlotOf(int64_t k) const;
  void CopyAxis(size_t axis, std::vector<Value> input, Value row, Value band);
  void CopyRow(const std::vector<Value>& input, Value row);
  void CopySlot(const std::vector<Value>& input, Value row, int64_t phase);
  void Fill(Value row);
  Value Plus(Value v, int64_t offset) const;

  nn::Window window_;
  Options options_;
  int64_t band_ = 1;
  bool direct_ = false;
  std::vector<int64_t> phases_;         // of the last axis's stride that are read, one slot each
  std::vector<int64_t> rows_per_step_;  // of the scratch memory, per axis but the last
  int64_t plane_rows_ = 0;
  int64_t columns_ = 0, pitch_ = 0;  // columns that are read, and the extent of a row

  LoopBuilder* lb_ = nullptr;
  Value memory_, scratch_, plane_, first_, padding_, selected_;
};

/// Walks all outputs of a plane, tile by tile.
class WindowTiles {
 public:
  struct Tile {
    std::vector<Value> outputs;  ///< the first one's position, per axis
    WindowReader::Place place;
    int64_t rows = 1;  ///< neighbors along the axis before the last
    std::vector<OutputVector> vectors;
  };
  using Body = std::function<void(const Tile&)>;

  WindowTiles(const nn::Window& window, int64_t lanes, int64_t rows, int64_t vectors)
      : window_(window), lanes_(lanes), rows_(rows), vectors_(vectors) {}

  /// `open` is called at the beginning of each band, before the band's tiles.
  void Write(LoopBuilder& lb, WindowReader& reader, const std::function<void(Value band)>& open,
             const Body& body);

 private:
  void Rows(std::vector<Value> outputs, Value base);
  void RowTile(std::vector<Value> outputs, Value row, Value base, int64_t rows);

  const nn::Window& window_;
  int64_t lanes_, rows_, vectors_;
  LoopBuilder* lb_ = nullptr;
  WindowReader* reader_ = nullptr;
  const Body* body_ = nullptr;
};

/// The window with a leading axis of extent 1 if it has one axis only.
nn::Window WithRows(nn::Window window);

/// Rows of a kernel of few channels that are added at a time, in equal parts, each column by
/// column. Every strategy for such convolutions adds in this order, so that their results are the
/// same bits.
inline constexpr int64_t kKernelRows = 8;

/// Lanes of a vector for rows of that many outputs.
int64_t LanesFor(int64_t outputs, int64_t most);

/// How many of `planes` small planes should be copied before any is read: a load that spans what
/// several stores have just written waits until these have left the processor. `options`: of one.
int64_t PlanesTogether(const nn::Window& window, const WindowReader::Options& options,
                       const Dim& planes);

/// Outputs along an axis that a tile has, at most `most`.
int64_t TileRowsFor(int64_t outputs, int64_t most);

}  // namespace lathe::lower
