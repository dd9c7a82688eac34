#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "lathe/dialect/loop.h"
#include "lathe/dialect/loop/tile.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/support/divide.h"
#include "lathe/support/text.h"
#include "src/lower/strategies/conv_job.h"
#include "src/lower/strategies/conv_tiles_plan.h"
#include "src/lower/strategies/list.h"

// A dense convolution of f32 that become bf16, on a processor with tile registers. Filters are the
// rows of tiles, positions of the output their columns, so that sums lie as the result does. The
// weights were rounded and packed when the program was compiled. What a block of positions reads is
// copied and rounded once, pairs of channels side by side (see ConvTilesPlan); each place of the
// kernel then reads its tiles from there. What follows is computed from sums of a few filters.
namespace lathe::lower {
namespace {

constexpr int64_t kTile = loop::kTileRows;  // filters, positions
constexpr int64_t kAcross = 2;              // tiles of filters, and of positions, held at once

class ConvTiles {
 public:
  explicit ConvTiles(Lowering& lowering) : job_(lowering), g_(job_.g) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  // What a thread computes at once.
  struct Piece {
    Dim image, first_tile, tiles;  // of filters
    Dim row, column;               // the first output
    Dim rows, columns;             // of outputs
  };
  // Columns that one row of the input gives: zeros, elements, zeros.
  struct Run {
    Dim skipped;  // columns in the padding in front
    Dim from;     // of the input, for the first column behind
    Dim count;    // of columns with elements
    Dim length;   // of columns
    int64_t stride = 1;
  };
  // A row of a phase, and the row of the input that it is.
  struct Row {
    Dim at, inside;  // 1; 0: it is padding
    Dim to;          // its first position
  };
  using Tiles = std::vector<Value>;  // a row of them after the other

  std::string FormRefusal() const;
  Value PackWeights();
  Piece PieceAt(Dim number);
  void WritePiece(const Piece& piece);

  void Stage(const Piece& piece);
  void StageRow(const Piece& piece, const Row& row, int64_t phase);
  void StageUnfolded(const Piece& piece, const Row& row);
  void ClearPairs();
  Run MakeRun(const Dim& first, int64_t stride, const Dim& length, const Dim& inside);
  void ForRun(const Run& run, const std::function<void(const Dim& column)>& clear,
              const std::function<void(const Dim& column, const Dim& from, Value live)>& copy);
  Value Element(const Piece& piece, const Dim& channel, const Row& row, const Dim& from,
                int64_t stride, Value live);
  void StorePair(const Dim& pair, const Dim& position, Value first, Value second);
  Value Zeros() { return lb().Splat(ElementType::kF32, 0, job_.lanes); }

  void WriteFilters(const Piece& piece, const Dim& tile, int64_t tiles);
  void Multiply(const Dim& tile, int64_t tiles, const Dim& first, int64_t across);
  Tiles MultiplyStep(const Dim& tile, int64_t tiles, const Dim& first, const Dim& step,
                     std::span<const Value> sums);
  Dim OffsetOf(const Dim& tap);
  void Finish(const Piece& piece, const Dim& tile, int64_t tiles);
  void FinishRow(const Piece& piece, const Dim& in_block, const Dim& filter, const Dim& row,
                 Value bias);

  Value Memory(int64_t rows, int64_t columns, ElementType element) {
    const SymShape shape({Dim(rows), Dim(columns)});
    return lb().Alloc(VTensorType::Get(lb().context(), shape, element));
  }
  int64_t filter_tiles() const { return CeilDiv(g_.filters, kTile); }
  int64_t steps() const { return plan_->depth_tiles * plan_->taps(); }  // of a sum
  const TileAxis& down() const { return plan_->axes[0]; }
  const TileAxis& along() const { return plan_->axes[1]; }
  LoopBuilder& lb() { return *job_.lb; }
  IndexMath& math() { return *job_.math; }

  ConvJob job_;
  ConvGeometry& g_;
  std::optional<ConvTilesPlan> plan_;

  // While writing.
  Value weights_, bias_;
  Value staged_;  // a row per pair of channels, positions along it
  Value line_;    // where a row of the kernel counts as channels: a row of the input per channel
  Value sums_;    // a row per filter
};

// ---- choosing ----

std::string ConvTiles::FormRefusal() const {
  const Lowering& l = job_.l;
  if (!l.machine.has_tiles) return "the target has no tile registers";
  if (l.precision < Precision::kBf16) return StrCat("the precision is ", Name(l.precision));
  if (g_.element != ElementType::kF32) return StrCat("elements are ", Name(g_.element));
  if (!job_.weights_are_constant()) return "the weights are not known";
  if (g_.groups != 1) return "the channels are in groups";
  if (g_.rank() > 2) return "there are more than two spatial dims";
  return g_.is_static() ? "" : "an extent is symbolic";
}

std::string ConvTiles::Refusal() {
  if (std::string why = job_.Refusal(); !why.empty()) return why;
  if (std::string why = FormRefusal(); !why.empty()) return why;
  if (g_.reads_own_element) g_.Flatten();
  plan_ = PlanConvTiles(job_);
  if (!plan_) return "no block fits into the cache";
  if (job_.l.knobs.Choose("always", {0, 1}) == 1) return "";  // for tests, and a tuner to try
  return WinsOverFloats(job_, *plan_) ? "" : "multiplying in f32 takes less";
}

// ---- writing ----

// [tiles of filters, tiles of depth, places, filters, depth of a tile], the last two of them axes
// of the result.
Value ConvTiles::PackWeights() {
  const Shape shape = job_.weight_shape();
  const int64_t tiles = filter_tiles(), depth = 2 * plan_->depth_pairs;
  PackedLayout layout;
  layout.argument = job_.anchor->operand(1).index();
  layout.element = ElementType::kBF16;
  const bool unfolds = plan_->unfolded > 1;
  const int64_t channels = unfolds ? depth / plan_->unfolded : plan_->depth_tiles * depth;
  layout.padded = {tiles * kTile, channels};
  layout.split = {tiles, kTile};
  if (!unfolds) layout.split.push_back(plan_->depth_tiles);
  layout.split.push_back(unfolds ? channels : depth);
  std::vector<int64_t> inner = {1, std::ssize(layout.split) - 1};
  layout.order = {0};
  if (!unfolds) layout.order.push_back(2);
  for (size_t a = 2; a < shape.size(); ++a) {
    const bool is_inner = unfolds && a + 1 == shape.size();
    (is_inner ? inner : layout.order).push_back(std::ssize(layout.split));
    layout.padded.push_back(shape[a]);
    layout.split.push_back(shape[a]);
  }
  layout.order.insert(layout.order.end(), inner.begin(), inner.end());
  const Value packed = job_.l.Pack(std::move(layout));
  const std::vector<int64_t> rows{tiles * steps() * kTile, depth};
  return nn::ViewReshapeOp::Create(lb().b(), packed, {.shape = rows}).y();
}

void ConvTiles::Write() {
  job_.Open();
  weights_ = PackWeights();
  bias_ = job_.Argument(2);
  const int64_t pieces = CeilDiv(down().out, plan_->rows) * CeilDiv(along().out, plan_->columns) *
                         CeilDiv(filter_tiles(), plan_->part_tiles);
  math().For(g_.batch * pieces, job_.parallel, [&](const Dim& i) { WritePiece(PieceAt(i)); });
  job_.Close();
}

ConvTiles::Piece ConvTiles::PieceAt(Dim number) {
  // The first of `most` among so many, and how many there are.
  const auto take = [&](int64_t all, int64_t most) {
    const int64_t parts = CeilDiv(all, most);
    const Dim first = math().Name(Mod(number, parts) * most);
    number = math().Name(FloorDiv(number, parts));
    const bool divides = all % most == 0;
    return std::pair(first, divides ? Dim(most) : math().Name(Min(Dim(all) - first, most)));
  };
  Piece piece;
  std::tie(piece.first_tile, piece.tiles) = take(filter_tiles(), plan_->part_tiles);
  std::tie(piece.column, piece.columns) = take(along().out, plan_->columns);
  std::tie(piece.row, piece.rows) = take(down().out, plan_->rows);
  piece.image = number;
  return piece;
}

void ConvTiles::WritePiece(const Piece& piece) {
  staged_ = Memory(plan_->pairs(), 2 * plan_->pair_positions(), ElementType::kBF16);
  const int64_t read = RoundUp(plan_->positions(), kAcross * kTile);
  sums_ =
      Memory(kAcross * kTile, (CeilDiv(read + job_.lanes, kTile) | 1) * kTile, ElementType::kF32);
  Stage(piece);
  math().For(FloorDiv(piece.tiles, kAcross), false, [&](const Dim& i) {
    WriteFilters(piece, math().Name(piece.first_tile + i * kAcross), kAcross);
  });
  math().For(Mod(piece.tiles, kAcross), false, [&](const Dim&) {
    WriteFilters(piece, math().Name(piece.first_tile + piece.tiles - 1), 1);
  });
}

// ---- the input ----

// Vectors are written behind the end of a row, and what begins there is written later.
void ConvTiles::Stage(const Piece& piece) {
  ClearPairs();
  if (plan_->unfolded > 1) {
    const int64_t vectors = CeilDiv(plan_->pitch(), job_.lanes);
    const int64_t reach =
        (vectors * job_.lanes - 1) * along().stride + plan_->unfolded * along().dilation;
    line_ = Memory(g_.channels, RoundUp(reach, job_.lanes) + job_.lanes, ElementType::kF32);
  }
  for (int64_t phase = 0; phase < plan_->phases(); ++phase) {
    const int64_t down_phase = phase / along().phases(), along_phase = phase % along().phases();
    math().For(piece.rows + down().most_shift(), false, [&](const Dim& r) {
      const Dim reach = (piece.row + r) * down().stride + down_phase * down().step();
      Row row;
      row.inside = math().Name(Max(Min(reach - down().begin + 1, 1), 0) *
                               Max(Min(Dim(down().begin + down().in) - reach, 1), 0));
      row.at = math().Name(Min(Max(reach - down().begin, 0), down().in - 1));
      row.to = math().Name((r + phase * plan_->phase_rows()) * plan_->pitch());
      if (plan_->unfolded > 1) return StageUnfolded(piece, row);
      StageRow(piece, row, along_phase);
    });
  }
}

// Zeros for channels that do not exist: weights of zero are multiplied by them.
void ConvTiles::ClearPairs() {
  const int64_t first = CeilDiv(plan_->channels, 2), lanes = 2 * job_.lanes;
  math().For(plan_->pairs() - first, false, [&](const Dim& pair) {
    math().For(2 * plan_->pair_positions() / lanes, false, [&](const Dim& i) {
      lb().Store(staged_, lb().Splat(ElementType::kBF16, 0, lanes),
                 math().At({first + pair, i * lanes}));
    });
  });
}

// `first`: what the first column reads, counted from the beginning of the padding.
ConvTiles::Run ConvTiles::MakeRun(const Dim& first, int64_t stride, const Dim& length,
                                  const Dim& inside) {
  Run run;
  run.length = length, run.stride = stride;
  const Dim missing = Max(Dim(along().begin) - first, 0);
  run.skipped = math().Name(Min(CeilDiv(missing, stride), length));
  run.from = math().Name(Max(first + run.skipped * stride - along().begin, 0));
  const Dim there = CeilDiv(Max(Dim(along().in) - run.from, 0), stride);
  run.count = math().Name(inside * Min(there, length - run.skipped));
  return run;
}

void ConvTiles::ForRun(
    const Run& run, const std::function<void(const Dim& column)>& clear,
    const std::function<void(const Dim& column, const Dim& from, Value live)>& copy) {
  const int64_t lanes = job_.lanes;
  math().For(CeilDiv(run.skipped, lanes), false, [&](const Dim& i) { clear(i * lanes); });
  const auto vector = [&](const Dim& i, Value live) {
    copy(run.skipped + i * lanes, run.from + i * (lanes * run.stride), live);
  };
  const Dim full = math().Name(FloorDiv(run.count, lanes));
  const Dim all = math().Name(CeilDiv(run.length - run.skipped, lanes));
  math().For(full, false, [&](const Dim& i) { vector(i, {}); });
  math().For(math().Name(all - full), false, [&](const Dim& i) {
    const Dim at = full + i;
    vector(at, math().At(Max(Min(run.count - at * lanes, lanes), 0)));
  });
}

// A vector of the input, with zeros behind what is live.
Value ConvTiles::Element(const Piece& piece, const Dim& channel, const Row& row, const Dim& from,
                         int64_t stride, Value live) {
  std::vector<Value> at = math().At({piece.image, channel});
  if (g_.rank() > 1) at.push_back(math().At(row.at));
  at.push_back(math().At(live ? Min(from, along().in - 1) : from));
  const Value v = job_.input.Load(at, job_.lanes, live, stride);
  if (!live || job_.input.IsMemory()) return v;
  std::vector<double> numbers(static_cast<size_t>(job_.lanes));
  std::iota(numbers.begin(), numbers.end(), 0);
  const Tensor lanes = Cast(Tensor::Of<double>({job_.lanes}, numbers), ElementType::kI64);
  const Value is_live = nn::LessOp::Create(lb().b(), lb().Constant(lanes), live).c();
  return nn::WhereOp::Create(lb().b(), is_live, v, Zeros()).output();
}

void ConvTiles::StorePair(const Dim& pair, const Dim& position, Value first, Value second) {
  const Value both[] = {first, second};
  lb().Store(staged_, lb().Narrow(both), math().At({pair, position * 2}));
}

void ConvTiles::StageRow(const Piece& piece, const Row& row, int64_t phase) {
  const Run run = MakeRun(piece.column * along().stride + phase * along().step(), along().stride,
                          plan_->pitch(), row.inside);
  const auto stage = [&](const Dim& pair, bool has_second) {
    ForRun(
        run, [&](const Dim& column) { StorePair(pair, row.to + column, Zeros(), Zeros()); },
        [&](const Dim& column, const Dim& from, Value live) {
          const auto element = [&](const Dim& channel) {
            return Element(piece, channel, row, from, run.stride, live);
          };
          const Value second = has_second ? element(pair * 2 + 1) : Zeros();
          StorePair(pair, row.to + column, element(pair * 2), second);
        });
  };
  math().For(g_.channels / 2, false, [&](const Dim& pair) { stage(pair, true); });
  if (g_.channels % 2 != 0) stage(g_.channels / 2, false);
}

// A row of the kernel counts as channels: each reads the same row of the input, further right.
void ConvTiles::StageUnfolded(const Piece& piece, const Row& row) {
  const int64_t reach =
      (plan_->pitch() - 1) * along().stride + (plan_->unfolded - 1) * along().dilation + 1;
  const Run run = MakeRun(piece.column * along().stride, 1, reach, row.inside);
  math().For(g_.channels, false, [&](const Dim& channel) {
    ForRun(
        run, [&](const Dim& column) { lb().Store(line_, Zeros(), math().At({channel, column})); },
        [&](const Dim& column, const Dim& from, Value live) {
          lb().Store(line_, Element(piece, channel, row, from, 1, live),
                     math().At({channel, column}));
        });
  });
  math().For(CeilDiv(plan_->pitch(), job_.lanes), false, [&](const Dim& i) {
    const auto element = [&](int64_t number) {
      const int64_t channel = number / plan_->unfolded, place = number % plan_->unfolded;
      if (channel >= g_.channels) return Zeros();
      const Dim from = i * (job_.lanes * along().stride) + place * along().dilation;
      return lb().LoadApart(line_, math().At({Dim(channel), from}), job_.lanes, -1, along().stride);
    };
    for (int64_t pair = 0; pair < plan_->pairs(); ++pair) {
      StorePair(pair, row.to + i * job_.lanes, element(2 * pair), element(2 * pair + 1));
    }
  });
}

// ---- products ----

void ConvTiles::WriteFilters(const Piece& piece, const Dim& tile, int64_t tiles) {
  const Dim positions = (piece.rows - 1) * plan_->pitch() + piece.columns;
  const Dim all = math().Name(CeilDiv(positions, kTile));
  math().For(FloorDiv(all, kAcross), false, [&](const Dim& i) {
    Multiply(tile, tiles, math().Name(i * (kAcross * kTile)), kAcross);
  });
  math().For(Mod(all, kAcross), false,
             [&](const Dim&) { Multiply(tile, tiles, math().Name((all - 1) * kTile), 1); });
  Finish(piece, tile, tiles);
}

// The sums of tiles of filters by tiles of positions from `first` on.
void ConvTiles::Multiply(const Dim& tile, int64_t tiles, const Dim& first, int64_t across) {
  Builder& b = lb().b();
  Tiles sums;
  for (int64_t i = 0; i < tiles * across; ++i) {
    sums.push_back(
        loop::TileZeroOp::Create(b, {.rows = kTile, .columns = kTile, .element = ElementType::kF32})
            .tile());
  }
  sums = lb().For(Dim(steps()), sums, [&](Value step, std::span<const Value> carried) {
    return MultiplyStep(tile, tiles, first, math().Of(step), carried);
  });
  for (int64_t r = 0; r < tiles; ++r) {
    for (int64_t c = 0; c < across; ++c) {
      const std::vector<Value> at = math().At({Dim(r * kTile), first + c * kTile});
      loop::TileStoreInplaceOp::Create(b, sums_, sums[static_cast<size_t>(r * across + c)], at,
                                       {.axis = 0});
    }
  }
}

ConvTiles::Tiles ConvTiles::MultiplyStep(const Dim& tile, int64_t tiles, const Dim& first,
                                         const Dim& step, std::span<const Value> sums) {
  Builder& b = lb().b();
  const int64_t across = std::ssize(sums) / tiles, pairs = plan_->depth_pairs;
  Tiles left, next(sums.begin(), sums.end());
  for (int64_t r = 0; r < tiles; ++r) {
    const Dim row = ((tile + r) * steps() + step) * kTile;
    left.push_back(loop::TileLoadOp::Create(b, weights_, math().At({row, Dim(0)}),
                                            {.rows = kTile, .columns = 2 * pairs, .axis = 0})
                       .tile());
  }
  const Dim depth_tile = FloorDiv(step, plan_->taps());
  const Dim position = math().Name(first + OffsetOf(math().Name(Mod(step, plan_->taps()))));
  for (int64_t c = 0; c < across; ++c) {
    const std::vector<Value> at = math().At({depth_tile * pairs, (position + c * kTile) * 2});
    const Value right =
        loop::TileLoadOp::Create(b, staged_, at, {.rows = pairs, .columns = 2 * kTile, .axis = 0})
            .tile();
    for (int64_t r = 0; r < tiles; ++r) {
      Value& sum = next[static_cast<size_t>(r * across + c)];
      sum = loop::TileMmaOp::Create(b, left[static_cast<size_t>(r)], right, sum).y();
    }
  }
  return next;
}

// From what the first place of the kernel reads to what another one does, in positions.
Dim ConvTiles::OffsetOf(const Dim& tap) {
  const auto place = [&](const TileAxis& axis, const Dim& k) {
    const Dim apart = k * axis.dilation;
    return std::pair(FloorDiv(Mod(apart, axis.stride), axis.step()), FloorDiv(apart, axis.stride));
  };
  const auto [down_phase, below] = place(down(), FloorDiv(tap, along().kernel));
  const auto [along_phase, behind] = place(along(), Mod(tap, along().kernel));
  const Dim phase = down_phase * along().phases() + along_phase;
  return (phase * plan_->phase_rows() + below) * plan_->pitch() + behind;
}

// ---- the epilogue ----

void ConvTiles::Finish(const Piece& piece, const Dim& tile, int64_t tiles) {
  const Dim filters = Min(Dim(g_.filters) - tile * kTile, tiles * kTile);
  math().For(math().Name(filters), false, [&](const Dim& i) {
    const Dim filter = math().Name(tile * kTile + i);
    const Value bias =
        bias_ ? lb().Widen(lb().Load(bias_, math().At({filter})), job_.lanes) : Value();
    math().For(piece.rows, false, [&](const Dim& row) { FinishRow(piece, i, filter, row, bias); });
  });
}

void ConvTiles::FinishRow(const Piece& piece, const Dim& in_block, const Dim& filter,
                          const Dim& row, Value bias) {
  const int64_t lanes = job_.lanes;
  const Dim begin = math().Name((piece.row + row) * along().out + piece.column);
  const auto vector = [&](const Dim& column, Value live) {
    const std::vector<Value> from = math().At({in_block, row * plan_->pitch() + column});
    Value sum = lb().Load(sums_, from, lanes);
    if (bias) sum = nn::AddOp::Create(lb().b(), sum, bias).c();
    job_.after->Store(lb(), math().At({piece.image, filter, begin + column}), lanes, live, sum);
  };
  const Dim full = math().Name(FloorDiv(piece.columns, lanes));
  const Dim rest = math().Name(Mod(piece.columns, lanes));
  math().For(full, false, [&](const Dim& i) { vector(i * lanes, {}); });
  math().For(math().Name(Min(rest, 1)), false,
             [&](const Dim&) { vector(full * lanes, math().At(rest)); });
}

}  // namespace

bool LowerConvTiles(Lowering& l) { return WriteUnlessRefused<ConvTiles>(l); }

}  // namespace lathe::lower
