#include "src/lower/strategies/window_blocks.h"

#include <algorithm>

#include "lathe/support/divide.h"

namespace lathe::lower {
namespace {

constexpr int64_t kMostRows = 64;    // of a block
constexpr int64_t kMostVectors = 8;  // of a row of it
constexpr int64_t kMostPlanes = 8;   // that are copied together

}  // namespace

int64_t SetsTogether(const Dim& all, int64_t planes) {
  const int64_t most = std::max<int64_t>(kMostPlanes / planes, 1);
  return all.is_constant() ? std::clamp<int64_t>(all.value(), 1, most) : most;
}

WindowBlocks::WindowBlocks(const ConvGeometry& geometry, const Sizes& sizes)
    : g_(geometry), sizes_(sizes) {
  PickBlocks();
}

// Memory for as many rows of the input as the cache holds, which are one block of large planes or
// several sets of small ones; of at least one row of tiles.
void WindowBlocks::PickBlocks() {
  block_columns_ = RoundUp(kMostVectors * sizes_.lanes, width());
  const Dim& columns = g_.out.back();
  if (columns.is_constant() && columns.value() > 0) {
    block_columns_ = std::min(block_columns_, RoundUp(columns.value(), width()));
  }
  int64_t most = RoundUp(kMostRows, sizes_.tile_rows);
  if (const Dim rows = out_rows(); rows.is_constant() && rows.value() > 0) {
    most = std::min(most, RoundUp(rows.value(), sizes_.tile_rows));
  }
  const int64_t least = RowsOf(sizes_.tile_rows);
  memory_rows_ = std::min(sizes_.sets * RowsOf(most),
                          sizes_.cache_bytes * 8 / BitWidth(g_.element) / RowElements());
  memory_rows_ = std::max(memory_rows_, least);
  block_rows_ = sizes_.tile_rows;
  while (block_rows_ < most && RowsOf(block_rows_ + sizes_.tile_rows) <= memory_rows_) {
    block_rows_ += sizes_.tile_rows;
  }
}

// Of what is copied of a row, and no less.
int64_t WindowBlocks::RowElements() const {
  const size_t last = g_.rank() - 1;
  return g_.Reach(last, block_columns_).value() + g_.most_begin(last) +
         g_.strides[last] * (2 * sizes_.lanes + 4);
}

// Rows of memory that so many rows of outputs of one set read.
int64_t WindowBlocks::RowsOf(int64_t rows) const {
  const int64_t of_plane = has_rows() ? g_.Reach(g_.rank() - 2, rows).value() : 1;
  return sizes_.planes * g_.outer_places() * of_plane;
}

// One row more, that vectors at the end reach into.
int64_t WindowBlocks::bytes() const {
  return (memory_rows_ + 1) * RowElements() * BitWidth(g_.element) / 8;
}

void WindowBlocks::Open(LoopBuilder& lb, IndexMath& math) {
  lb_ = &lb;
  math_ = &math;
  const Dim rows = CeilDiv(Max(out_rows(), 1), sizes_.tile_rows) * sizes_.tile_rows;
  rows_of_block_ = math.Name(Min(rows, block_rows_));
  together_ = sizes_.sets;
  if (!sizes_.copies) return;
  rows_.emplace(lb, math, g_, sizes_.lanes, block_rows_, block_columns_, sizes_.fill);
  if (g_.strides.back() > 1) rows_->SplitColumns();
  Dim of_plane = 1;
  if (has_rows()) of_plane = math.Name(g_.Reach(g_.rank() - 2, rows_of_block_));
  rows_->Fit(of_plane, math.Name(Min(Max(g_.out.back(), 1), block_columns_)));
  const int64_t elements = RoundUp(bytes() * 8 / BitWidth(g_.element), sizes_.lanes);
  const Dim of_set = math.Name(rows_->elements() * sizes_.planes);
  together_ = math.Name(Max(Min(FloorDiv(elements - RowElements(), of_set), sizes_.sets), 1));
  memory_ = lb.Alloc(VTensorType::Get(lb.context(), SymShape({elements}), g_.element));
  Clear(elements);
  const Dim blocks = CeilDiv(Max(g_.out.back(), 1), block_columns_);
  const Dim is_one = math.Name(Dim(2) - Min(blocks, 2));
  rows_->WriteFronts(together_ * sizes_.planes, is_one, memory_);
}

// What outputs that do not exist are computed from: left-over memory may hold subnormal numbers, of
// which some processors take many times as long to compute a product.
void WindowBlocks::Clear(int64_t elements) {
  const Value fill = lb_->Splat(g_.element, sizes_.fill, sizes_.lanes);
  math_->For(elements / sizes_.lanes, false,
             [&](const Dim& i) { lb_->Store(memory_, fill, math_->At({i * sizes_.lanes})); });
}

void WindowBlocks::Write(const ConvInput& input, const Dim& image, const Dim& first_plane,
                         const Dim& sets, const OpenSet& open, const Body& body) {
  input_ = &input;
  image_ = image;
  open_ = open;
  math_->For(CeilDiv(sets, together_), false, [&](const Dim& i) {
    first_set_ = math_->Name(i * together_);
    first_plane_ = math_->Name(first_plane + first_set_ * sizes_.planes);
    sets_ = math_->Name(Min(sets - first_set_, together_));
    WriteOuter({}, body);
  });
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
  math_->For(CeilDiv(out_rows(), rows_of_block_), false, [&](const Dim& i) {
    block.row = math_->Name(i * rows_of_block_);
    block.rows = math_->Name(Min(out_rows() - block.row, rows_of_block_));
    math_->For(CeilDiv(g_.out[last], block_columns_), false, [&](const Dim& j) {
      block.column = math_->Name(j * block_columns_);
      block.columns = math_->Name(Min(g_.out[last] - block.column, block_columns_));
      WriteBlock(block, body);
    });
  });
}

// Tiles at the ends compute outputs that there are not, from whatever lies behind what is copied.
void WindowBlocks::WriteBlock(ConvBlock block, const Body& body) {
  if (sizes_.copies) {
    rows_->Write(*input_, image_, first_plane_, sets_ * sizes_.planes, block, memory_);
  }
  math_->For(sets_, false, [&](const Dim& set) {
    set_ = set;
    open_(math_->Name(first_set_ + set));
    WriteTiles(block, body);
  });
}

void WindowBlocks::WriteTiles(const ConvBlock& block, const Body& body) {
  const Dim row_tiles = math_->Name(CeilDiv(block.rows, sizes_.tile_rows));
  const Dim column_tiles = math_->Name(CeilDiv(block.columns, width()));
  math_->For(row_tiles, false, [&](const Dim& i) {
    math_->For(column_tiles, false, [&](const Dim& j) {
      Tile tile{math_->Name(i * sizes_.tile_rows), math_->Name(j * width()), block.outer, 1};
      if (has_rows()) tile.first.push_back(math_->Name(block.row + tile.row));
      tile.first.push_back(math_->Name(block.column + tile.column));
      tile.whole = math_->Name(Min(FloorDiv(block.rows - tile.row, sizes_.tile_rows), 1) *
                               Min(FloorDiv(block.columns - tile.column, width()), 1));
      if (sizes_.copies) return body(tile);
      Finish(tile, body);
    });
  });
}

void WindowBlocks::Finish(const Tile& tile, const Body& body) {
  Tile one = tile;
  math_->For(tile.whole, false, [&](const Dim&) {
    one.whole = 1;
    body(one);
  });
  math_->For(Dim(1) - tile.whole, false, [&](const Dim&) {
    one.whole = 0;
    body(one);
  });
}

Value WindowBlocks::Load(const Tile& tile, const Dim& plane, const Dim& outer, const Dim& row,
                         const Dim& column, int64_t v) {
  if (!sizes_.copies) return LoadInput(tile, plane, outer, row, column, v);
  return rows_->ReadVector(memory_, set_ * sizes_.planes + plane, outer, row, column, tile.row,
                           tile.column + v * sizes_.lanes);
}

// Outputs that do not exist see the last row, and no columns.
Value WindowBlocks::LoadInput(const Tile& tile, const Dim& plane, Dim outer, const Dim& row,
                              const Dim& column, int64_t v) {
  const size_t last = g_.rank() - 1;
  std::vector<Dim> at(g_.rank());
  at[last] = (tile.first[last] + v * sizes_.lanes) * g_.strides[last] + column * g_.dilations[last];
  if (has_rows()) {
    at[last - 1] = Min(tile.first[last - 1] * g_.strides[last - 1] + row, g_.in[last - 1] - 1);
  }
  for (size_t a = last; a-- > 1; outer = FloorDiv(outer, g_.kernel[a - 1])) {
    const Dim place = Mod(outer, g_.kernel[a - 1]);
    at[a - 1] = tile.first[a - 1] * g_.strides[a - 1] + place * g_.dilations[a - 1];
  }
  std::vector<Value> indices = math_->At({image_, first_plane_ + set_ * sizes_.planes + plane});
  for (const Dim& index : at) indices.push_back(math_->At(index));
  const Value live = tile.whole.IsConstant(1) ? Value() : math_->At(LiveColumns(tile, v));
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
  if (tile.whole.IsConstant(1)) return {};
  const size_t last = g_.rank() - 1;
  Dim live = LiveColumns(tile, v);
  if (has_rows()) live = live * Max(Min(g_.out[last - 1] - tile.first[last - 1] - row, 1), 0);
  return math_->At(live);
}

}  // namespace lathe::lower
