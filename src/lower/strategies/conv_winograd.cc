#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/support/divide.h"
#include "lathe/support/text.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/conv_job.h"
#include "src/lower/strategies/conv_rows.h"
#include "src/lower/strategies/list.h"
#include "src/lower/strategies/winograd_plan.h"

// A convolution of 3x3 with fewer multiplications (winograd_form.h). A block of tiles is brought
// together from the input, with its padding, and transformed: neighboring tiles of a row fill the
// lanes of vectors. For each place of a tile there is a product of the transformed weights, made
// when compiling, or first of all where only a run knows them, by what the block's tiles have
// there; products of a tile of filters are transformed back into rows of outputs, along which what
// follows is computed.
//
// A tile adds up numbers that the outputs do not all depend on. Where one is so large, infinite or
// NaN that the others would suffer, the sums of its outputs' squares are not finite, and the row of
// tiles is computed again from the weights as they were, which lie behind the transformed ones.
//
// Where height or width are symbolic, how many rows and columns of tiles a block has follows from
// them when the program runs; planes that are too small for tiles are left to other strategies.
namespace lathe::lower {
namespace {

constexpr int64_t kTaps = 3;
constexpr int64_t kStagedBytes = 16 << 10;  // of channels that are copied at once
// Where extents are symbolic: rows lie far apart, and most of the memory stays unused.
constexpr int64_t kMostStaged = 4, kMostStagedBytes = 256 << 10;
constexpr int64_t kFewestLanes = 4;   // of transformed vectors
constexpr double kLargest = 0x1p127;  // of the sum of squares of a tile's outputs

class ConvWinograd {
 public:
  explicit ConvWinograd(Lowering& lowering) : job_(lowering), g_(job_.g) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  // What a thread computes at once.
  struct Piece {
    Dim image, first_tile, tiles;  // of filters
    Dim rows, columns;             // of tiles of outputs
    ConvBlock block;               // of outputs
    Dim vectors;                   // of products
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
    int64_t vectors;
  };

  std::string FormRefusal() const;
  Value PackWeights();
  Value TransformWeights();
  void TransformFilters(Value memory, const Dim& tile, const Dim& channel, int64_t from);
  Piece PieceAt(Dim number);
  void WritePiece(const Piece& piece);
  void ShareOut();
  void ForLanes(const std::function<void(int64_t lanes)>& body);
  void TransformTiles(const Piece& piece, const Dim& staged, const Dim& channel, const Dim& row,
                      const Dim& vector, int64_t lanes);
  void AlongSide(int64_t side, const std::function<void(const Dim& i)>& body);
  void StoreHalf(const std::vector<Value>& values, const Dim& first);
  std::vector<Value> LoadHalf(const Dim& first, int64_t stride, int64_t lanes);
  void TransformChannels(const Piece& piece, const Dim& first, int64_t channels);
  void TransformSome(const Piece& piece, const Dim& first, const Dim& from, int64_t count);
  void ClearBeyond(const Piece& piece);
  void Clear(Value memory, const Dim& rows, const Dim& first, const Dim& end);
  void Multiply(const Piece& piece, const Dim& tile, const Dim& first, int64_t channels);
  void MultiplyPlace(const Product& product, int64_t channels);
  void WriteTile(const Product& product, const Dim& channel, int64_t depth, bool is_first);
  void FinishTile(const Piece& piece, const Dim& tile);
  void FinishRow(const Piece& piece, const Row& row);
  Value SumOfSquares(const Piece& piece, const Row& row, int64_t lanes);
  Value TransformBack(const Piece& piece, const Row& row, const Dim& vector, Value squares);
  Value IsLarge(Value squares);
  void ComputeDirectly(const Piece& piece, const Row& row);
  void AddChannel(const Row& row, const Dim& channel, const Dim& i, const Dim& column);
  void StoreOutputs(const Piece& piece, const Row& row);
  void StoreRun(const Piece& piece, const Row& row, const Dim& from, const Dim& position,
                const Dim& count);

  int64_t outputs() const { return plan_->form.outputs(); }
  int64_t filter_tiles() const { return CeilDiv(g_.filters, plan_->tile.rows); }
  // The most that a row of a block has.
  int64_t row_columns() const {
    return CeilDiv(plan_->columns, plan_->lanes) * plan_->lanes * outputs();
  }
  Dim VectorsOf(const Piece& piece, int64_t lanes) {
    return math().Name(CeilDiv(piece.columns, lanes));
  }
  int64_t staged_channels() const;
  // Of a tile of filters.
  int64_t sum_rows() const { return plan_->form.products() * plan_->tile.rows; }
  int64_t sum_channels() const {
    return outputs() > 2 ? WinogradPlan::kSumChannels : plan_->channels;
  }
  bool InOneBlock() const { return plan_->channels == g_.channels; }
  // A block has all columns, so that its rows of outputs are neighbors.
  bool HasWholeRows() const {
    return g_.out[1].is_constant() && plan_->columns * outputs() >= g_.out[1].value() &&
           g_.is_static();
  }
  int64_t output_pitch() const { return HasWholeRows() ? g_.out[1].value() : row_columns(); }
  LoopBuilder& lb() { return *job_.lb; }
  IndexMath& math() { return *job_.math; }

  ConvJob job_;
  ConvGeometry& g_;
  std::optional<WinogradPlan> plan_;

  // While writing.
  Dim block_rows_, block_columns_;  // of tiles: what blocks have, but for the last ones
  Dim row_blocks_, column_blocks_;
  Dim part_tiles_, parts_;                       // tiles of filters of a piece; pieces of a block
  std::vector<std::pair<int64_t, Dim>> widths_;  // where extents are symbolic: lanes, whether taken
  std::optional<ConvRows> rows_;
  Value weights_, bias_;
  Value staged_;  // channels of the input, with padding
  Value tiles_;   // transformed: a row per place and channel
  Value half_;    // a tile that is transformed along one side, and if sizes are known:
  std::vector<Value> half_values_;
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
  return "";
}

std::string ConvWinograd::Refusal() {
  if (std::string why = job_.Refusal(); !why.empty()) return why;
  if (std::string why = FormRefusal(); !why.empty()) return why;
  const int64_t outputs = job_.l.knobs.Choose("outputs", {0, 2, 4});  // 0: what is estimated
  plan_ = PlanWinograd(job_, outputs);
  if (!plan_) return "no block of tiles fits into the cache";
  if (job_.l.knobs.Choose("always", {0, 1}) == 1) return "";  // for tests, and a tuner to try
  const Condition less = TilesTakeLess(job_, *plan_);
  if (!WinsOverDirect(job_, *plan_) || less.Prove() == Truth::kFalse) {
    return "multiplying directly takes less";
  }
  if (less.Prove() == Truth::kTrue) return "";
  if (job_.takes_pairs())
    return "pairs of bf16 are multiplied, and extents say when tiles take less";
  job_.l.where = less;
  return "";
}

// ---- writing ----

// [tiles of filters, places, channels, filters of a tile]
Value ConvWinograd::PackWeights() {
  const int64_t places = plan_->form.products() + kTaps * kTaps;
  PackedLayout layout;
  layout.argument = job_.anchor->operand(1).index();
  layout.sums = plan_->form.WeightSums();
  layout.summed = kTaps * kTaps;
  layout.padded = {filter_tiles() * plan_->tile.rows, g_.channels, places};
  layout.split = {filter_tiles(), plan_->tile.rows, g_.channels, places};
  layout.order = {0, 3, 2, 1};
  return job_.l.Pack(std::move(layout));
}

// As PackWeights() has them.
Value ConvWinograd::TransformWeights() {
  const SymShape shape({Dim(filter_tiles()), Dim(plan_->form.products() + kTaps * kTaps),
                        Dim(g_.channels), Dim(plan_->tile.rows)});
  const Value memory = lb().Alloc(VTensorType::Get(lb().context(), shape, g_.element));
  math().For(filter_tiles(), job_.parallel, [&](const Dim& tile) {
    math().For(g_.channels, false, [&](const Dim& channel) {
      for (int64_t from = 0; from < plan_->tile.rows; from += job_.lanes) {
        TransformFilters(memory, tile, channel, from);
      }
    });
  });
  return memory;
}

// A vector of a tile's filters; those that do not exist are zero.
void ConvWinograd::TransformFilters(Value memory, const Dim& tile, const Dim& channel,
                                    int64_t from) {
  const int64_t rows = std::min(plan_->tile.rows - from, job_.lanes);
  const Value in_tile = rows == job_.lanes ? Value() : lb().Int(rows);
  const Dim first = math().Name(tile * plan_->tile.rows + from);
  const bool divides = g_.filters % plan_->tile.rows == 0;
  const Value exist = divides ? in_tile : math().At(Max(Min(Dim(g_.filters) - first, rows), 0));
  std::vector<Value> taps;
  for (int64_t i = 0; i < kTaps * kTaps; ++i) {
    const std::vector<Value> at = math().At({first, channel, Dim(i / kTaps), Dim(i % kTaps)});
    taps.push_back(lb().LoadApart(job_.Argument(1), at, job_.lanes, 0, 1, exist));
  }
  std::vector<Value> places = plan_->form.TransformWeights(lb(), job_.l.machine, taps);
  places.insert(places.end(), taps.begin(), taps.end());
  for (size_t i = 0; i < places.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    lb().Store(memory, places[i], math().At({tile, Dim(place), channel, Dim(from)}), in_tile);
  }
}

void ConvWinograd::Write() {
  job_.Open();
  rows_.emplace(lb(), math(), g_, job_.lanes, plan_->rows * outputs(), row_columns());
  weights_ = job_.weights_are_constant() ? PackWeights() : TransformWeights();
  bias_ = job_.Argument(2);
  ShareOut();
  const Dim all = g_.batch * row_blocks_ * column_blocks_ * parts_;
  math().For(all, job_.parallel, [&](const Dim& i) { WritePiece(PieceAt(i)); });
  job_.Close();
}

// Blocks of about equal size. Rows of few tiles are transformed by narrower vectors.
void ConvWinograd::ShareOut() {
  const Dim high = math().Name(CeilDiv(g_.out[0], outputs()));
  const Dim wide = math().Name(CeilDiv(g_.out[1], outputs()));
  block_rows_ = plan_->rows, block_columns_ = plan_->columns;
  if (!g_.is_static()) {
    const auto per = [&](const Dim& extent, const Dim& most) {
      const Dim parts = math().Name(Max(CeilDiv(extent, most), 1));
      return math().Name(Max(CeilDiv(extent, parts), 1));
    };
    block_columns_ = per(wide, plan_->columns);
    const auto above = [&](int64_t columns) { return Min(Max(block_columns_ - columns, 0), 1); };
    Dim wider = 0, lanes = std::min(kFewestLanes, plan_->lanes);
    for (int64_t n = plan_->lanes; n > kFewestLanes; n /= 2) {
      const Dim at_least = math().Name(above(n / 2));
      widths_.emplace_back(n, math().Name(at_least - wider));
      lanes += at_least * (n / 2);
      wider = at_least;
    }
    widths_.emplace_back(std::min(kFewestLanes, plan_->lanes), math().Name(Dim(1) - wider));
    lanes = math().Name(lanes);
    const Dim written = math().Name(CeilDiv(block_columns_, lanes) * lanes);  // of the last row
    const Dim fitting = FloorDiv(Dim(plan_->pitch) - written, block_columns_) + 1;
    block_rows_ = per(high, math().Name(Min(fitting, plan_->rows)));
  }
  row_blocks_ = math().Name(CeilDiv(high, block_rows_));
  column_blocks_ = math().Name(CeilDiv(wide, block_columns_));
  const Dim blocks = math().Name(g_.batch * row_blocks_ * column_blocks_);
  part_tiles_ = job_.TilesOfPiece(blocks, filter_tiles(), plan_->part_tiles);
  parts_ = math().Name(CeilDiv(filter_tiles(), part_tiles_));
}

// For the number of lanes that vectors of neighboring tiles have.
void ConvWinograd::ForLanes(const std::function<void(int64_t lanes)>& body) {
  if (g_.is_static()) return body(plan_->lanes);
  for (const auto& [lanes, is_taken] : widths_) {
    math().For(is_taken, false, [&](const Dim&) { body(lanes); });
  }
}

ConvWinograd::Piece ConvWinograd::PieceAt(Dim number) {
  const auto take = [&](const Dim& extent) {
    const Dim taken = math().Name(Mod(number, extent));
    number = math().Name(FloorDiv(number, extent));
    return taken;
  };
  Piece piece;
  piece.first_tile = math().Name(take(parts_) * part_tiles_);
  const bool divides = Mod(filter_tiles(), part_tiles_).IsConstant(0);
  piece.tiles =
      divides ? part_tiles_ : math().Name(Min(Dim(filter_tiles()) - piece.first_tile, part_tiles_));
  ConvBlock& block = piece.block;
  block.column = math().Name(take(column_blocks_) * (block_columns_ * outputs()));
  block.row = math().Name(take(row_blocks_) * (block_rows_ * outputs()));
  piece.image = number;
  piece.rows = block_rows_, piece.columns = block_columns_;
  if (!g_.is_static()) {
    const auto left = [&](size_t axis, const Dim& first, const Dim& most) {
      return math().Name(Min(CeilDiv(g_.out[axis] - first, outputs()), most));
    };
    piece.rows = left(0, block.row, block_rows_);
    piece.columns = left(1, block.column, block_columns_);
  }
  block.rows = piece.rows * outputs(), block.columns = piece.columns * outputs();
  piece.vectors = math().Name(CeilDiv(piece.rows * piece.columns, job_.lanes));
  return piece;
}

int64_t ConvWinograd::staged_channels() const {
  const int64_t row = row_columns() + 2 * job_.lanes;
  const int64_t channel_bytes = 4 * (plan_->rows * outputs() + kTaps - 1) * row;
  const int64_t fitting = g_.is_static() ? kStagedBytes / channel_bytes
                                         : std::min(kMostStagedBytes / channel_bytes, kMostStaged);
  return std::clamp<int64_t>(fitting, 1, plan_->channels);
}

void ConvWinograd::WritePiece(const Piece& piece) {
  const int64_t pitch = plan_->pitch;
  staged_ = rows_->Memory(staged_channels());
  tiles_ = job_.Memory(plan_->form.products() * plan_->channels, pitch);
  if (g_.is_static()) {
    half_values_.resize(static_cast<size_t>(plan_->form.products()));
  } else {
    half_ = job_.Memory(plan_->form.products(), plan_->lanes);
  }
  sums_ = job_.Memory((InOneBlock() ? 1 : plan_->part_tiles) * sum_rows(), pitch);
  outputs_ = job_.Memory(1, outputs() * output_pitch() + row_columns() + job_.lanes);
  direct_ = job_.Memory(outputs(), RoundUp(row_columns(), job_.lanes));
  ClearBeyond(piece);
  if (InOneBlock()) {
    TransformChannels(piece, 0, g_.channels);
    return math().For(piece.tiles, false, [&](const Dim& tile) {
      Multiply(piece, tile, 0, g_.channels);
      FinishTile(piece, tile);
    });
  }
  Clear(sums_, math().Name(piece.tiles * sum_rows()), 0, plan_->pitch / job_.lanes);
  const auto block = [&](const Dim& first, int64_t channels) {
    TransformChannels(piece, first, channels);
    math().For(piece.tiles, false,
               [&](const Dim& tile) { Multiply(piece, tile, first, channels); });
  };
  const int64_t blocks = g_.channels / plan_->channels, rest = g_.channels % plan_->channels;
  math().For(blocks, false,
             [&](const Dim& b) { block(math().Name(b * plan_->channels), plan_->channels); });
  if (rest > 0) block(blocks * plan_->channels, rest);
  math().For(piece.tiles, false, [&](const Dim& tile) { FinishTile(piece, tile); });
}

// Vectors are multiplied whole. What lies there beyond the last tile is dropped, but must be
// numbers: those that memory happens to hold are often subnormal, which is slow on some processors.
void ConvWinograd::ClearBeyond(const Piece& piece) {
  const Dim last = math().Name(FloorDiv(piece.rows * piece.columns, job_.lanes));
  const Dim vectors(plan_->pitch / job_.lanes);
  Clear(tiles_, plan_->form.products() * plan_->channels, last, vectors);
  if (InOneBlock()) Clear(sums_, sum_rows(), last, vectors);
  const auto& staged = staged_.type().cast<AnyTensorType>().dims();
  Clear(staged_, staged[0], 0, math().Name(CeilDiv(staged[1], job_.lanes)));
}

// Vectors from `first` to `end` of each row, the last one as far as the row goes.
void ConvWinograd::Clear(Value memory, const Dim& rows, const Dim& first, const Dim& end) {
  const Dim columns = memory.type().cast<AnyTensorType>().dims()[1];
  const bool divides = Mod(columns, job_.lanes).IsConstant(0);
  math().For(rows, false, [&](const Dim& row) {
    math().For(math().Name(end - first), false, [&](const Dim& i) {
      const Dim at = math().Name((first + i) * job_.lanes);
      const Value live = divides ? Value() : math().At(Min(columns - at, job_.lanes));
      lb().Store(memory, job_.Zeros(), math().At({row, at}), live);
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
  ForLanes([&](int64_t lanes) {
    const Dim vectors = VectorsOf(piece, lanes);
    math().For(count, false, [&](const Dim& c) {
      const Dim channel = math().Name(from + c);
      math().For(piece.rows, false, [&](const Dim& row) {
        math().For(vectors, false,
                   [&](const Dim& v) { TransformTiles(piece, c, channel, row, v, lanes); });
      });
    });
  });
}

// Along the rows of a tile, then along its columns. The last vector of a row writes beyond it what
// the next row writes again.
void ConvWinograd::TransformTiles(const Piece& piece, const Dim& staged, const Dim& channel,
                                  const Dim& row, const Dim& vector, int64_t lanes) {
  const int64_t side = plan_->form.inputs();
  const Dim first = math().Name(vector * (lanes * outputs()));
  AlongSide(side, [&](const Dim& i) {
    std::vector<Value> inputs;
    for (int64_t j = 0; j < side; ++j) {
      inputs.push_back(
          rows_->ReadApart(staged_, staged, row * outputs() + i, first + j, lanes, outputs()));
    }
    StoreHalf(plan_->form.InputAlong(lb(), job_.l.machine, inputs), i * side);
  });
  const Dim to = math().Name(row * piece.columns + vector * lanes);
  AlongSide(side, [&](const Dim& j) {
    const std::vector<Value> column = LoadHalf(j, side, lanes);
    const std::vector<Value> places = plan_->form.InputAlong(lb(), job_.l.machine, column);
    for (int64_t i = 0; i < side; ++i) {
      const Dim at = (j + i * side) * plan_->channels + channel;
      lb().Store(tiles_, places[static_cast<size_t>(i)], math().At({at, to}));
    }
  });
}

// The rows or columns of a tile: one after the other, or where there is code for several widths in
// a loop, which is shorter by far and a little slower.
void ConvWinograd::AlongSide(int64_t side, const std::function<void(const Dim& i)>& body) {
  if (!g_.is_static()) return math().For(side, false, body);
  for (int64_t i = 0; i < side; ++i) body(i);
}

// What has been transformed along one side of a tile.
void ConvWinograd::StoreHalf(const std::vector<Value>& values, const Dim& first) {
  for (size_t i = 0; i < values.size(); ++i) {
    const Dim at = first + static_cast<int64_t>(i);
    if (g_.is_static()) {
      half_values_[static_cast<size_t>(at.value())] = values[i];
    } else {
      lb().Store(half_, values[i], math().At({at, Dim(0)}));
    }
  }
}

std::vector<Value> ConvWinograd::LoadHalf(const Dim& first, int64_t stride, int64_t lanes) {
  std::vector<Value> values;
  for (int64_t i = 0; i < plan_->form.inputs(); ++i) {
    const Dim at = first + i * stride;
    values.push_back(g_.is_static() ? half_values_[static_cast<size_t>(at.value())]
                                    : lb().Load(half_, math().At({at, Dim(0)}), lanes));
  }
  return values;
}

// A tile of filters by all tiles of the block, over channels that were transformed.
void ConvWinograd::Multiply(const Piece& piece, const Dim& tile, const Dim& first,
                            int64_t channels) {
  Product product{math().Name(piece.first_tile + tile),
                  InOneBlock() ? Dim(0) : tile,
                  {},
                  {},
                  first,
                  plan_->tile.vectors};
  const int64_t most = plan_->tile.vectors;
  const bool divides = piece.vectors.is_constant();  // or the rest is multiplied in vain
  const Dim whole =
      math().Name(divides ? CeilDiv(piece.vectors, most) : FloorDiv(piece.vectors, most));
  const Dim rest = divides ? Dim(0) : math().Name(Mod(piece.vectors, most));
  math().For(plan_->form.products(), false, [&](const Dim& place) {
    product.place = place;
    math().For(whole, false, [&](const Dim& i) {
      product.from = math().Name(i * (most * job_.lanes));
      MultiplyPlace(product, channels);
    });
    if (rest.IsConstant(0)) return;
    product.from = math().Name(whole * (most * job_.lanes));
    for (int64_t v = 1; v < most; ++v) {
      Product narrow = product;
      narrow.vectors = v;
      const Dim is_rest = Max(Min(rest - (v - 1), 1), 0) * Max(Min(Dim(v + 1) - rest, 1), 0);
      math().For(math().Name(is_rest), false, [&](const Dim&) { MultiplyPlace(narrow, channels); });
    }
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
  const int64_t rows = plan_->tile.rows, places = plan_->form.products();
  const auto sum_at = [&](int64_t r, int64_t v) {
    const Dim row = (product.sum_tile * places + product.place) * rows + r;
    return math().At({row, product.from + v * job_.lanes});
  };
  const auto weight_at = [&](Value k, int64_t r) {
    return math().At(
        {product.weights_tile, product.place, product.first + channel + math().Of(k), Dim(r)});
  };
  RegisterTile tile{rows, product.vectors, g_.element, {}, {}, {}, {}};
  tile.scalar = [&](int64_t r, Value k) { return lb().Load(weights_, weight_at(k, r)); };
  tile.vector = [&](int64_t v, Value k) {
    const Dim row = product.place * plan_->channels + channel + math().Of(k);
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
  const int64_t rows = plan_->tile.rows;
  const Dim first = math().Name((piece.first_tile + tile) * rows);
  const Dim filters =
      g_.filters % rows == 0 ? Dim(rows) : math().Name(Min(Dim(g_.filters) - first, rows));
  const Dim sum_tile = InOneBlock() ? Dim(0) : tile;
  math().For(filters, false, [&](const Dim& f) {
    const Dim sum_row = math().Name(sum_tile * (plan_->form.products() * rows) + f);
    math().For(piece.rows, false, [&](const Dim& row) {
      FinishRow(piece,
                {row, math().Name(first + f), sum_row, math().Name(piece.first_tile + tile), f});
    });
  });
}

// Vectors are written from the last one on: each row of outputs may write into the next one, which
// has its own there afterwards.
void ConvWinograd::FinishRow(const Piece& piece, const Row& row) {
  Value large = lb().Int(0);
  if (g_.is_static()) {
    large = IsLarge(SumOfSquares(piece, row, plan_->lanes));
  } else {
    for (const auto& [lanes, is_taken] : widths_) {
      large =
          lb().For(math().At(is_taken), std::span(&large, 1), [&](Value, std::span<const Value>) {
            return std::vector{IsLarge(SumOfSquares(piece, row, lanes))};
          })[0];
    }
  }
  lb().For(large, false, [&](Value) { ComputeDirectly(piece, row); });
  StoreOutputs(piece, row);
}

Value ConvWinograd::SumOfSquares(const Piece& piece, const Row& row, int64_t lanes) {
  const Dim vectors = VectorsOf(piece, lanes);
  const Value none = lb().Splat(g_.element, 0, lanes);
  if (vectors.IsConstant(1)) return TransformBack(piece, row, 0, none);
  return lb().For(math().At(vectors), std::span(&none, 1),
                  [&](Value i, std::span<const Value> carried) {
                    const Dim vector = math().Name(vectors - 1 - math().Of(i));
                    return std::vector{TransformBack(piece, row, vector, carried[0])};
                  })[0];
}

// Along the columns of a tile, then along its rows. Adds the squares of the outputs, but for those
// that are of no tile.
Value ConvWinograd::TransformBack(const Piece& piece, const Row& row, const Dim& vector,
                                  Value squares) {
  const int64_t lanes = squares.type().cast<AnyTensorType>().dims()[0].value();
  const int64_t side = plan_->form.inputs();
  const Dim column = math().Name(row.row * piece.columns + vector * lanes);
  AlongSide(side, [&](const Dim& j) {
    std::vector<Value> sums;
    for (int64_t i = 0; i < side; ++i) {
      const Dim at = row.sum_row + (j + i * side) * plan_->tile.rows;
      sums.push_back(lb().Load(sums_, math().At({at, column}), lanes));
    }
    StoreHalf(plan_->form.OutputAlong(lb(), job_.l.machine, sums), j * outputs());
  });
  const Dim to = math().Name(vector * (lanes * outputs()));
  const auto write_row = [&](const Dim& i, Value sum) {
    const std::vector<Value> sums = LoadHalf(i, outputs(), lanes);
    const std::vector<Value> results = plan_->form.OutputAlong(lb(), job_.l.machine, sums);
    lb().Store(outputs_, lb().Interleave(results), math().At({Dim(0), to + i * output_pitch()}));
    for (const Value v : results) sum = MulAdd(lb(), job_.l.machine, v, v, sum);
    return sum;
  };
  Value sum = squares;
  if (g_.is_static()) {
    for (int64_t i = 0; i < outputs(); ++i) sum = write_row(i, sum);
  } else {
    sum = lb().For(lb().Int(outputs()), std::span(&squares, 1),
                   [&](Value i, std::span<const Value> carried) {
                     return std::vector{write_row(math().Of(i), carried[0])};
                   })[0];
  }
  if (Mod(piece.columns, lanes).IsConstant(0)) return sum;
  std::vector<int64_t> numbers(static_cast<size_t>(lanes));
  std::iota(numbers.begin(), numbers.end(), 0);
  const Value all = lb().Constant(Tensor::Of<int64_t>({lanes}, numbers));
  const Value live = math().At(piece.columns - vector * lanes);
  const Value exists = nn::LessOp::Create(lb().b(), all, live).c();
  return nn::WhereOp::Create(lb().b(), exists, sum, squares).output();
}

// 1 or 0, also for NaN.
Value ConvWinograd::IsLarge(Value squares) {
  const Value sum = lb().Reduce("add", squares);
  const Value is_small = nn::LessOp::Create(lb().b(), sum, lb().Splat(g_.element, kLargest)).c();
  return nn::WhereOp::Create(lb().b(), is_small, lb().Int(0), lb().Int(1)).output();
}

void ConvWinograd::ComputeDirectly(const Piece& piece, const Row& row) {
  const Dim vectors = g_.is_static() ? Dim(CeilDiv(row_columns(), job_.lanes))
                                     : math().Name(CeilDiv(piece.block.columns, job_.lanes));
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
        math().At({row.weights_tile, Dim(plan_->form.products() + place), channel, row.in_tile}));
    const Value inputs = rows_->ReadVector(staged_, 0, 0, place / kTaps, place % kTaps,
                                           row.row * outputs() + i, column);
    sum = MulAdd(lb(), job_.l.machine, weight, inputs, sum);
  }
  lb().Store(direct_, sum, at);
}

void ConvWinograd::StoreOutputs(const Piece& piece, const Row& row) {
  const Dim first = math().Name(piece.block.row + row.row * outputs());
  const bool divides = Mod(g_.out[0], block_rows_ * outputs()).IsConstant(0);
  const Dim rows =
      divides ? Dim(outputs()) : math().Name(Max(Min(g_.out[0] - first, outputs()), 0));
  if (HasWholeRows()) {
    const Dim& wide = g_.out[1];
    return StoreRun(piece, row, 0, math().Name(first * wide), math().Name(rows * wide));
  }
  const Dim columns = Mod(g_.out[1], piece.block.columns).IsConstant(0)
                          ? piece.block.columns
                          : math().Name(Min(g_.out[1] - piece.block.column, piece.block.columns));
  math().For(rows, false, [&](const Dim& i) {
    const Dim position = math().Name((first + i) * g_.out[1] + piece.block.column);
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
