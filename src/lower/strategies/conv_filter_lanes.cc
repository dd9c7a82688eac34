#include <algorithm>
#include <vector>

#include "lathe/support/text.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/conv_job.h"
#include "src/lower/strategies/list.h"
#include "src/lower/tiles.h"

// A convolution whose filters fill the lanes of vectors, for planes whose positions would not: the
// positions are the rows of a matrix product. Weights, which must be known, are packed and read
// once for a block of positions; the sums are turned, a square tile at a time, before what follows
// is computed along the positions.
namespace lathe::lower {
namespace {

constexpr int64_t kMostRows = 200;      // positions of a block
constexpr int64_t kMostDepth = 256;     // of a block
constexpr int64_t kPieces = 8;          // that threads should have to share
constexpr int64_t kLeastFilters = 256;  // of a piece: what a panel costs must not show
constexpr double kTurnLane = 10;        // cost of turning a square tile, per lane, in multiply-adds

int64_t CeilOf(int64_t a, int64_t b) { return (a + b - 1) / b; }

class ConvFilterLanes {
 public:
  explicit ConvFilterLanes(Lowering& lowering) : job_(lowering), g_(job_.g) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  // Positions and filters that a thread computes at once.
  struct Piece {
    Dim image, group, first, first_tile;
    int64_t rows;
  };

  bool Wins() const;
  void PickBlocks();
  Value PackWeights();
  void WritePieces(const Dim& first_block, int64_t blocks, int64_t rows);
  void WritePiece(const Piece& piece);
  void WriteBlock(const Piece& piece, const Dim& block, int64_t channels);
  void WriteFilters(const Piece& piece, const Dim& block, const Dim& tile, int64_t depth);
  void WriteTile(const Piece& piece, const Dim& block, const Dim& tile, const Dim& first_row,
                 int64_t rows, int64_t depth);
  void Prefetch(const Piece& piece, const Dim& block, const Dim& tile, const Dim& step,
                int64_t depth);
  void StartSums(const Piece& piece);
  void FinishTile(const Piece& piece, const Dim& tile);
  void TurnTile(const Piece& piece, const Dim& tile, const Dim& row, int64_t v, Value live);
  Value Bias(const Piece& piece, const Dim& tile, int64_t v);
  Dim SumsRow(const Dim& tile, const Dim& row) { return tile * sum_rows_ + row; }
  Dim AllTiles(const Piece& piece, const Dim& tile) {
    return piece.group * tiles_ + piece.first_tile + tile;
  }
  int64_t width() const { return tile_.vectors * job_.lanes; }
  int64_t positions() const { return g_.positions().value(); }
  bool InOneBlock() const { return block_channels_ == g_.channels; }
  LoopBuilder& lb() { return *job_.lb; }
  IndexMath& math() { return *job_.math; }

  ConvJob job_;
  const ConvGeometry& g_;
  Tile tile_{1, 1};
  int64_t tiles_ = 1;           // of filters, in a group
  int64_t piece_tiles_ = 1;     // of filters, in a piece
  int64_t block_rows_ = 1;      // positions of a block
  int64_t sum_rows_ = 1;        // of a tile of sums: whole vectors when turned
  int64_t block_channels_ = 1;  // that a panel holds

  // While writing.
  Value weights_, bias_, panel_, sums_;
};

std::string ConvFilterLanes::Refusal() {
  if (std::string why = job_.Refusal(); !why.empty()) return why;
  if (!job_.weights_are_constant()) return "the weights are not known";
  if (!g_.positions().is_constant()) return "the positions are of symbolic number";
  tile_.vectors = std::min<int64_t>(2, CeilOf(g_.filters, job_.lanes));
  tiles_ = CeilOf(g_.filters, width());
  if (g_.groups > 1 && g_.filters % width() != 0)
    return "the filters of a group do not fill vectors";
  if (!Wins()) return "the positions fill vectors as well";
  PickBlocks();
  return "";
}

// In multiply-adds of vectors.
bool ConvFilterLanes::Wins() const {
  const auto depth = static_cast<double>(g_.depth());
  const auto p = static_cast<double>(positions()), f = static_cast<double>(g_.filters);
  const auto vectors_of_p = static_cast<double>(CeilOf(positions(), job_.lanes));
  const auto vectors_of_f = static_cast<double>(tiles_ * tile_.vectors);
  const double turning = vectors_of_p * vectors_of_f * kTurnLane * static_cast<double>(job_.lanes);
  return p * vectors_of_f * (depth + 4) + turning < vectors_of_p * f * depth;
}

// Blocks of positions are equal if that is possible without making them small.
void ConvFilterLanes::PickBlocks() {
  block_rows_ = std::min(positions(), kMostRows);
  while (positions() % block_rows_ != 0) --block_rows_;
  if (block_rows_ < kMostRows / 4 && block_rows_ < positions()) {
    block_rows_ = CeilOf(positions(), CeilOf(positions(), kMostRows));
  }
  const int registers = job_.l.machine.vector_registers;
  tile_.rows = PickTile(block_rows_, width(), job_.lanes, registers, 0).rows;
  sum_rows_ = CeilOf(block_rows_, job_.lanes) * job_.lanes;
  block_channels_ = BlockChannels(g_, kMostDepth);
  piece_tiles_ = tiles_;
  const int64_t blocks = CeilOf(positions(), block_rows_);
  const int64_t images = g_.batch.is_constant() ? g_.batch.value() : 1;
  if (!job_.parallel || g_.filters % width() != 0) return;
  while (images * g_.groups * blocks * (tiles_ / piece_tiles_) < kPieces && piece_tiles_ % 2 == 0 &&
         piece_tiles_ * width() / 2 >= kLeastFilters) {
    piece_tiles_ /= 2;
  }
}

// ---- writing ----

// [blocks of depth, tiles, depth of a block, filters of a tile]
Value ConvFilterLanes::PackWeights() {
  const int64_t blocks = CeilOf(g_.channels, block_channels_), tiles = tiles_ * g_.groups;
  PackedLayout layout;
  layout.argument = job_.master->operand(1).index();
  layout.padded = {tiles * width(), blocks * block_channels_};
  layout.padded.insert(layout.padded.end(), g_.kernel.begin(), g_.kernel.end());
  layout.split = {tiles, width(), blocks, block_channels_ * g_.places()};
  layout.order = {2, 0, 3, 1};
  return job_.l.Pack(std::move(layout));
}

void ConvFilterLanes::Write() {
  job_.Open();
  weights_ = PackWeights();
  bias_ = job_.Argument(2);
  const int64_t blocks = positions() / block_rows_, rest = positions() % block_rows_;
  WritePieces(0, blocks, block_rows_);
  if (rest > 0) WritePieces(blocks, 1, rest);
  job_.Close();
}

void ConvFilterLanes::WritePieces(const Dim& first_block, int64_t blocks, int64_t rows) {
  const int64_t parts = tiles_ / piece_tiles_;
  const Dim all = math().Extent(g_.batch) * (g_.groups * blocks * parts);
  const auto take = [&](Dim& i, int64_t extent) {
    const Dim taken = math().Name(Mod(i, extent));
    i = math().Name(FloorDiv(i, extent));
    return taken;
  };
  math().For(all, job_.parallel, [&](Dim i) {
    const Dim part = take(i, parts), block = take(i, blocks), group = take(i, g_.groups);
    WritePiece({i, group, math().Name((first_block + block) * block_rows_),
                math().Name(part * piece_tiles_), rows});
  });
}

void ConvFilterLanes::WritePiece(const Piece& piece) {
  panel_ = job_.Memory(block_channels_ * g_.places(), job_.panels->Pitch(sum_rows_));
  sums_ = job_.Memory((InOneBlock() ? 1 : piece_tiles_) * sum_rows_, width());
  if (InOneBlock()) return WriteBlock(piece, 0, g_.channels);
  StartSums(piece);
  const int64_t blocks = g_.channels / block_channels_, rest = g_.channels % block_channels_;
  math().For(blocks, false, [&](const Dim& block) { WriteBlock(piece, block, block_channels_); });
  if (rest > 0) WriteBlock(piece, blocks, rest);
  math().For(piece_tiles_, false, [&](const Dim& tile) { FinishTile(piece, tile); });
}

Value ConvFilterLanes::Bias(const Piece& piece, const Dim& tile, int64_t v) {
  if (!bias_) return job_.Zeros();
  const Dim first = AllTiles(piece, tile) * width() + v * job_.lanes;
  const bool fills = g_.filters % width() == 0;
  const Value live = fills ? Value() : job_.Live(first, g_.filters * g_.groups);
  return lb().Load(bias_, math().At({first}), job_.lanes, live);
}

void ConvFilterLanes::StartSums(const Piece& piece) {
  math().For(piece_tiles_, false, [&](const Dim& tile) {
    for (int64_t v = 0; v < tile_.vectors; ++v) {
      const Value start = Bias(piece, tile, v);
      math().For(piece.rows, false, [&](const Dim& row) {
        lb().Store(sums_, start, math().At({SumsRow(tile, row), Dim(v * job_.lanes)}));
      });
    }
  });
}

void ConvFilterLanes::WriteBlock(const Piece& piece, const Dim& block, int64_t channels) {
  const Dim first = piece.group * g_.channels + block * block_channels_;
  job_.panels->Write(job_.input, {piece.image, math().Name(first), channels, piece.first},
                     sum_rows_, panel_);
  math().For(piece_tiles_, false, [&](const Dim& tile) {
    WriteFilters(piece, block, tile, channels * g_.places());
    if (InOneBlock()) FinishTile(piece, tile);
  });
}

void ConvFilterLanes::WriteFilters(const Piece& piece, const Dim& block, const Dim& tile,
                                   int64_t depth) {
  const int64_t whole = piece.rows / tile_.rows, rest = piece.rows % tile_.rows;
  math().For(whole, false, [&](const Dim& i) {
    WriteTile(piece, block, tile, i * tile_.rows, tile_.rows, depth);
  });
  if (rest > 0) WriteTile(piece, block, tile, whole * tile_.rows, rest, depth);
}

void ConvFilterLanes::WriteTile(const Piece& piece, const Dim& block, const Dim& tile,
                                const Dim& first_row, int64_t rows, int64_t depth) {
  RegisterTile product{rows, tile_.vectors, g_.element, {}, {}, {}, {}};
  const auto sum_at = [&](int64_t r, int64_t v) {
    const Dim row = SumsRow(InOneBlock() ? Dim(0) : tile, first_row + r);
    return math().At({row, Dim(v * job_.lanes)});
  };
  product.scalar = [&](int64_t r, Value k) {
    return lb().Load(panel_, math().At({math().Of(k), first_row + r}));
  };
  product.vector = [&](int64_t v, Value k) {
    if (v == 0) Prefetch(piece, block, tile, first_row * depth + math().Of(k) * rows, depth);
    const Dim at = v * job_.lanes;
    return lb().Load(weights_, math().At({block, AllTiles(piece, tile), math().Of(k), at}),
                     job_.lanes);
  };
  product.start = [&](int64_t r, int64_t v) {
    return InOneBlock() ? Bias(piece, tile, v) : lb().Load(sums_, sum_at(r, v), job_.lanes);
  };
  product.finish = [&](int64_t r, int64_t v, Value sum) { lb().Store(sums_, sum, sum_at(r, v)); };
  product.Write(lb(), job_.l.machine, depth);
}

// While a tile is multiplied the weights of the next one are asked for, spread over all steps.
void ConvFilterLanes::Prefetch(const Piece& piece, const Dim& block, const Dim& tile,
                               const Dim& step, int64_t depth) {
  const int64_t line = 64 * 8 / BitWidth(g_.element);
  const int64_t steps = piece.rows * depth, elements = depth * width();
  const Dim ahead = FloorDiv(step * CeilOf(elements, line), steps) * line;
  lb().Prefetch(weights_, math().At({block, AllTiles(piece, tile) + 1, Dim(0), ahead}));
}

void ConvFilterLanes::FinishTile(const Piece& piece, const Dim& tile) {
  const int64_t whole = piece.rows / job_.lanes, rest = piece.rows % job_.lanes;
  for (int64_t v = 0; v < tile_.vectors; ++v) {
    math().For(whole, false,
               [&](const Dim& q) { TurnTile(piece, tile, math().Name(q * job_.lanes), v, {}); });
    if (rest > 0) TurnTile(piece, tile, whole * job_.lanes, v, lb().Int(rest));
  }
}

void ConvFilterLanes::TurnTile(const Piece& piece, const Dim& tile, const Dim& row, int64_t v,
                               Value live) {
  const Dim from = InOneBlock() ? Dim(0) : tile;
  std::vector<Value> rows;
  for (int64_t i = 0; i < job_.lanes; ++i) {
    const auto at = math().At({SumsRow(from, row + i), Dim(v * job_.lanes)});
    rows.push_back(lb().Load(sums_, at, job_.lanes));
  }
  const std::vector<Value> filters = lb().Transpose(rows);
  for (int64_t i = 0; i < job_.lanes; ++i) {
    const Dim in_group = (piece.first_tile + tile) * width() + v * job_.lanes + i;
    const auto store = [&] {
      const Dim filter = piece.group * g_.filters + in_group;
      job_.after->Store(lb(), math().At({piece.image, filter, piece.first + row}), job_.lanes, live,
                        filters[static_cast<size_t>(i)]);
    };
    const int64_t spare = tiles_ * width() - g_.filters;
    if (spare < width() - v * job_.lanes - i) {
      store();
    } else {  // the last tile has no such filter
      math().For(Max(Min(Dim(g_.filters) - in_group, 1), 0), false, [&](const Dim&) { store(); });
    }
  }
}

}  // namespace

bool LowerConvFilterLanes(Lowering& l) {
  ConvFilterLanes lowering(l);
  l.why = lowering.Refusal();
  if (!l.why.empty()) return false;
  lowering.Write();
  return true;
}

}  // namespace lathe::lower
