#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <vector>

#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/support/text.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/conv_job.h"
#include "src/lower/strategies/conv_rows.h"
#include "src/lower/strategies/list.h"
#include "src/lower/strategies/winograd_form.h"
#include "src/lower/tiles.h"

// A convolution of 3x3 with fewer multiplications (winograd_form.h). A block of tiles is brought
// together from the input, with its padding, and transformed: neighboring tiles of a row fill the
// lanes of vectors. For each place of a tile there is a product of the transformed weights, made
// when compiling, by what the block's tiles have there; products of a tile of filters are
// transformed back into rows of outputs, along which what follows is computed.
//
// A tile adds up numbers that the outputs do not all depend on. Where one is so large, infinite or
// NaN that the others would suffer, the sums of its outputs' squares are not finite, and the row of
// tiles is computed again from the weights as they were, which lie behind the transformed ones.
namespace lathe::lower {
namespace {

constexpr int64_t kTaps = 3;
// Channels whose products are added up at once; sums of so many are then added to one another,
// which keeps the error of tiles of 4x4 near that of other convolutions.
constexpr int64_t kSumChannels = 32;
constexpr int64_t kMostInputBytes = 640 << 10;  // of a block, transformed
constexpr int64_t kMostSumBytes = 256 << 10;    // where they wait for other channels
constexpr int64_t kStagedBytes = 16 << 10;      // of channels that are copied at once
constexpr double kTransformed = 1.8;            // what transforms take, by the estimate; measured
constexpr double kLargest = 0x1p127;            // of the sum of squares of a tile's outputs

int64_t CeilOf(int64_t a, int64_t b) { return (a + b - 1) / b; }
double Real(int64_t v) { return static_cast<double>(v); }

class ConvWinograd {
 public:
  explicit ConvWinograd(Lowering& lowering) : job_(lowering), g_(job_.g) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  // How the work is cut.
  struct Plan {
    int64_t rows = 1, columns = 1;  // tiles of a block
    int64_t lanes = 1;              // of vectors that are transformed
    int64_t channels = 1;           // that are transformed at once
    int64_t part_tiles = 1;         // of filters, of a piece
    Tile tile{1, 1};                // of registers: filters by tiles
    double cost = 1e300;            // of all
  };
  // What a thread computes at once.
  struct Piece {
    Dim image, first_tile, tiles;  // of filters
    ConvBlock block;               // of outputs
  };
  // A row of tiles of one filter.
  struct Row {
    Dim row;           // of the block
    Dim filter;        // of all
    Dim sum_row;       // where the first place's sums are, among the rows of sums
    Dim weights_tile;  // of all
    Dim in_tile;       // the filter's number there
  };
  // A tile of filters by vectors of tiles, at a place, over channels from `first` on.
  struct Product {
    Dim weights_tile;  // of all
    Dim sum_tile;      // of those whose sums are kept
    Dim place;
    Dim from;  // the first of the block's tiles
    Dim first;
  };

  std::string FormRefusal() const;
  std::vector<WinogradForm> Forms() const;
  void Consider(const WinogradForm& form);
  void ConsiderBlock(const WinogradForm& form, int64_t rows, int64_t columns);
  double Cost(const WinogradForm& form, const Plan& plan) const;
  double DirectCost() const;
  Tile RegisterTileFor(int64_t vectors) const;

  Value PackWeights();
  Piece PieceAt(Dim number);
  void WritePiece(const Piece& piece);
  void TransformTiles(const Dim& staged, const Dim& channel, const Dim& row, const Dim& vector);
  void TransformChannels(const Piece& piece, const Dim& first, int64_t channels);
  void TransformSome(const Piece& piece, const Dim& first, const Dim& from, int64_t count);
  void ClearSums(const Piece& piece);
  void Multiply(const Piece& piece, const Dim& tile, const Dim& first, int64_t channels);
  void MultiplyPlace(const Product& product, int64_t channels);
  void WriteTile(const Product& product, const Dim& channel, int64_t depth, bool is_first);
  void FinishTile(const Piece& piece, const Dim& tile);
  void FinishRow(const Piece& piece, const Row& row);
  Value TransformBack(const Row& row, const Dim& vector, Value squares);
  Value IsLarge(Value squares);
  void ComputeDirectly(const Piece& piece, const Row& row);
  void AddChannel(const Row& row, const Dim& channel, const Dim& i, const Dim& column);
  void StoreOutputs(const Piece& piece, const Row& row);
  void StoreRun(const Piece& piece, const Row& row, const Dim& from, const Dim& position,
                const Dim& count);

  int64_t out(size_t axis) const { return g_.out[axis].value(); }
  int64_t outputs() const { return form_->outputs(); }
  int64_t filter_tiles() const { return CeilOf(g_.filters, plan_.tile.rows); }
  int64_t vectors_of_row() const { return CeilOf(plan_.columns, plan_.lanes); }
  int64_t row_columns() const { return vectors_of_row() * plan_.lanes * outputs(); }
  // Of transformed tiles: whole vectors of products, and what the last row writes beyond them.
  int64_t Pitch(const Plan& plan) const {
    const int64_t width = plan.tile.vectors * job_.lanes;
    const int64_t written =
        (plan.rows - 1) * plan.columns + CeilOf(plan.columns, plan.lanes) * plan.lanes;
    return std::max(CeilOf(plan.rows * plan.columns, width) * width,
                    CeilOf(written, job_.lanes) * job_.lanes);
  }
  int64_t staged_channels() const;
  int64_t sum_rows() const { return form_->products() * plan_.tile.rows; }  // of a tile of filters
  int64_t sum_channels() const { return outputs() > 2 ? kSumChannels : plan_.channels; }
  bool InOneBlock() const { return plan_.channels == g_.channels; }
  // A block has all columns, so that its rows of outputs are neighbors.
  bool HasWholeRows() const { return plan_.columns * outputs() >= out(1); }
  int64_t output_pitch() const { return HasWholeRows() ? out(1) : row_columns(); }
  LoopBuilder& lb() { return *job_.lb; }
  IndexMath& math() { return *job_.math; }

  ConvJob job_;
  ConvGeometry& g_;
  std::optional<WinogradForm> form_;
  Plan plan_;

  // While writing.
  std::optional<ConvRows> rows_;
  Value weights_, bias_;
  Value staged_;   // channels of the input, with padding
  Value tiles_;    // transformed: a row per place and channel
  Value sums_;     // of products: a row per place and filter
  Value outputs_;  // rows of outputs of a row of tiles
  Value direct_;   // the same, computed again
};

// ---- choosing ----

std::string ConvWinograd::FormRefusal() const {
  if (job_.l.precision == Precision::kStrict) return "the precision is strict";
  if (g_.element != ElementType::kF32) return "elements are not f32";
  const auto all = [](const std::vector<int64_t>& values, int64_t wanted) {
    return std::ranges::all_of(values, [&](int64_t v) { return v == wanted; });
  };
  if (g_.rank() != 2 || !all(g_.kernel, kTaps)) return "the kernel is not 3x3";
  if (!all(g_.strides, 1) || !all(g_.dilations, 1)) return "there are strides or dilations";
  if (g_.groups != 1) return "the channels are in groups";
  if (!job_.weights_are_constant()) return "the weights are not known";
  return g_.is_static() ? "" : "the height or width is symbolic";
}

// Tiles of 4x4 have twice the error of `strict` or less from 64 channels on (docs/precision.md).
std::vector<WinogradForm> ConvWinograd::Forms() const {
  constexpr int64_t kManyChannels = 64;
  std::vector<WinogradForm> forms;
  forms.emplace_back(std::vector<double>{0, 1, -1});
  if (job_.l.precision >= Precision::kHigh || g_.channels >= kManyChannels) {
    forms.emplace_back(std::vector<double>{0, 0.625, -0.625, 1.5, -1.5});
  }
  return forms;
}

std::string ConvWinograd::Refusal() {
  if (std::string why = job_.Refusal(); !why.empty()) return why;
  if (std::string why = FormRefusal(); !why.empty()) return why;
  std::vector<WinogradForm> forms = Forms();
  const int64_t forced = job_.l.knobs.Choose("outputs", {0, 2, 4});  // 0: what is estimated
  for (const WinogradForm& form : forms) {
    if (forced == 0 || forced == form.outputs()) Consider(form);
  }
  if (!form_) return "no block of tiles fits into the cache";
  const bool always = job_.l.knobs.Choose("always", {0, 1}) == 1;
  return always || plan_.cost < DirectCost() ? "" : "multiplying directly takes less";
}

// Blocks of equal parts of the rows and columns of tiles.
void ConvWinograd::Consider(const WinogradForm& form) {
  const int64_t high = CeilOf(out(0), form.outputs()), wide = CeilOf(out(1), form.outputs());
  constexpr int64_t kMostVectors = 8;
  const int64_t most = kMostVectors * job_.lanes;
  int64_t last_columns = 0;
  for (int64_t parts = 1; parts <= wide; ++parts) {
    const int64_t columns = CeilOf(wide, parts);
    if (columns > most || columns == last_columns) continue;
    if (columns < job_.lanes && parts > 1) break;
    last_columns = columns;
    for (int64_t rows = 1; rows <= high && (rows == 1 || rows * columns <= most); ++rows) {
      if (rows == CeilOf(high, CeilOf(high, rows))) ConsiderBlock(form, rows, columns);
    }
  }
}

void ConvWinograd::ConsiderBlock(const WinogradForm& form, int64_t rows, int64_t columns) {
  Plan plan;
  plan.rows = rows, plan.columns = columns;
  plan.lanes = job_.lanes;
  while (plan.lanes > 4 && plan.lanes / 2 >= columns) plan.lanes /= 2;
  plan.tile = RegisterTileFor(CeilOf(rows * columns, job_.lanes));
  const int64_t row_bytes = 4 * form.products() * Pitch(plan);  // of a channel, or of a filter
  const int64_t fitting = kMostInputBytes / row_bytes;
  plan.channels = g_.channels;
  if (fitting < g_.channels) plan.channels = fitting / kSumChannels * kSumChannels;
  if (plan.channels == 0) return;
  const int64_t tiles = CeilOf(g_.filters, plan.tile.rows);
  const int64_t tile_bytes = row_bytes * plan.tile.rows;
  const bool in_one = plan.channels == g_.channels;
  const int64_t most_tiles = in_one ? tiles : std::min(tiles, kMostSumBytes / tile_bytes);
  if (most_tiles == 0 || tile_bytes > kMostSumBytes) return;
  for (int64_t parts = CeilOf(tiles, most_tiles); parts <= tiles; ++parts) {
    plan.part_tiles = CeilOf(tiles, parts);
    if (parts > 1 && CeilOf(tiles, parts - 1) == plan.part_tiles && plan.part_tiles < most_tiles)
      continue;
    plan.cost = Cost(form, plan);
    if (plan.cost < plan_.cost) plan_ = plan, form_ = form;
  }
}

// As wide as divides the vectors best, since the other dimension has many.
Tile ConvWinograd::RegisterTileFor(int64_t vectors) const {
  const int64_t registers = job_.SumRegisters();
  Tile best{1, 1};
  double least = 1e300;
  for (int64_t v = 1; v <= std::min<int64_t>(vectors, 4); ++v) {
    const int64_t rows = std::min((registers - v - 1) / v, g_.filters);
    if (rows < 1) break;
    // Loads of a step, of which there are two a cycle; sums; what is multiplied in vain.
    const double step = std::max(Real(rows * v), Real(rows + v) * 0.6 + 1);
    const double steps = Real(CeilOf(vectors, v)) * Real(CeilOf(g_.filters, rows));
    if (step * steps < least * 0.999) least = step * steps, best = {rows, v};
  }
  return best;
}

// In multiply-adds of vectors, as in ConvJob::Cost.
double ConvWinograd::Cost(const WinogradForm& form, const Plan& plan) const {
  const int64_t vectors = CeilOf(plan.rows * plan.columns, job_.lanes);
  const int64_t wide = CeilOf(vectors, plan.tile.vectors) * plan.tile.vectors;
  const int64_t filters = plan.part_tiles * plan.tile.rows;
  const double products = Real(form.products() * filters * wide);
  const double sums = form.outputs() > 2 ? Real(CeilOf(g_.channels, kSumChannels)) * 3 : 2;
  double multiplied = products * (Real(g_.channels) + sums);
  // Transformed weights come from the third cache, or from memory.
  const double bytes = Real(4 * form.products() * g_.channels * g_.filters);
  const double per_cycle = bytes > Real(16 << 20) ? 3 : 12;
  if (bytes > Real(512 << 10)) {
    multiplied =
        std::max(multiplied, Real(4 * form.products() * g_.channels * filters) / per_cycle);
  }
  const double row_vectors = Real(plan.rows * CeilOf(plan.columns, plan.lanes));
  const double width = plan.lanes == job_.lanes ? 1 : 0.7;
  const double outputs = Real(form.outputs() * form.outputs());
  const double in = Real(g_.channels) * row_vectors * width *
                    (Real(form.input_cost()) + Real(form.products()) * (2 + Real(form.outputs())) +
                     outputs * (job_.before ? 6 : 2));
  const double back = Real(filters) * row_vectors * width *
                      (Real(form.output_cost()) + Real(form.products()) + 5 * outputs + 20);
  const int64_t images = g_.batch.is_constant() ? g_.batch.value() : 1;
  const int64_t blocks = CeilOf(CeilOf(out(0), form.outputs()), plan.rows) *
                         CeilOf(CeilOf(out(1), form.outputs()), plan.columns);
  const int64_t parts = CeilOf(CeilOf(g_.filters, plan.tile.rows), plan.part_tiles);
  return job_.Cost(images * blocks * parts, multiplied + kTransformed * (in + back));
}

// The same of the strategies that multiply directly, which are near the peak.
double ConvWinograd::DirectCost() const {
  const int64_t images = g_.batch.is_constant() ? g_.batch.value() : 1;
  const int64_t lanes_filled = std::min(CeilOf(g_.positions().value(), job_.lanes) * g_.filters,
                                        CeilOf(g_.filters, job_.lanes) * g_.positions().value());
  const double all = Real(images * lanes_filled) * Real(g_.depth()) * 1.05;
  constexpr int64_t kPieceWork = 20000, kPieces = 8;  // that all numbers of threads share
  const auto pieces = std::clamp(static_cast<int64_t>(all) / kPieceWork, int64_t{1}, kPieces);
  return job_.Cost(pieces, all / Real(pieces));
}

// ---- writing ----

// [tiles of filters, places, channels, filters of a tile]
Value ConvWinograd::PackWeights() {
  const int64_t places = form_->products() + kTaps * kTaps;
  PackedLayout layout;
  layout.argument = job_.master->operand(1).index();
  layout.sums = form_->WeightSums();
  layout.summed = kTaps * kTaps;
  layout.padded = {filter_tiles() * plan_.tile.rows, g_.channels, places};
  layout.split = {filter_tiles(), plan_.tile.rows, g_.channels, places};
  layout.order = {0, 3, 2, 1};
  return job_.l.Pack(std::move(layout));
}

void ConvWinograd::Write() {
  job_.Open();
  rows_.emplace(lb(), math(), g_, job_.lanes, plan_.rows * outputs(), row_columns());
  weights_ = PackWeights();
  bias_ = job_.Argument(2);
  const int64_t blocks = CeilOf(CeilOf(out(0), outputs()), plan_.rows) *
                         CeilOf(CeilOf(out(1), outputs()), plan_.columns);
  const Dim all = g_.batch * (blocks * CeilOf(filter_tiles(), plan_.part_tiles));
  math().For(all, job_.parallel, [&](const Dim& i) { WritePiece(PieceAt(i)); });
  job_.Close();
}

ConvWinograd::Piece ConvWinograd::PieceAt(Dim number) {
  const auto take = [&](int64_t extent) {
    const Dim taken = math().Name(Mod(number, extent));
    number = math().Name(FloorDiv(number, extent));
    return taken;
  };
  Piece piece;
  piece.first_tile = math().Name(take(CeilOf(filter_tiles(), plan_.part_tiles)) * plan_.part_tiles);
  const bool divides = filter_tiles() % plan_.part_tiles == 0;
  piece.tiles = divides
                    ? Dim(plan_.part_tiles)
                    : math().Name(Min(Dim(filter_tiles()) - piece.first_tile, plan_.part_tiles));
  const int64_t block_columns = plan_.columns * outputs(), block_rows = plan_.rows * outputs();
  piece.block.column = math().Name(take(CeilOf(out(1), block_columns)) * block_columns);
  piece.block.row = math().Name(take(CeilOf(out(0), block_rows)) * block_rows);
  piece.image = number;
  return piece;
}

int64_t ConvWinograd::staged_channels() const {
  const int64_t row = row_columns() + 2 * job_.lanes;
  const int64_t channel_bytes = 4 * (plan_.rows * outputs() + kTaps - 1) * row;
  return std::clamp<int64_t>(kStagedBytes / channel_bytes, 1, plan_.channels);
}

void ConvWinograd::WritePiece(const Piece& piece) {
  const int64_t pitch = Pitch(plan_);
  staged_ = rows_->Memory(staged_channels());
  tiles_ = job_.Memory(form_->products() * plan_.channels, pitch);
  sums_ = job_.Memory((InOneBlock() ? 1 : plan_.part_tiles) * sum_rows(), pitch);
  outputs_ = job_.Memory(1, outputs() * output_pitch() + row_columns() + job_.lanes);
  direct_ = job_.Memory(outputs(), CeilOf(row_columns(), job_.lanes) * job_.lanes);
  if (InOneBlock()) {
    TransformChannels(piece, 0, g_.channels);
    return math().For(piece.tiles, false, [&](const Dim& tile) {
      Multiply(piece, tile, 0, g_.channels);
      FinishTile(piece, tile);
    });
  }
  ClearSums(piece);
  const auto block = [&](const Dim& first, int64_t channels) {
    TransformChannels(piece, first, channels);
    math().For(piece.tiles, false,
               [&](const Dim& tile) { Multiply(piece, tile, first, channels); });
  };
  const int64_t blocks = g_.channels / plan_.channels, rest = g_.channels % plan_.channels;
  math().For(blocks, false,
             [&](const Dim& b) { block(math().Name(b * plan_.channels), plan_.channels); });
  if (rest > 0) block(blocks * plan_.channels, rest);
  math().For(piece.tiles, false, [&](const Dim& tile) { FinishTile(piece, tile); });
}

void ConvWinograd::ClearSums(const Piece& piece) {
  math().For(math().Name(piece.tiles * sum_rows()), false, [&](const Dim& row) {
    math().For(Pitch(plan_) / job_.lanes, false, [&](const Dim& v) {
      lb().Store(sums_, job_.Zeros(), math().At({row, v * job_.lanes}));
    });
  });
}

// A few channels at a time.
void ConvWinograd::TransformChannels(const Piece& piece, const Dim& first, int64_t channels) {
  const int64_t few = std::min(staged_channels(), channels);
  math().For(channels / few, false,
             [&](const Dim& i) { TransformSome(piece, first, math().Name(i * few), few); });
  if (channels % few != 0) TransformSome(piece, first, channels / few * few, channels % few);
}

// `from`: of those from `first` on.
void ConvWinograd::TransformSome(const Piece& piece, const Dim& first, const Dim& from,
                                 int64_t count) {
  rows_->Write(job_.input, piece.image, math().Name(first + from), count, piece.block, staged_);
  math().For(count, false, [&](const Dim& c) {
    const Dim channel = math().Name(from + c);
    math().For(plan_.rows, false, [&](const Dim& row) {
      math().For(vectors_of_row(), false,
                 [&](const Dim& v) { TransformTiles(c, channel, row, v); });
    });
  });
}

// The last vector of a row writes beyond it what the next row writes again.
void ConvWinograd::TransformTiles(const Dim& staged, const Dim& channel, const Dim& row,
                                  const Dim& vector) {
  std::vector<Value> inputs;
  const Dim first = vector * (plan_.lanes * outputs());
  for (int64_t i = 0; i < form_->inputs(); ++i) {
    for (int64_t j = 0; j < form_->inputs(); ++j) {
      inputs.push_back(rows_->ReadApart(staged_, staged, row * outputs() + i, first + j,
                                        plan_.lanes, outputs()));
    }
  }
  const std::vector<Value> places = form_->TransformInput(lb(), job_.l.machine, inputs);
  const Dim to = math().Name(row * plan_.columns + vector * plan_.lanes);
  for (size_t i = 0; i < places.size(); ++i) {
    const Dim at = Dim(static_cast<int64_t>(i) * plan_.channels) + channel;
    lb().Store(tiles_, places[i], math().At({at, to}));
  }
}

// A tile of filters by all tiles of the block, over channels that were transformed.
void ConvWinograd::Multiply(const Piece& piece, const Dim& tile, const Dim& first,
                            int64_t channels) {
  Product product{
      math().Name(piece.first_tile + tile), InOneBlock() ? Dim(0) : tile, {}, {}, first};
  const int64_t width = plan_.tile.vectors * job_.lanes;
  math().For(form_->products(), false, [&](const Dim& place) {
    product.place = place;
    math().For(CeilOf(plan_.rows * plan_.columns, width), false, [&](const Dim& i) {
      product.from = math().Name(i * width);
      MultiplyPlace(product, channels);
    });
  });
}

void ConvWinograd::MultiplyPlace(const Product& product, int64_t channels) {
  const int64_t depth = std::min(sum_channels(), channels);
  const int64_t begun = InOneBlock() ? depth : 0;
  if (begun > 0) WriteTile(product, 0, depth, true);
  const int64_t blocks = (channels - begun) / depth, rest = (channels - begun) % depth;
  math().For(blocks, false, [&](const Dim& b) {
    WriteTile(product, math().Name(b * depth + begun), depth, false);
  });
  if (rest > 0) WriteTile(product, begun + blocks * depth, rest, false);
}

void ConvWinograd::WriteTile(const Product& product, const Dim& channel, int64_t depth,
                             bool is_first) {
  const int64_t rows = plan_.tile.rows, places = form_->products();
  const auto sum_at = [&](int64_t r, int64_t v) {
    const Dim row = (product.sum_tile * places + product.place) * rows + r;
    return math().At({row, product.from + v * job_.lanes});
  };
  const auto weight_at = [&](Value k, int64_t r) {
    return math().At(
        {product.weights_tile, product.place, product.first + channel + math().Of(k), Dim(r)});
  };
  RegisterTile tile{rows, plan_.tile.vectors, g_.element, {}, {}, {}, {}};
  tile.scalar = [&](int64_t r, Value k) { return lb().Load(weights_, weight_at(k, r)); };
  tile.vector = [&](int64_t v, Value k) {
    const Dim row = product.place * plan_.channels + channel + math().Of(k);
    return lb().Load(tiles_, math().At({row, product.from + v * job_.lanes}), job_.lanes);
  };
  tile.start = [&](int64_t, int64_t) { return job_.Zeros(); };
  tile.finish = [&](int64_t r, int64_t v, Value sum) {
    const std::vector<Value> at = sum_at(r, v);
    if (!is_first) {
      sum = nn::AddOp::Create(lb().b(), lb().Load(sums_, at, job_.lanes), sum).c();
    }
    lb().Store(sums_, sum, at);
  };
  // Those of the next place.
  tile.beside = [&](Value k) {
    lb().Prefetch(weights_, math().At({product.weights_tile, product.place + 1,
                                       product.first + channel + math().Of(k), Dim(0)}));
  };
  tile.Write(lb(), job_.l.machine, depth);
}

void ConvWinograd::FinishTile(const Piece& piece, const Dim& tile) {
  const int64_t rows = plan_.tile.rows;
  const Dim first = math().Name((piece.first_tile + tile) * rows);
  const Dim filters =
      g_.filters % rows == 0 ? Dim(rows) : math().Name(Min(Dim(g_.filters) - first, rows));
  const Dim sum_tile = InOneBlock() ? Dim(0) : tile;
  math().For(filters, false, [&](const Dim& f) {
    const Dim sum_row = math().Name(sum_tile * (form_->products() * rows) + f);
    math().For(plan_.rows, false, [&](const Dim& row) {
      FinishRow(piece,
                {row, math().Name(first + f), sum_row, math().Name(piece.first_tile + tile), f});
    });
  });
}

// Vectors are written from the last one on: each row of outputs may write into the next one, which
// has its own there afterwards.
void ConvWinograd::FinishRow(const Piece& piece, const Row& row) {
  const int64_t vectors = vectors_of_row();
  const Value none = lb().Splat(g_.element, 0, plan_.lanes);
  const Value squares =
      vectors == 1 ? TransformBack(row, 0, none)
                   : lb().For(Dim(vectors), std::span(&none, 1),
                              [&](Value i, std::span<const Value> carried) {
                                const Dim vector = math().Name(Dim(vectors - 1) - math().Of(i));
                                return std::vector{TransformBack(row, vector, carried[0])};
                              })[0];
  lb().For(IsLarge(squares), false, [&](Value) { ComputeDirectly(piece, row); });
  StoreOutputs(piece, row);
}

// Adds the squares of the outputs, but for those that are of no tile.
Value ConvWinograd::TransformBack(const Row& row, const Dim& vector, Value squares) {
  const Dim column = row.row * plan_.columns + vector * plan_.lanes;
  std::vector<Value> sums;
  for (int64_t i = 0; i < form_->products(); ++i) {
    const Dim at = row.sum_row + i * plan_.tile.rows;
    sums.push_back(lb().Load(sums_, math().At({at, column}), plan_.lanes));
  }
  const std::vector<Value> results = form_->TransformOutput(lb(), job_.l.machine, sums);
  Value sum = squares;
  for (const Value v : results) sum = MulAdd(lb(), job_.l.machine, v, v, sum);
  for (int64_t i = 0; i < outputs(); ++i) {
    const auto first = results.begin() + i * outputs();
    const Dim to = vector * (plan_.lanes * outputs()) + i * output_pitch();
    lb().Store(outputs_, lb().Interleave(std::vector<Value>(first, first + outputs())),
               math().At({Dim(0), to}));
  }
  if (plan_.columns % plan_.lanes == 0) return sum;
  std::vector<int64_t> numbers(static_cast<size_t>(plan_.lanes));
  std::iota(numbers.begin(), numbers.end(), 0);
  const Value lanes = lb().Constant(Tensor::Of<int64_t>({plan_.lanes}, numbers));
  const Value live = math().At(Dim(plan_.columns) - vector * plan_.lanes);
  const Value exists = nn::LessOp::Create(lb().b(), lanes, live).c();
  return nn::WhereOp::Create(lb().b(), exists, sum, squares).output();
}

// 1 or 0, also for NaN.
Value ConvWinograd::IsLarge(Value squares) {
  const Value sum = lb().Reduce("add", squares);
  const Value is_small = nn::LessOp::Create(lb().b(), sum, lb().Splat(g_.element, kLargest)).c();
  return nn::WhereOp::Create(lb().b(), is_small, lb().Int(0), lb().Int(1)).output();
}

void ConvWinograd::ComputeDirectly(const Piece& piece, const Row& row) {
  const int64_t vectors = CeilOf(row_columns(), job_.lanes);
  const auto each_vector = [&](const std::function<void(const Dim& i, const Dim& column)>& body) {
    math().For(outputs(), false, [&](const Dim& i) {
      math().For(vectors, false, [&](const Dim& v) { body(i, math().Name(v * job_.lanes)); });
    });
  };
  each_vector([&](const Dim& i, const Dim& column) {
    lb().Store(direct_, job_.Zeros(), math().At({i, column}));
  });
  math().For(g_.channels, false, [&](const Dim& channel) {
    rows_->Write(job_.input, piece.image, channel, 1, piece.block, staged_);
    each_vector([&](const Dim& i, const Dim& column) { AddChannel(row, channel, i, column); });
  });
  each_vector([&](const Dim& i, const Dim& column) {
    lb().Store(outputs_, lb().Load(direct_, math().At({i, column}), job_.lanes),
               math().At({Dim(0), i * output_pitch() + column}));
  });
}

// To a vector of outputs.
void ConvWinograd::AddChannel(const Row& row, const Dim& channel, const Dim& i, const Dim& column) {
  const std::vector<Value> at = math().At({i, column});
  Value sum = lb().Load(direct_, at, job_.lanes);
  for (int64_t place = 0; place < kTaps * kTaps; ++place) {
    const Value weight = lb().Load(
        weights_,
        math().At({row.weights_tile, Dim(form_->products() + place), channel, row.in_tile}));
    const Value inputs = rows_->ReadVector(staged_, 0, 0, place / kTaps, place % kTaps,
                                           row.row * outputs() + i, column);
    sum = MulAdd(lb(), job_.l.machine, weight, inputs, sum);
  }
  lb().Store(direct_, sum, at);
}

void ConvWinograd::StoreOutputs(const Piece& piece, const Row& row) {
  const Dim first = math().Name(piece.block.row + row.row * outputs());
  const bool divides = out(0) % (plan_.rows * outputs()) == 0;
  const Dim rows =
      divides ? Dim(outputs()) : math().Name(Max(Min(Dim(out(0)) - first, outputs()), 0));
  if (HasWholeRows()) {
    return StoreRun(piece, row, 0, math().Name(first * out(1)), math().Name(rows * out(1)));
  }
  const int64_t block_columns = plan_.columns * outputs();
  const Dim columns = out(1) % block_columns == 0
                          ? Dim(block_columns)
                          : math().Name(Min(Dim(out(1)) - piece.block.column, block_columns));
  math().For(rows, false, [&](const Dim& i) {
    const Dim position = math().Name((first + i) * out(1) + piece.block.column);
    StoreRun(piece, row, math().Name(i * output_pitch()), position, columns);
  });
}

// So many neighboring positions, with what follows the convolution.
void ConvWinograd::StoreRun(const Piece& piece, const Row& row, const Dim& from,
                            const Dim& position, const Dim& count) {
  const auto store = [&](const Dim& v, Value live) {
    const Dim at = v * job_.lanes;
    Value sums = lb().Load(outputs_, math().At({Dim(0), from + at}), job_.lanes);
    if (bias_) {
      sums = nn::AddOp::Create(lb().b(), sums, lb().Load(bias_, math().At({row.filter}))).c();
    }
    job_.after->Store(lb(), math().At({piece.image, row.filter, position + at}), job_.lanes, live,
                      sums);
  };
  const Dim whole = math().Name(FloorDiv(count, job_.lanes));
  math().For(whole, false, [&](const Dim& v) { store(v, {}); });
  const Dim rest = math().Name(Mod(count, job_.lanes));
  math().For(Min(rest, 1), false, [&](const Dim&) { store(whole, math().At(rest)); });
}

}  // namespace

bool LowerConvWinograd(Lowering& l) { return WriteUnlessRefused<ConvWinograd>(l); }

}  // namespace lathe::lower
