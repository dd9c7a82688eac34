#pragma once

#include <optional>
#include <vector>

#include "src/lower/index_math.h"
#include "src/lower/strategies/conv_geometry.h"
#include "src/lower/strategies/conv_input.h"

namespace lathe::lower {

/// A part of the output: `rows` times `columns` positions of one plane, from `row` and `column` on.
struct ConvBlock {
  std::vector<Dim> outer;  ///< indices of the spatial dims before the last two
  Dim row, column;
  Dim first;          ///< of the positions, counted over all spatial dims
  Dim rows, columns;  ///< at most those of the ConvRows
};

/// The rows of the input that a block reads, copied to memory with the padding around them. Kernels
/// of one spatial dim count as planes of one row.
class ConvRows {
 public:
  ConvRows(LoopBuilder& lb, IndexMath& math, const ConvGeometry& geometry, int64_t lanes,
           int64_t block_rows, int64_t block_columns, double fill = 0);
  /// Four channels of bytes lie together at each position, as loop.dot takes them, or two, as i16,
  /// as loop.dot_pairs does, and count as one channel; the padding holds a scalar.
  void GroupBytes(int64_t group, Value padding);
  /// Two channels of f32, of an even number, become bf16 and lie together, as loop.dot_pairs takes
  /// them, and count as one channel.
  void PairBf16();
  /// Rows that no position of a block sees are left out where that needs less memory, for Read.
  void SkipRows();
  /// Positions are read in tiles of so many columns of one row. Along an axis along which the
  /// kernel reaches far, none is read at a place where all of it sees padding: what no tile reads
  /// is not written.
  void LeaveOut(int64_t columns);
  /// Elements that are the last dim's stride apart become neighbors, for ReadVector.
  void SplitColumns();
  /// Channels lie as close together as blocks of so many rows and columns, at most, allow, and are
  /// `elements` of memory long; vectors may be read behind the last one.
  void Fit(const Dim& rows, const Dim& columns);
  Dim elements() const;

  /// Memory for that many channels.
  Value Memory(int64_t channels);
  /// Writes the padding in front of the rows of so many channels, once and for all where `stays` is
  /// 1: blocks then have all columns.
  void WriteFronts(const Dim& channels, const Dim& stays, Value memory);
  /// Copies channels from `first_channel` (of all groups) on; where extents are not known, no more
  /// than the rows and columns of `block` read.
  void Write(const ConvInput& input, const Dim& image, const Dim& first_channel,
             const Dim& channels, const ConvBlock& block, Value memory);
  /// What a position of the block reads, a scalar or a group: `outer` is the place in the kernel
  /// before its last two dims, counted over all of them.
  Value Read(Value memory, const Dim& channel, const Dim& outer, const Dim& row_of_kernel,
             const Dim& column_of_kernel, const Dim& row, const Dim& column);
  /// A vector of elements `stride` apart from `column` of row `row` on, whatever the kernel.
  Value ReadApart(Value memory, const Dim& channel, const Dim& row, const Dim& column,
                  int64_t lanes, int64_t stride);
  /// A vector of what neighboring positions read: in the row that lies `below` elements of the
  /// input below what the position's row begins with.
  Value ReadVector(Value memory, const Dim& channel, const Dim& outer, const Dim& below,
                   const Dim& column_of_kernel, const Dim& row, const Dim& column);

 private:
  struct Row {
    std::vector<Dim> at;  // of the input, but the last index
    Dim inside;           // 1 or 0
    Dim to;               // of the memory, for channel 0
  };

  void WriteOuter(const ConvBlock& block, Row row, const Dim& place,
                  const std::function<void(const Row&)>& body);
  Row RowAt(Row row, const Dim& reach, const Dim& to);
  void WriteVectors(const ConvInput& input, const Dim& image, const Dim& first_channel,
                    const Dim& channels, const ConvBlock& block, const Row& row, Value memory);
  void WritePhase(const ConvInput& input, const Dim& image, const Dim& first_channel,
                  const Dim& channels, const ConvBlock& block, const Row& row, int64_t phase,
                  Value memory);
  void WriteFront(const Dim& to, const Dim& start, int64_t length, Value memory);
  std::vector<Value> At(const Dim& row, const Dim& column);
  bool IsRead(int64_t phase) const;
  void CopyVector(const ConvInput& input, std::vector<Value> at, const Dim& channel,
                  const Dim& live, Value memory, const std::vector<Value>& to);
  void CopyGroup(const ConvInput& input, std::vector<Value> at, const Dim& first, const Dim& live,
                 Value memory, const std::vector<Value>& to);
  Value Padding(ElementType element, int64_t lanes);
  Dim Inside(size_t axis, const Dim& reach) const;

  LoopBuilder& lb_;
  IndexMath& math_;
  const ConvGeometry& g_;
  int64_t lanes_;
  double fill_;
  Value padding_;
  int64_t group_ = 1;    // channels that lie together
  ElementType element_;  // in memory
  bool has_rows_;        // more than one spatial dim
  bool has_padding_ = false;
  int64_t block_rows_;
  int64_t row_stride_ = 1, row_dilation_ = 1;
  bool leaves_out_rows_ = false;    // that are padding: nobody reads them
  bool skips_rows_ = false;         // each of a block has its own, one for each of the kernel
  int64_t rows_ = 1, columns_ = 1;  // of one channel and outer place
  std::optional<int64_t> near_;     // columns of padding beside the input that are read; or all
  int64_t phases_ = 1;              // of the columns, which lie apart
  int64_t front_ = 0;               // most columns of padding in front, of a phase
  Dim fronts_stay_ = 0;             // 1: they have been written
  // Of what is in memory.
  Dim channel_rows_, pitch_;  // of a channel and outer place, and of a phase
  bool is_flat_ = false;      // it has one axis, else one of rows and one of columns
};

}  // namespace lathe::lower
