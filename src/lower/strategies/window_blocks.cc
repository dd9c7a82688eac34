#include "src/lower/strategies/window_blocks.h"

#include <algorithm>

#include "lathe/support/divide.h"

namespace lathe::lower {
namespace {

constexpr int64_t kMostRows = 16;    // of a block
constexpr int64_t kMostVectors = 4;  // of a row of it
constexpr int64_t kMostPlanes = 8;   // that are copied together

}  // namespace

int64_t SetsTogether(const Dim& all, int64_t planes) {
  const int64_t most = std::max<int64_t>(kMostPlanes / planes, 1);
  return all.is_constant() ? std::clamp<int64_t>(all.value(), 1, most) : most;
}

WindowBlocks::WindowBlocks(const ConvGeometry& geometry, const Sizes& sizes)
    : g_(geometry), sizes_(sizes) {
  block_columns_ = RoundUp(kMostVectors * sizes_.lanes, width());
  if (!has_rows()) return;
  block_rows_ = RoundUp(kMostRows, sizes_.tile_rows);
  while (block_rows_ > sizes_.tile_rows && bytes() > sizes_.cache_bytes) {
    block_rows_ -= sizes_.tile_rows;
  }
}

int64_t WindowBlocks::Bytes(int64_t rows) const {
  const auto reach = [&](size_t a, int64_t count) {
    return (count - 1) * g_.strides[a] + (g_.kernel[a] - 1) * g_.dilations[a] + 1;
  };
  const size_t last = g_.rank() - 1;
  const int64_t of_rows = has_rows() ? reach(last - 1, rows) : 1;
  const int64_t columns = reach(last, block_columns_) + g_.most_begin(last) + 2 * sizes_.lanes;
  return sizes_.sets * sizes_.planes * g_.outer_places() * of_rows * columns *
         BitWidth(g_.element) / 8;
}

void WindowBlocks::Open(LoopBuilder& lb, IndexMath& math) {
  lb_ = &lb;
  math_ = &math;
  if (!sizes_.copies) return;
  rows_.emplace(lb, math, g_, sizes_.lanes, block_rows_, block_columns_, sizes_.fill);
  memory_ = rows_->Memory(sizes_.sets * sizes_.planes);
}

void WindowBlocks::Write(const ConvInput& input, const Dim& image, const Dim& first_plane,
                         const Dim& sets, const OpenSet& open, const Body& body) {
  input_ = &input;
  image_ = image;
  first_plane_ = first_plane;
  sets_ = sets;
  open_ = open;
  WriteOuter({}, body);
}

// A loop for each spatial dim before the last two, then the blocks of a plane.
void WindowBlocks::WriteOuter(ConvBlock block, const Body& body) {
  const size_t a = block.outer.size(), last = g_.rank() - 1;
  if (a + 2 < g_.rank()) {
    return math_->For(g_.out[a], false, [&](const Dim& o) {
      ConvBlock inner = block;
      inner.outer.push_back(o);
      WriteOuter(std::move(inner), body);
    });
  }
  const Dim out_rows = has_rows() ? g_.out[last - 1] : Dim(1);
  math_->For(CeilDiv(out_rows, block_rows_), false, [&](const Dim& i) {
    block.row = math_->Name(i * block_rows_);
    const Dim rows = math_->Name(Min(out_rows - block.row, block_rows_));
    math_->For(CeilDiv(g_.out[last], block_columns_), false, [&](const Dim& j) {
      block.column = math_->Name(j * block_columns_);
      const Dim columns = math_->Name(Min(g_.out[last] - block.column, block_columns_));
      WriteBlock(block, rows, columns, body);
    });
  });
}

// Tiles at the ends compute outputs that there are not, from whatever lies behind what is copied.
void WindowBlocks::WriteBlock(const ConvBlock& at, const Dim& rows, const Dim& columns,
                              const Body& body) {
  ConvBlock block = at;
  block.rows = rows;
  block.columns = columns;
  if (sizes_.copies) {
    rows_->Write(*input_, image_, first_plane_, sets_ * sizes_.planes, block, memory_);
  }
  math_->For(sets_, false, [&](const Dim& set) {
    set_ = set;
    open_(set);
    WriteTiles(block, rows, columns, body);
  });
}

void WindowBlocks::WriteTiles(const ConvBlock& block, const Dim& rows, const Dim& columns,
                              const Body& body) {
  const Dim row_tiles = math_->Name(CeilDiv(rows, sizes_.tile_rows));
  const Dim column_tiles = math_->Name(CeilDiv(columns, width()));
  math_->For(row_tiles, false, [&](const Dim& i) {
    math_->For(column_tiles, false, [&](const Dim& j) {
      Tile tile{math_->Name(i * sizes_.tile_rows), math_->Name(j * width()), block.outer, true};
      if (has_rows()) tile.first.push_back(math_->Name(block.row + tile.row));
      tile.first.push_back(math_->Name(block.column + tile.column));
      const Dim whole = math_->Name(Min(FloorDiv(rows - tile.row, sizes_.tile_rows), 1) *
                                    Min(FloorDiv(columns - tile.column, width()), 1));
      math_->For(whole, false, [&](const Dim&) { body(tile); });
      tile.whole = false;
      math_->For(Dim(1) - whole, false, [&](const Dim&) { body(tile); });
    });
  });
}

Value WindowBlocks::Load(const Tile& tile, const Dim& plane, int64_t outer, int64_t row,
                         int64_t column, int64_t v) {
  if (!sizes_.copies) return LoadInput(tile, plane, outer, row, column, v);
  return rows_->ReadVector(memory_, set_ * sizes_.planes + plane, outer, row, column, tile.row,
                           tile.column + v * sizes_.lanes);
}

// Outputs that do not exist see the last row, and no columns.
Value WindowBlocks::LoadInput(const Tile& tile, const Dim& plane, int64_t outer, int64_t row,
                              int64_t column, int64_t v) {
  const size_t last = g_.rank() - 1;
  std::vector<Dim> at(g_.rank());
  at[last] = (tile.first[last] + v * sizes_.lanes) * g_.strides[last] + column * g_.dilations[last];
  if (has_rows()) {
    at[last - 1] = Min(tile.first[last - 1] * g_.strides[last - 1] + row, g_.in[last - 1] - 1);
  }
  for (size_t a = last; a-- > 1; outer /= g_.kernel[a - 1]) {
    const int64_t place = outer % g_.kernel[a - 1];
    at[a - 1] = tile.first[a - 1] * g_.strides[a - 1] + place * g_.dilations[a - 1];
  }
  std::vector<Value> indices = math_->At({image_, first_plane_ + set_ * sizes_.planes + plane});
  for (const Dim& index : at) indices.push_back(math_->At(index));
  const Value live = tile.whole ? Value() : math_->At(LiveColumns(tile, v));
  return input_->Load(indices, sizes_.lanes, live, g_.strides[last]);
}

std::vector<Value> WindowBlocks::At(const Tile& tile, const Dim& image, const Dim& channel,
                                    int64_t row, int64_t v) {
  std::vector<Value> at = math_->At({image, channel});
  for (size_t a = 0; a < g_.rank(); ++a) {
    const int64_t offset = a + 1 == g_.rank() ? v * sizes_.lanes : a + 2 == g_.rank() ? row : 0;
    at.push_back(math_->At(tile.first[a] + offset));
  }
  return at;
}

Dim WindowBlocks::LiveColumns(const Tile& tile, int64_t v) const {
  const Dim left = g_.out.back() - tile.first.back() - v * sizes_.lanes;
  return Max(Min(left, sizes_.lanes), 0);
}

Value WindowBlocks::Live(const Tile& tile, int64_t row, int64_t v) {
  if (tile.whole) return {};
  const size_t last = g_.rank() - 1;
  Dim live = LiveColumns(tile, v);
  if (has_rows()) live = live * Max(Min(g_.out[last - 1] - tile.first[last - 1] - row, 1), 0);
  return math_->At(live);
}

}  // namespace lathe::lower
