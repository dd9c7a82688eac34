#include <algorithm>
#include <bit>
#include <vector>

#include "lathe/dialect/loop/loop.h"
#include "lathe/support/divide.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/conv_job.h"
#include "src/lower/strategies/conv_rows.h"
#include "src/lower/strategies/list.h"

// A convolution whose filters fill the lanes of vectors. Each position multiplies the weights of a
// tile of filters by the elements that it reads, one by one: neither the stride nor the length of a
// row of the output matters, and the input is copied once, with its padding, not once for each
// place of the kernel, or read where it is if there is but one place. Weights, which must be known,
// are packed and read once for a block of positions. The sums are turned, a square tile at a time,
// before what follows is computed along the positions. Where extents are known only when the
// program runs, so is how many rows and columns a block has, and the end of a row is left to the
// narrowest of a few tiles that covers it. Where a kernel reaches far, tiles are narrow, and places
// of the kernel at which a tile sees nothing but padding are left out.
//
// Of bytes, groups of channels are multiplied and added up at once, and of f32 that become bf16,
// where the precision allows and the machine can, pairs: such a group counts as one channel here,
// and lies together in memory. Without an instruction for four bytes, two become 16-bit integers:
// of the input where it is copied, of the weights where they are read.
namespace lathe::lower {
namespace {

constexpr int64_t kMostPositions = 256;    // of a block
constexpr int64_t kMostDepth = 288;        // of a block
constexpr int64_t kMostBytes = 512 << 10;  // of the rows that it reads; its sums take a little less
// Where extents are not known.
constexpr int64_t kMostColumns = 64, kMostRows = 16, kFewRows = 8;  // of a block
constexpr int64_t kUsualPositions = 56 * 56;
constexpr int64_t kMostProducts = 36;  // of a step, where several are written

class ConvFilterLanes {
 public:
  explicit ConvFilterLanes(Lowering& lowering) : job_(lowering), g_(job_.g) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  // The most that a piece has: names, where they follow from extents that are not known.
  struct Share {
    Dim rows, columns, tiles;
    Dim apart = 0;  // 1 if the rows of a block are parts of those of the plane, else 0
  };
  // Positions and filters that a thread computes at once.
  struct Piece {
    Dim image, group, first_tile, tiles;
    ConvBlock block;
    Dim runs = 1;  // of positions that are neighbors in the output: one, or the rows
    Dim ahead;     // how many of the next tile's weights are asked for at each step
  };
  // A tile of filters and the part of its depth that is multiplied.
  struct Filters {
    Dim tile;  // of the piece
    Dim depth_block;
    int64_t channels;
    Dim next_block, next_tile;  // of the weights that are read next
  };
  // Positions whose sums are in registers: `rows` times `columns` of them.
  struct Positions {
    Dim row, column;
    int64_t rows, columns;
    Dim number;  // of the tile in its block, about
    // Of the rows and columns, those that every block has; the others may not exist.
    int64_t sure_rows, sure_columns;
  };
  // Tiles for the end of a row.
  struct Rest {
    int64_t rows, columns;
  };
  // Places of the kernel along an axis: so many from the first on.
  struct KernelPart {
    Dim first, count;
  };
  // Where a step of the product is.
  struct Step {
    Dim channel, outer, row, column;
  };
  using Sums = std::vector<Value>;

  bool Wins() const;
  int64_t RowElements() const;
  bool IsLarge(int64_t depth) const;
  bool ReadsMuch() const;
  // Of filters, in equal parts, if a tile has so many sums.
  int64_t MostTiles(int64_t sums) const {
    const int64_t most = std::clamp<int64_t>(most_sums() / sums, 1, tiles_);
    return CeilDiv(tiles_, CeilDiv(tiles_, most));
  }
  int64_t most_elements() const { return kMostBytes * 8 / BitWidth(job_.sum_element()); }
  int64_t most_sums() const { return most_elements() * 7 / 8; }
  int64_t group() const {
    return job_.is_of_bytes() ? job_.l.machine.byte_group() : takes_pairs_ ? 2 : 1;
  }
  int64_t place_channels() const { return CeilDiv(g_.place_channels(), group()); }
  int64_t depth() const { return channels_ * g_.places(); }
  int64_t usual_positions() const;
  int64_t MostTileColumns() const;
  void PickBlocks();
  void PickPieces();
  bool PickBlocksOfAnySize();
  void PickRests(int64_t most_rows);
  void PickChannels();
  double Cost() const;
  Value PackWeights();
  void ShareOut();
  void ShareOutAnySize();
  Dim Outer();
  Piece PieceAt(Dim number);
  void WritePiece(const Piece& piece);
  void WriteDepth(const Piece& piece, const Dim& depth_block, int64_t channels);
  Filters FiltersOf(const Piece& piece, const Dim& depth_block, const Dim& tile, int64_t channels);
  void WriteFilters(const Piece& piece, const Filters& filters);
  void WriteFiltersOfAnySize(const Piece& piece, const Filters& filters);
  Dim Fits(const Piece& piece, const Rest& rest, int64_t least);
  ConvBlock ReadBlock(const Piece& piece);
  void WriteRest(const Piece& piece, const Filters& filters, const Rest& rest, int64_t least,
                 const Dim& whole);
  void WritePositions(const Piece& piece, const Filters& filters, const Positions& at);
  Dim Exists(const Piece& piece, const Positions& at, int64_t position);
  KernelPart Seen(size_t axis, const Dim& first, const Dim& positions);
  KernelPart SeenByPlane(size_t axis);
  KernelPart SeenRows(const Piece& piece, const Positions& at);
  KernelPart SeenColumns(const Piece& piece, const Positions& at);
  Sums MultiplyAll(const Piece& piece, const Filters& filters, const Positions& at, Sums sums);
  Sums Multiply(const Piece& piece, const Filters& filters, const Positions& at, const Step& step,
                Sums sums);
  Value Element(const Piece& piece, const Dim& depth_block, const Step& step, const Dim& row,
                const Dim& column);
  void StartSums(const Piece& piece);
  void FinishTile(const Piece& piece, const Dim& tile);
  void FinishRun(const Piece& piece, const Dim& tile, const Dim& run);
  void TurnTile(const Piece& piece, const Dim& tile, const Dim& sum, const Dim& position, int64_t v,
                const Dim& count);
  Value Bias(const Piece& piece, const Dim& tile, int64_t v);
  std::vector<Value> SumAt(const Dim& tile, const Dim& position, int64_t v) {
    return math().At({tile * sum_rows_ + position, Dim(v * job_.lanes)});
  }
  Dim AllTiles(const Piece& piece, const Dim& tile) {
    return piece.group * tiles_ + piece.first_tile + tile;
  }
  int64_t width() const { return vectors_ * job_.lanes; }
  int64_t out(size_t from_last) const { return g_.out[g_.rank() - 1 - from_last].value(); }
  int64_t out_rows() const { return g_.rank() > 1 ? out(1) : 1; }
  Dim rows() const { return g_.rank() > 1 ? out_rows_ : Dim(1); }
  Dim columns() const { return out_columns_; }
  int64_t SumRows() const { return (InOneBlock() ? 1 : piece_tiles_) * sum_rows_; }
  int64_t SpareRows() const { return g_.is_static() ? 0 : 1; }
  int64_t kernel_rows() const { return g_.rank() > 1 ? g_.kernel[g_.rank() - 2] : 1; }
  int64_t depth_blocks() const { return CeilDiv(channels_, block_channels_); }
  bool InOneBlock() const { return block_channels_ == channels_; }
  LoopBuilder& lb() { return *job_.lb; }
  IndexMath& math() { return *job_.math; }

  ConvJob job_;
  ConvGeometry& g_;
  int64_t channels_ = 0;     // of a group of the convolution
  int64_t vectors_ = 1;      // of a tile of filters
  int64_t tiles_ = 1;        // of filters, in a group
  int64_t piece_tiles_ = 1;  // of filters, in a piece, at most
  int64_t block_rows_ = 1, block_columns_ = 1;
  int64_t tile_rows_ = 1, tile_columns_ = 1;  // of positions
  int64_t sum_rows_ = 1;                      // of a tile of sums: whole vectors when turned
  int64_t block_channels_ = 1;                // that are multiplied at once
  bool copies_ = true;                        // the input, with its padding
  bool leaves_out_ = false;                   // places of the kernel that see nothing but padding
  bool takes_pairs_ = false;                  // of bf16
  int64_t most_positions_ = 1;                // of a block
  std::vector<Rest> rests_;                   // the narrowest first
  int64_t beyond_ = 0;                        // rows that these read behind the last one

  // While writing.
  Dim out_rows_, out_columns_;
  KernelPart seen_rows_{0, 1}, seen_columns_;
  Share share_, parts_;  // what a piece has, and how many there are
  std::optional<ConvRows> rows_;
  Value weights_, bias_, memory_, sums_;
  Value turned_;  // a square tile of sums
};

std::string ConvFilterLanes::Refusal() {
  job_.merges_units = true;
  if (std::string why = job_.Refusal(true); !why.empty()) return why;
  if (!job_.weights_are_constant()) return "the weights are not known";
  takes_pairs_ = job_.takes_pairs();
  channels_ = CeilDiv(g_.channels, group());
  if (!g_.is_static() && g_.reads_own_element) {
    return "one place of the kernel and positions of symbolic number";
  }
  leaves_out_ = !job_.is_of_bytes() && g_.reaches_far();
  if (leaves_out_ && ReadsMuch()) return "what a row reads is too large";
  const int64_t widths[] = {1, std::min<int64_t>(3, CeilDiv(g_.filters, job_.lanes))};
  const bool fill_two = g_.groups == 1 || g_.filters % (2 * job_.lanes) == 0;
  const int64_t usual = std::min<int64_t>(fill_two ? 2 : 1, CeilDiv(g_.filters, job_.lanes));
  vectors_ = job_.l.knobs.Choose("vectors", usual, widths);
  tiles_ = CeilDiv(g_.filters, width());
  if (g_.groups > 1 && g_.filters % width() != 0) {
    return "the filters of a group do not fill vectors";
  }
  const bool always =
      job_.is_of_bytes() || job_.l.knobs.Choose("always", {0, 1}) == 1;  // for a tuner to try
  if (!always && !Wins()) return "filling vectors with positions takes less";
  if (!g_.is_static()) {
    return PickBlocksOfAnySize() ? "" : "what a block reads is too large";
  }
  if (g_.reads_own_element) g_.Flatten();
  copies_ = g_.places() != 1 || job_.before.has_value() || group() > 1;
  for (size_t a = 0; a < g_.rank(); ++a) {
    const int64_t last = (g_.out[a].value() - 1) * g_.strides[a];
    copies_ |= !g_.begins[a].IsConstant(0) || last >= g_.in[a].value();
  }
  PickBlocks();
  return "";
}

int64_t ConvFilterLanes::usual_positions() const {
  return g_.is_static() ? g_.positions().value() : kUsualPositions;
}

// In multiply-adds of vectors: what is multiplied, what is copied, and turned.
bool ConvFilterLanes::Wins() const {
  const auto real = [](int64_t v) { return static_cast<double>(v); };
  const double p = real(usual_positions()), f = real(g_.filters), depth = real(g_.depth());
  const double steps = depth / real(group());
  const double vectors_of_p = real(CeilDiv(usual_positions(), job_.lanes));
  const double vectors_of_f = real(tiles_ * vectors_);
  const double copied = vectors_of_p * depth * (g_.reads_own_element ? 4 : 10);
  const double filters = p * vectors_of_f * (steps + 4) + copied / real(g_.places()) +
                         vectors_of_p * vectors_of_f * 10 * real(job_.lanes);
  return filters < vectors_of_p * f * depth + copied;
}

// What ConvRows keeps of a channel, about.
int64_t ConvFilterLanes::RowElements() const {
  int64_t elements = g_.outer_places();
  const size_t last = g_.rank() - 1;
  if (last > 0) elements *= g_.Seen(last - 1, block_rows_);
  return elements * (g_.Reach(last, block_columns_).value() + g_.most_begin(last) + 2 * job_.lanes);
}

// As many as there are registers for; fewer see nothing but padding more often.
int64_t ConvFilterLanes::MostTileColumns() const {
  constexpr int64_t kFewPositions = 8;
  const int64_t most = (job_.l.machine.vector_registers - vectors_ - 1) / vectors_;
  return leaves_out_ ? std::min(most, kFewPositions) : most;
}

// What a block reads of so many places of the kernel, its channels counted: those that are
// multiplied by a place before the next one are never apart.
bool ConvFilterLanes::IsLarge(int64_t depth) const {
  const int64_t channels = leaves_out_ ? place_channels() : CeilDiv(depth, g_.places());
  return RowElements() * channels > most_elements() - width();
}

// A row of the longest block does, so that no block fits. That does not depend on the extents.
bool ConvFilterLanes::ReadsMuch() const {
  const size_t last = g_.rank() - 1;
  const int64_t columns =
      g_.Reach(last, kMostPositions).value() + g_.most_begin(last) + 2 * job_.lanes;
  const int64_t rows = g_.outer_places() * kernel_rows();
  return rows * columns * place_channels() > most_elements() - width();
}

// Tiles are whole rows, or parts of one.
void ConvFilterLanes::PickBlocks() {
  const int64_t most = MostTileColumns();
  if (out(0) <= most) {
    tile_columns_ = out(0);
    // Parts of several rows do not share addresses; with all registers in use sums would be
    // spilled.
    if (!leaves_out_) {
      tile_rows_ = std::min(std::max(most - 1, out(0)) / out(0), out_rows());
    }
  } else {
    tile_columns_ = CeilDiv(out(0), CeilDiv(out(0), most));
  }
  PickPieces();
  most_positions_ = block_rows_ * block_columns_;
  PickChannels();
}

void ConvFilterLanes::PickChannels() {
  // Each row may have a run of its own.
  const int64_t beyond = g_.is_static() ? 0 : job_.lanes;
  sum_rows_ = RoundUp(most_positions_, job_.lanes) + beyond;
  if (leaves_out_) {
    block_channels_ = place_channels();
    return;
  }
  const int64_t most = (most_elements() - SpareRows() * width()) / RowElements();
  const int64_t most_channels = std::max<int64_t>(most, 1);
  block_channels_ = BlockChannels(channels_, std::min(kMostDepth / g_.places(), most_channels));
}

// What is chosen here is the most that a block may have; ShareOut says how much of it is used.
// False: what it reads does not fit.
bool ConvFilterLanes::PickBlocksOfAnySize() {
  tile_columns_ = MostTileColumns();
  const int64_t least = 32;  // no tile has more
  const int64_t fitting = (most_sums() / (tiles_ * width()) / job_.lanes - 1) * job_.lanes;
  most_positions_ = std::clamp(fitting, least, kMostPositions);
  const bool has_rows = g_.rank() > 1;
  const int64_t most_columns = has_rows ? std::min(kMostColumns, most_positions_) : most_positions_;
  block_columns_ = std::max<int64_t>(most_columns / tile_columns_, 1) * tile_columns_;
  piece_tiles_ = MostTiles((most_positions_ + job_.lanes) * width());
  PickRests(has_rows && !leaves_out_ ? kMostRows : 1);
  // A tile of several rows may read behind the last one.
  beyond_ = rests_.empty() ? 0 : rests_.front().rows - 1;
  block_rows_ = (has_rows ? kMostRows : 1) + beyond_;
  while (block_rows_ > kFewRows + beyond_ && IsLarge(kMostDepth)) --block_rows_;
  while (block_rows_ > 1 + beyond_ && IsLarge(1)) --block_rows_;
  while (block_columns_ > tile_columns_ && IsLarge(1)) block_columns_ -= tile_columns_;
  if (IsLarge(1)) return false;
  PickChannels();
  return true;
}

// The first is for planes as narrow as those of a stream. Extents are often powers of two, and rows
// of a plane even in number.
void ConvFilterLanes::PickRests(int64_t most_rows) {
  constexpr int64_t kMostRestRows = 4;  // as many as hide how long a sum takes
  const int64_t most = tile_columns_;
  std::vector<int64_t> widths{2, 4, 8, most / 2, most * 3 / 4, most};
  std::ranges::sort(widths);
  for (const int64_t width : widths) {
    const int64_t columns = std::min(width, most - 1);
    if (columns == 0 || (!rests_.empty() && columns <= rests_.back().columns)) continue;
    const int64_t rows = std::clamp<int64_t>((most - 1) / columns, 1, kMostRestRows);
    const auto even = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows)));
    rests_.push_back({std::min(even, most_rows), columns});
  }
}

// Blocks of whole tiles: those that are done first by few threads.
void ConvFilterLanes::PickPieces() {
  const int64_t most_positions =
      std::clamp<int64_t>(most_sums() / (tiles_ * width()), 32, kMostPositions);
  double best = 1e300;
  int64_t best_rows = 1, best_columns = 1, best_tiles = 1;
  const auto consider = [&](int64_t rows, int64_t columns) {
    block_rows_ = rows;
    block_columns_ = columns;
    if (leaves_out_ && IsLarge(0)) return;
    const int64_t sums = RoundUp(rows * columns, job_.lanes) * width();
    piece_tiles_ = MostTiles(sums);
    if (const double cost = Cost(); cost < best) {
      best = cost;
      best_rows = rows, best_columns = columns, best_tiles = piece_tiles_;
    }
  };
  const auto tiles_of_most = [&](int64_t others, int64_t tile) {
    return std::max<int64_t>(most_positions / others / tile, 1) * tile;
  };
  const int64_t row_columns = std::min(out(0), tiles_of_most(1, tile_columns_));
  if (out_rows() > 1) {
    const int64_t rows = std::min(out_rows(), tiles_of_most(row_columns, tile_rows_));
    for (int64_t r = rows; r > 0; r = r > tile_rows_ ? (r - 1) / tile_rows_ * tile_rows_ : 0) {
      consider(r, row_columns);
    }
  } else {
    for (int64_t c = row_columns; c > 0;
         c = c > tile_columns_ ? (c - 1) / tile_columns_ * tile_columns_ : 0) {
      consider(1, c);
    }
  }
  block_rows_ = best_rows, block_columns_ = best_columns, piece_tiles_ = best_tiles;
}

double ConvFilterLanes::Cost() const {
  const auto real = [](int64_t v) { return static_cast<double>(v); };
  const int64_t outer = g_.positions().value() / (out_rows() * out(0));
  const int64_t images = g_.batch.is_constant() ? g_.batch.value() : 1;
  const int64_t blocks = images * g_.groups * outer * CeilDiv(out_rows(), block_rows_) *
                         CeilDiv(out(0), block_columns_);
  const double vectors = real(RowElements()) / real(job_.lanes) + 2;
  const double copied = copies_ ? real(channels_) * vectors * (job_.before ? 12 : 4) : 0;
  const double multiplied = real(block_rows_ * block_columns_ * vectors_) *
                            (0.6 * real(depth()) + 0.6 * real(job_.lanes));
  const double read = real(vectors_) * real(depth()) * 4;  // of weights
  return job_.Cost(blocks, tiles_, piece_tiles_, copied, multiplied + read);
}

// ---- writing ----

// [blocks of depth, tiles, depth of a block, filters of a tile], of bytes with their group.
Value ConvFilterLanes::PackWeights() {
  const int64_t blocks = depth_blocks(), tiles = tiles_ * g_.groups;
  const Shape shape = job_.weight_shape();
  PackedLayout layout;
  layout.argument = job_.anchor->operand(1).index();
  layout.padded = {tiles * width(), blocks * block_channels_ * group()};
  layout.padded.insert(layout.padded.end(), shape.begin() + 2, shape.end());
  layout.split = {tiles, width(), blocks, block_channels_, group(), g_.places()};
  layout.order = {2, 0, 3, 5, 1, 4};
  if (takes_pairs_) layout.element = ElementType::kBF16;
  return lb().Grouped(job_.l.Pack(std::move(layout)), std::vector<int64_t>{1, 1, 2, 2});
}

void ConvFilterLanes::ShareOut() {
  share_.rows = block_rows_, share_.columns = block_columns_;
  if (!g_.is_static()) ShareOutAnySize();
  const Dim blocks = math().Name(g_.batch * g_.groups * Outer() * CeilDiv(rows(), share_.rows) *
                                 CeilDiv(columns(), share_.columns));
  share_.tiles = job_.TilesOfPiece(blocks, tiles_, piece_tiles_);
}

// Blocks of about equal size: whole rows, if these are short.
void ConvFilterLanes::ShareOutAnySize() {
  const auto per = [&](const Dim& extent, const Dim& parts) {
    return Max(CeilDiv(extent, Max(parts, 1)), 1);
  };
  const Dim column_parts = math().Name(Max(CeilDiv(columns(), block_columns_), 1));
  share_.columns =
      math().Name(CeilDiv(per(columns(), column_parts), tile_columns_) * tile_columns_);
  share_.apart = math().Name(Min(column_parts - 1, 1));
  const Dim fitting = FloorDiv(most_positions_, Max(Min(columns(), share_.columns), 1));
  const Dim most_rows = math().Name(Max(Min(fitting, block_rows_ - beyond_), 1));
  share_.rows = math().Name(per(rows(), math().Name(CeilDiv(rows(), most_rows))));
}

// Planes of an image: of the spatial dims before the last two.
Dim ConvFilterLanes::Outer() {
  Dim outer = 1;
  for (size_t a = 0; a + 2 < g_.rank(); ++a) outer *= g_.out[a];
  return outer;
}

void ConvFilterLanes::Write() {
  job_.Open();
  rows_.emplace(lb(), math(), g_, job_.lanes, block_rows_, block_columns_);
  rows_->SkipRows();
  if (leaves_out_) rows_->LeaveOut(tile_columns_);
  if (job_.is_of_bytes()) rows_->GroupBytes(group(), job_.Padding());
  if (takes_pairs_) rows_->PairBf16();
  weights_ = PackWeights();
  bias_ = job_.Argument(2);
  if (g_.rank() > 1) out_rows_ = math().Name(g_.out[g_.rank() - 2]);
  out_columns_ = math().Name(g_.out.back());
  if (g_.rank() > 1) seen_rows_ = SeenByPlane(g_.rank() - 2);
  seen_columns_ = SeenByPlane(g_.rank() - 1);
  ShareOut();
  parts_.rows = math().Name(CeilDiv(rows(), share_.rows));
  parts_.columns = math().Name(CeilDiv(columns(), share_.columns));
  parts_.tiles = math().Name(CeilDiv(tiles_, share_.tiles));
  const Dim all = g_.batch * g_.groups * Outer() * parts_.rows * parts_.columns * parts_.tiles;
  math().For(all, job_.parallel, [&](const Dim& i) { WritePiece(PieceAt(i)); });
  job_.Close();
}

ConvFilterLanes::Piece ConvFilterLanes::PieceAt(Dim number) {
  const auto take = [&](const Dim& extent) {
    const Dim taken = math().Name(Mod(number, extent));
    number = math().Name(FloorDiv(number, extent));
    return taken;
  };
  // From `first` on, which is a multiple of `most`.
  const auto part = [&](const Dim& extent, const Dim& first, const Dim& most) {
    return Mod(extent, most).IsConstant(0) ? most : math().Name(Min(extent - first, most));
  };
  Piece piece;
  piece.first_tile = math().Name(take(parts_.tiles) * share_.tiles);
  piece.tiles = part(tiles_, piece.first_tile, share_.tiles);
  ConvBlock& block = piece.block;
  block.column = math().Name(take(parts_.columns) * share_.columns);
  block.row = math().Name(take(parts_.rows) * share_.rows);
  block.columns = part(columns(), block.column, share_.columns);
  block.rows = part(rows(), block.row, share_.rows);
  piece.runs = math().Name(share_.apart * (block.rows - 1) + 1);
  const Dim plane = take(Outer());
  Dim rest = plane;
  block.outer.resize(g_.rank() > 2 ? g_.rank() - 2 : 0);
  for (size_t a = block.outer.size(); a-- > 0;) {
    block.outer[a] = math().Name(Mod(rest, g_.out[a]));
    rest = math().Name(FloorDiv(rest, g_.out[a]));
  }
  block.first = math().Name((plane * rows() + block.row) * columns() + block.column);
  piece.group = take(g_.groups);
  piece.image = number;
  const Dim tiles = CeilDiv(share_.rows, tile_rows_) * CeilDiv(share_.columns, tile_columns_);
  piece.ahead = math().Name(Max(FloorDiv(width() * group(), tiles), 1));
  return piece;
}

void ConvFilterLanes::WritePiece(const Piece& piece) {
  if (copies_) memory_ = rows_->Memory(block_channels_);
  sums_ = job_.Memory(SumRows() + SpareRows(), width());
  if (job_.is_of_bytes() || job_.after->IsLong()) turned_ = job_.Memory(job_.lanes, job_.lanes);
  if (InOneBlock()) return WriteDepth(piece, 0, channels_);
  StartSums(piece);
  const int64_t blocks = channels_ / block_channels_, rest = channels_ % block_channels_;
  math().For(blocks, false, [&](const Dim& b) { WriteDepth(piece, b, block_channels_); });
  if (rest > 0) WriteDepth(piece, blocks, rest);
  math().For(piece.tiles, false, [&](const Dim& tile) { FinishTile(piece, tile); });
}

Value ConvFilterLanes::Bias(const Piece& piece, const Dim& tile, int64_t v) {
  if (!bias_) return job_.Zeros();
  const Dim first = AllTiles(piece, tile) * width() + v * job_.lanes;
  const bool fills = g_.filters % width() == 0;
  const Value live = fills ? Value() : job_.Live(first, g_.filters * g_.groups);
  return lb().Load(bias_, math().At({first}), job_.lanes, live);
}

void ConvFilterLanes::StartSums(const Piece& piece) {
  math().For(piece.tiles, false, [&](const Dim& tile) {
    for (int64_t v = 0; v < vectors_; ++v) {
      const Value start = Bias(piece, tile, v);
      math().For(math().Name(piece.block.rows * piece.block.columns), false,
                 [&](const Dim& position) { lb().Store(sums_, start, SumAt(tile, position, v)); });
    }
  });
}

void ConvFilterLanes::WriteDepth(const Piece& piece, const Dim& depth_block, int64_t channels) {
  if (copies_) {
    const Dim first =
        math().Name(piece.group * g_.channels + depth_block * (block_channels_ * group()));
    rows_->Write(job_.input, piece.image, first, channels, ReadBlock(piece), memory_);
  }
  math().For(piece.tiles, false, [&](const Dim& tile) {
    const Filters filters = FiltersOf(piece, depth_block, tile, channels);
    g_.is_static() ? WriteFilters(piece, filters) : WriteFiltersOfAnySize(piece, filters);
    if (InOneBlock()) FinishTile(piece, tile);
  });
}

// The next tile's weights are asked for while this one's are multiplied, spread over all steps;
// those of the first block behind the last one: there is another piece.
ConvFilterLanes::Filters ConvFilterLanes::FiltersOf(const Piece& piece, const Dim& depth_block,
                                                    const Dim& tile, int64_t channels) {
  Filters filters{tile, depth_block, channels, {}, {}};
  const Dim is_last = math().Name(Max(tile + 2 - share_.tiles, 0));
  filters.next_block = math().Name(Mod(depth_block + is_last, depth_blocks()));
  filters.next_tile = math().Name(AllTiles(piece, tile) + 1 - is_last * share_.tiles);
  return filters;
}

// All tiles of positions, those at the ends of rows and columns apart.
void ConvFilterLanes::WriteFilters(const Piece& piece, const Filters& filters) {
  const int64_t columns_left = out(0) % tile_columns_;
  const auto write_row = [&](const Dim& row, int64_t rows, const Dim& number) {
    const Dim whole = FloorDiv(piece.block.columns, tile_columns_);
    math().For(whole, false, [&](const Dim& j) {
      WritePositions(
          piece, filters,
          {row, j * tile_columns_, rows, tile_columns_, number + j, rows, tile_columns_});
    });
    if (columns_left == 0) return;
    math().For(Min(Mod(piece.block.columns, tile_columns_), 1), false, [&](const Dim&) {
      WritePositions(piece, filters,
                     {row, math().Name(whole * tile_columns_), rows, columns_left, number + whole,
                      rows, columns_left});
    });
  };
  const Dim whole = math().Name(FloorDiv(piece.block.rows, tile_rows_));
  const int64_t per_row = CeilDiv(block_columns_, tile_columns_);
  math().For(whole, false,
             [&](const Dim& i) { write_row(i * tile_rows_, tile_rows_, i * per_row); });
  if (piece.block.rows.is_constant() && piece.block.rows.value() % tile_rows_ == 0) return;
  if (piece.block.rows.is_constant()) {
    return write_row(whole * tile_rows_, piece.block.rows.value() % tile_rows_, whole * per_row);
  }
  if (tile_rows_ == 1) return;
  math().For(Mod(piece.block.rows, tile_rows_), false, [&](const Dim& i) {
    write_row(math().Name(whole * tile_rows_ + i), 1, whole * per_row);
  });
}

// Whole tiles, then what is left of the rows.
void ConvFilterLanes::WriteFiltersOfAnySize(const Piece& piece, const Filters& filters) {
  const Dim whole = math().Name(FloorDiv(piece.block.columns, tile_columns_));
  math().For(piece.block.rows, false, [&](const Dim& row) {
    math().For(whole, false, [&](const Dim& j) {
      WritePositions(piece, filters,
                     {row, j * tile_columns_, 1, tile_columns_, row * whole + j, 1, tile_columns_});
    });
  });
  int64_t least = 1;
  for (const Rest& rest : rests_) {
    WriteRest(piece, filters, rest, least, whole);
    least = rest.columns + 1;
  }
}

// 1 if `least` to `rest.columns` columns are left, else 0.
Dim ConvFilterLanes::Fits(const Piece& piece, const Rest& rest, int64_t least) {
  const Dim left = math().Name(Mod(piece.block.columns, tile_columns_));
  return Max(Min(left - (least - 1), 1), 0) * Max(Min(Dim(rest.columns + 1) - left, 1), 0);
}

// A block, and the rows and columns that tiles at its ends read behind the last ones.
ConvBlock ConvFilterLanes::ReadBlock(const Piece& piece) {
  ConvBlock block = piece.block;
  const Dim left = Mod(block.columns, tile_columns_);
  int64_t least = 1;
  for (const Rest& rest : rests_) {
    const Dim fits = math().Name(Fits(piece, rest, least));
    block.rows += fits * (CeilDiv(piece.block.rows, rest.rows) * rest.rows - piece.block.rows);
    block.columns += fits * (Dim(rest.columns) - left);
    least = rest.columns + 1;
  }
  block.rows = math().Name(block.rows);
  block.columns = math().Name(block.columns);
  return block;
}

// Where `least` to `rest.columns` columns are left.
void ConvFilterLanes::WriteRest(const Piece& piece, const Filters& filters, const Rest& rest,
                                int64_t least, const Dim& whole) {
  const Dim first = math().Name(whole * tile_columns_);
  const Dim tiles = Fits(piece, rest, least) * CeilDiv(piece.block.rows, rest.rows);
  math().For(math().Name(tiles), false, [&](const Dim& i) {
    WritePositions(piece, filters,
                   {math().Name(i * rest.rows), first, rest.rows, rest.columns,
                    piece.block.rows * whole + i, 1, least});
  });
}

// 1 or 0. What does not exist has a row of sums behind the others.
Dim ConvFilterLanes::Exists(const Piece& piece, const Positions& at, int64_t position) {
  const int64_t row = position / at.columns, column = position % at.columns;
  Dim exists = 1;
  if (row >= at.sure_rows) exists *= Max(Min(piece.block.rows - at.row - row, 1), 0);
  if (column >= at.sure_columns) exists *= Max(Min(piece.block.columns - at.column - column, 1), 0);
  return exists;
}

// Without those of which so many positions from `first` on see nothing but padding.
ConvFilterLanes::KernelPart ConvFilterLanes::Seen(size_t axis, const Dim& first,
                                                  const Dim& positions) {
  const int64_t apart = g_.dilations[axis], stride = g_.strides[axis], places = g_.kernel[axis];
  const Dim low = math().Name(first * stride), high = low + (positions - 1) * stride;
  const Dim start = g_.begins[axis];  // of the input, behind the padding
  const Dim begin = math().Name(Min(Max(CeilDiv(start - high, apart), 0), places));
  const Dim end = Min(Max(CeilDiv(start + g_.in[axis] - low, apart), begin), places);
  return {begin, math().Name(end - begin)};
}

// Without those of which no position does. The padding of bytes is not zero.
ConvFilterLanes::KernelPart ConvFilterLanes::SeenByPlane(size_t axis) {
  if (job_.is_of_bytes() || g_.begins[axis].IsConstant(0)) return {0, g_.kernel[axis]};
  return Seen(axis, 0, g_.out[axis]);
}

ConvFilterLanes::KernelPart ConvFilterLanes::SeenRows(const Piece& piece, const Positions& at) {
  const size_t axis = g_.rank() - 2;
  if (g_.rank() == 1 || job_.is_of_bytes() || !g_.reaches_far(axis)) return seen_rows_;
  return Seen(axis, piece.block.row + at.row, at.rows);
}

ConvFilterLanes::KernelPart ConvFilterLanes::SeenColumns(const Piece& piece, const Positions& at) {
  const size_t axis = g_.rank() - 1;
  if (!leaves_out_ || !g_.reaches_far(axis)) return seen_columns_;
  return Seen(axis, piece.block.column + at.column, at.columns);
}

void ConvFilterLanes::WritePositions(const Piece& piece, const Filters& filters,
                                     const Positions& at) {
  const auto sum_at = [&](int64_t i) {
    const int64_t position = i / vectors_;
    const Dim row = at.row + position / at.columns, column = at.column + position % at.columns;
    const Dim first = (InOneBlock() ? Dim(0) : filters.tile) * sum_rows_;
    const Dim exists = math().Name(Exists(piece, at, position));
    const Dim sum = (first + row * piece.block.columns + column) * exists;
    return math().At({sum + (Dim(1) - exists) * SumRows(), Dim(i % vectors_ * job_.lanes)});
  };
  const int64_t count = at.rows * at.columns * vectors_;
  Sums sums;
  for (int64_t i = 0; i < count; ++i) {
    sums.push_back(InOneBlock() ? Bias(piece, filters.tile, i % vectors_)
                                : lb().Load(sums_, sum_at(i), job_.lanes));
  }
  sums = MultiplyAll(piece, filters, at, std::move(sums));
  for (int64_t i = 0; i < count; ++i) {
    lb().Store(sums_, sums[static_cast<size_t>(i)], sum_at(i));
  }
}

// One step of the product per iteration: more of them would share elements and so need registers.
// Steps of few products whose elements lie apart are written for a row of the kernel: the loop
// around them would cost as much as a third of them. Where places of the kernel are left out, the
// loop over those that are left is not the inner one.
ConvFilterLanes::Sums ConvFilterLanes::MultiplyAll(const Piece& piece, const Filters& filters,
                                                   const Positions& at, Sums sums) {
  using Body = std::function<Sums(const Dim& k, const Sums&)>;
  const auto carry = [&](const Dim& extent, const Sums& initial, const Body& body) {
    if (extent.IsConstant(1)) return body(0, initial);
    return lb().For(math().At(extent), initial, [&](Value k, std::span<const Value> carried) {
      return body(math().Of(k), Sums(carried.begin(), carried.end()));
    });
  };
  const KernelPart rows = SeenRows(piece, at), columns = SeenColumns(piece, at);
  const auto count = static_cast<int64_t>(sums.size());
  const bool writes_columns = g_.strides.back() > 1 && count * g_.kernel.back() <= kMostProducts;
  const auto of_row = [&](const Step& step, const Sums& initial) {
    if (!writes_columns) {
      return carry(columns.count, initial, [&](const Dim& column, const Sums& s) {
        return Multiply(piece, filters, at,
                        {step.channel, step.outer, step.row, columns.first + column}, s);
      });
    }
    Sums all = initial;
    for (int64_t k = 0; k < g_.kernel.back(); ++k) {
      all = Multiply(piece, filters, at, {step.channel, step.outer, step.row, k}, std::move(all));
    }
    return all;
  };
  if (leaves_out_) {
    return carry(g_.outer_places(), sums, [&](const Dim& outer, const Sums& s) {
      return carry(rows.count, s, [&](const Dim& row, const Sums& t) {
        return carry(columns.count, t, [&](const Dim& column, const Sums& u) {
          return carry(filters.channels, u, [&](const Dim& channel, const Sums& v) {
            return Multiply(piece, filters, at,
                            {channel, outer, rows.first + row, columns.first + column}, v);
          });
        });
      });
    });
  }
  return carry(filters.channels, sums, [&](const Dim& channel, const Sums& s) {
    return carry(g_.outer_places(), s, [&](const Dim& outer, const Sums& t) {
      return carry(rows.count, t, [&](const Dim& row, const Sums& u) {
        return of_row({channel, outer, rows.first + row, 0}, u);
      });
    });
  });
}

// One step.
ConvFilterLanes::Sums ConvFilterLanes::Multiply(const Piece& piece, const Filters& filters,
                                                const Positions& at, const Step& step, Sums sums) {
  const Dim k = ((step.channel * g_.outer_places() + step.outer) * kernel_rows() + step.row) *
                    g_.kernel.back() +
                step.column;
  const Dim all_tiles = AllTiles(piece, filters.tile);
  if (depth_blocks() * tiles_ * g_.groups > 1) {
    const Dim ahead = (at.number * (block_channels_ * g_.places()) + k) * piece.ahead;
    lb().Prefetch(weights_, math().At({filters.next_block, filters.next_tile, Dim(0), ahead}));
  }
  std::vector<Value> weights;
  for (int64_t v = 0; v < vectors_; ++v) {
    const Dim first = v * job_.lanes * group();
    const Value loaded = lb().Load(weights_, math().At({filters.depth_block, all_tiles, k, first}),
                                   job_.lanes * group());
    const bool are_words = job_.is_of_bytes() && group() == 2;
    weights.push_back(are_words ? lb().As(loaded, ElementType::kI16) : loaded);
  }
  for (size_t i = 0; i < sums.size(); i += weights.size()) {
    const auto position = static_cast<int64_t>(i) / vectors_;
    const Value element = Element(piece, filters.depth_block, step, at.row + position / at.columns,
                                  at.column + position % at.columns);
    for (size_t v = 0; v < weights.size(); ++v) {
      sums[i + v] = MulAdd(lb(), job_.l.machine, element, weights[v], sums[i + v]);
    }
  }
  return sums;
}

// What a position of the block reads.
Value ConvFilterLanes::Element(const Piece& piece, const Dim& depth_block, const Step& step,
                               const Dim& row, const Dim& column) {
  if (copies_) {
    return rows_->Read(memory_, step.channel, step.outer, step.row, step.column, row, column);
  }
  const Dim channel = piece.group * g_.channels + depth_block * block_channels_ + step.channel;
  std::vector<Value> at = math().At({piece.image, channel});
  for (size_t a = 0; a < g_.rank(); ++a) {
    const size_t from_last = g_.rank() - 1 - a;
    const Dim position = from_last == 0   ? piece.block.column + column
                         : from_last == 1 ? piece.block.row + row
                                          : piece.block.outer[a];
    at.push_back(math().At(position * g_.strides[a]));
  }
  return job_.input.Load(at, 0);
}

void ConvFilterLanes::FinishTile(const Piece& piece, const Dim& tile) {
  math().For(piece.runs, false, [&](const Dim& run) { FinishRun(piece, tile, run); });
}

void ConvFilterLanes::FinishRun(const Piece& piece, const Dim& tile, const Dim& run) {
  const Dim positions = math().Name((piece.block.rows + 1 - piece.runs) * piece.block.columns);
  const Dim sums = math().Name(run * positions);
  const Dim first = math().Name(piece.block.first + run * columns());
  const Dim whole = math().Name(FloorDiv(positions, job_.lanes)), rest = Mod(positions, job_.lanes);
  for (int64_t v = 0; v < vectors_; ++v) {
    math().For(whole, false, [&](const Dim& q) {
      const Dim from = math().Name(q * job_.lanes);
      TurnTile(piece, tile, sums + from, first + from, v, job_.lanes);
    });
    if (rest.IsConstant(0)) continue;
    math().For(Min(rest, 1), false, [&](const Dim&) {
      const Dim from = math().Name(whole * job_.lanes);
      TurnTile(piece, tile, sums + from, first + from, v, rest);
    });
  }
}

// Sums from `sum` on, whose positions are the next `count` of the output from `position` on. Lanes
// beyond them have the sums of the last one: what else lies in memory may be slow to compute with.
void ConvFilterLanes::TurnTile(const Piece& piece, const Dim& tile, const Dim& sum,
                               const Dim& position, int64_t v, const Dim& count) {
  const Value live = count.IsConstant(job_.lanes) ? Value() : math().At(count);
  std::vector<Value> rows;
  for (int64_t i = 0; i < job_.lanes; ++i) {
    const Dim row = sum + (live ? Min(Dim(i), count - 1) : Dim(i));
    rows.push_back(lb().Load(sums_, SumAt(InOneBlock() ? Dim(0) : tile, row, v), job_.lanes));
  }
  const std::vector<Value> filters = lb().Transpose(rows);
  const Dim first = (piece.first_tile + tile) * width() + v * job_.lanes;
  const auto store = [&](const Dim& i, Value sums) {
    const Dim filter = piece.group * g_.filters + first + i;
    job_.after->Store(lb(), math().At({piece.image, filter, position}), job_.lanes, live, sums);
  };
  if (turned_) {  // a long epilogue is written once, not for each filter
    for (int64_t i = 0; i < job_.lanes; ++i) {
      lb().Store(turned_, filters[static_cast<size_t>(i)], math().At({Dim(i), Dim(0)}));
    }
    const Dim left = math().Name(Max(Min(Dim(g_.filters) - first, job_.lanes), 0));
    math().For(left, false, [&](const Dim& i) {
      store(i, lb().Load(turned_, math().At({i, Dim(0)}), job_.lanes));
    });
    return;
  }
  for (int64_t i = 0; i < job_.lanes; ++i) {
    const Value sums = filters[static_cast<size_t>(i)];
    const int64_t spare = tiles_ * width() - g_.filters;
    if (spare < width() - v * job_.lanes - i) {
      store(i, sums);
    } else {  // the last tile has no such filter
      math().For(Max(Min(Dim(g_.filters) - first - i, 1), 0), false,
                 [&](const Dim&) { store(i, sums); });
    }
  }
}

}  // namespace

bool LowerConvFilterLanes(Lowering& l) { return WriteUnlessRefused<ConvFilterLanes>(l); }

}  // namespace lathe::lower
