#include <algorithm>
#include <vector>

#include "lathe/dialect/nn/view.h"
#include "lathe/support/divide.h"
#include "lathe/support/text.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/conv_job.h"
#include "src/lower/strategies/list.h"
#include "src/lower/tile_knobs.h"

// A convolution and the elementwise operations after it as a matrix product: the weights are the
// rows, the positions of the output the columns. What the columns multiply is copied from the input
// a panel at a time, so that the whole matrix never exists. A panel is cut in depth where it would
// not stay in cache; the sums so far then wait in memory. Where a kernel reaches far, each of its
// places is a block, and those of which a panel sees nothing but padding are left out. Where
// positions of symbolic number, at their end, would fill less than half of a vector, filters are in
// the lanes instead.
namespace lathe::lower {
namespace {

constexpr int64_t kFewRows = 4;
constexpr int64_t kMaxBytes = 1000 << 10;      // of all that
constexpr int64_t kMostTogether = 4;           // tiles whose filters are in the lanes
constexpr int64_t kMaxPanelBytes = 448 << 10;  // of the stack of a thread

class Conv {
 public:
  explicit Conv(Lowering& lowering) : job_(lowering), g_(job_.g) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  // A panel's columns, while it is written and multiplied.
  struct Columns {
    Dim image, group, first;
    Dim first_tile;  // of rows that this piece multiplies
    int64_t vectors;
    bool whole;                                       // all columns are positions
    std::vector<std::pair<Dim, Dim>> positions = {};  // per spatial dim: the first, the last one
    Dim turned = 0;  // so many positions, filters in the lanes; 0: positions in the lanes
  };
  // Channels of a panel, and which place of the kernel if it is one.
  struct Depth {
    Dim block;
    int64_t channels;
    std::vector<Dim> place = {};  // per spatial dim
    Dim number = 0;               // of the place
  };

  Value PackWeights();
  int64_t MostVectors() const;
  bool FitPanel();
  void PickParts();
  void PickTurned();
  void WritePiece(Dim number);
  int64_t SumVectors() const;  // in memory
  void WriteRest(Columns columns, const Dim& positions);
  void WriteVectors(Columns columns, const Dim& positions);
  void WritePanel(Columns columns);
  void FindPositions(Columns& columns);
  Dim SeesInput(const Columns& columns, size_t axis, const Dim& place);
  void WritePlaces(const Columns& columns, const Depth& depth);
  void WriteBlock(const Columns& columns, const Depth& depth);
  void WriteTile(const Columns& columns, const Depth& depth, const Dim& tile, int64_t rows);
  void StartSums(const Columns& columns);
  void StartTurned(const Columns& columns);
  void WriteTurned(const Columns& columns, const Depth& depth);
  int64_t TurnedTiles(int64_t count) const;
  void MultiplyTurned(const Columns& columns, const Depth& depth, const Dim& tile, int64_t count);
  Value StartOfFilters(const Columns& columns, const Dim& tile, int64_t v);
  void FinishTurned(const Columns& columns, const Dim& tile);
  void FinishRows(const Columns& columns, const Dim& first, const Dim& rows);
  Value Live(const Columns& columns, const Dim& position);
  Value Start(const Columns& columns, const Dim& row);
  void Finish(const Columns& columns, const Dim& row, int64_t v, Value sum);
  Dim Row(const Columns& columns, const Dim& row) { return columns.group * g_.filters + row; }
  // Of the rows that a piece multiplies, and whether those of the last tile are among them.
  Dim TilesOf(const Columns& columns);
  Dim HasRest(const Columns& columns);
  Dim RowsOf(const Columns& columns);
  Dim AllTilesOf(const Columns& columns) {
    return math().Name(TilesOf(columns) + HasRest(columns));
  }
  int64_t tiles() const { return g_.filters / tile_.rows; }
  bool InOneBlock() const { return block_channels_ == g_.channels && !by_place_; }
  int64_t places() const { return by_place_ ? 1 : g_.places(); }  // of a block
  int64_t width() const { return tile_.vectors * job_.lanes; }
  int64_t most_turned() const { return turned_counts_.empty() ? 0 : turned_counts_.back(); }
  bool is_turned(const Columns& columns) const { return !columns.turned.IsConstant(0); }
  int64_t filter_vectors() const { return CeilDiv(tile_.rows, job_.lanes); }
  std::vector<Value> SumAt(const Dim& row, int64_t v) {
    return math().At({row * tile_.vectors + v, Dim(0)});
  }
  std::vector<Value> TurnedAt(const Dim& tile, const Dim& position, int64_t v) {
    return math().At({(tile * most_turned() + position) * filter_vectors() + v, Dim(0)});
  }
  LoopBuilder& lb() { return *job_.lb; }
  IndexMath& math() { return *job_.math; }

  ConvJob job_;
  const ConvGeometry& g_;
  Tile tile_{1, 1};
  int64_t block_channels_ = 1;  // that a panel holds
  int64_t part_tiles_ = 1;      // of rows, that a piece multiplies, at most
  bool packed_ = false;         // the weights of a tile's rows lie side by side
  bool copies_ = true;          // panels are copied, not read where they are
  bool by_place_ = false;       // a block has one place of the kernel
  // Of positions whose filters are in the lanes.
  std::vector<int64_t> turned_counts_;  // at once: the fewest first; none if there are no such
  int64_t turned_tiles_ = 1;            // of filters, that are multiplied together, at most

  // While writing.
  Dim part_, parts_;  // tiles of a piece, and how many parts there are
  Value weights_, bias_, panel_, few_, sums_, turned_;
};

std::string Conv::Refusal() {
  if (std::string why = job_.Refusal(); !why.empty()) return why;
  const Machine& machine = job_.l.machine;
  Knobs& knobs = job_.l.knobs;
  tile_ = ChooseTile(knobs,
                     PickTile(g_.filters, g_.positions(), job_.lanes, job_.SumRegisters(), kFewRows,
                              MostVectors()),
                     g_.filters, g_.positions(), job_.lanes, job_.SumRegisters());
  const int64_t tiles = CeilDiv(g_.filters, tile_.rows);
  copies_ = !g_.reads_own_element || tiles > (job_.before ? 1 : 2);
  int64_t apart = 1;
  for (const int64_t stride : g_.strides) apart *= stride;
  if (job_.before && g_.places() > apart) {
    return StrCat("each element of the input would be computed ", CeilDiv(g_.places(), apart),
                  " times");
  }
  const int64_t row_bytes = width() * BitWidth(g_.element) / 8;
  const int64_t most_depth = std::max<int64_t>(2 * machine.l1_bytes / row_bytes, 64);
  block_channels_ = g_.channels;
  by_place_ = copies_ && g_.reaches_far();
  if (copies_) {
    const auto channels = [&](int64_t depth) {
      return by_place_ ? g_.place_channels() : BlockChannels(g_.channels, depth / places());
    };
    const int64_t others[] = {channels(most_depth / 4), channels(most_depth / 2),
                              channels(most_depth * 2), channels(most_depth * 4)};
    block_channels_ = knobs.Choose("channels", channels(most_depth), others);
  }
  if (copies_ && !FitPanel()) return "what one position reads is larger than a panel";
  packed_ = job_.weights_are_constant() && (g_.groups == 1 || g_.filters % tile_.rows == 0);
  PickParts();
  PickTurned();
  return "";
}

// Few planes that go through memory do so a line of each at a time in less time than two, up to
// half, where registers suffice for tiles of many rows; of many, what is read next does not come in
// time.
int64_t Conv::MostVectors() const {
  constexpr int64_t kFewPlanes = 64;
  const bool has_many = job_.l.machine.vector_registers > 16;
  if (!g_.reads_own_element || !has_many || g_.channels > kFewPlanes) return 2;
  const Dim bytes = g_.positions() * ((g_.channels + g_.filters) * BitWidth(g_.element) / 8);
  return bytes.is_constant() && bytes.value() < 2 * job_.l.machine.l2_bytes ? 2 : 1;
}

// Where even one channel of the kernel is large, panels have fewer columns.
bool Conv::FitPanel() {
  const int64_t beyond = g_.reads_own_element ? 0 : job_.lanes;
  const int64_t column_bytes = block_channels_ * places() * BitWidth(g_.element) / 8;
  while (tile_.vectors > 1 && column_bytes * (width() + beyond) > kMaxPanelBytes) --tile_.vectors;
  return column_bytes * (width() + beyond) <= kMaxPanelBytes;
}

// That are multiplied together: sums take about half of the registers.
int64_t Conv::TurnedTiles(int64_t count) const {
  const int64_t most = job_.l.machine.vector_registers / 2 / count / filter_vectors();
  return std::clamp<int64_t>(most, 1, kMostTogether);
}

// Not where filters would leave lanes empty, too.
void Conv::PickTurned() {
  const int64_t vectors = filter_vectors();
  if (g_.is_static() || !copies_ || !packed_ || 2 * tile_.rows <= vectors * job_.lanes) return;
  for (int64_t count = 2; 2 * count <= job_.lanes; count *= 2) turned_counts_.push_back(count);
  if (turned_counts_.empty()) return;
  turned_tiles_ = TurnedTiles(turned_counts_.front());
  part_tiles_ = RoundUp(part_tiles_, turned_tiles_);
  const int64_t pitches = width() + job_.lanes + (g_.reads_own_element ? 0 : 2 * job_.lanes);
  const int64_t elements =
      block_channels_ * places() * pitches + (SumVectors() + job_.lanes) * job_.lanes;
  if (elements * BitWidth(g_.element) / 8 <= kMaxBytes) return;
  turned_counts_.clear();
  turned_tiles_ = 1;
}

// All tiles of rows, or as many as have sums that fit on the stack.
void Conv::PickParts() {
  const int64_t most = std::max<int64_t>(tiles(), 1);
  const int64_t tile_bytes = tile_.rows * width() * BitWidth(g_.element) / 8;
  part_tiles_ = InOneBlock() ? most : std::clamp<int64_t>(kMaxPanelBytes / tile_bytes, 1, most);
}

// ---- writing ----

// [blocks, tiles, depth of a block, rows of a tile], each block in [places, tiles, channels, rows]
// if a place is a block; or as they are: [filters, depth].
Value Conv::PackWeights() {
  const int64_t filters = g_.filters * g_.groups;
  if (!packed_) {
    const std::vector<int64_t> shape{filters, g_.depth()};
    return nn::ViewReshapeOp::Create(lb().b(), job_.Argument(1), {.shape = shape}).y();
  }
  const int64_t of_group = CeilDiv(g_.filters, tile_.rows);  // the last group's may be padded
  const int64_t tiles = CeilDiv(filters, tile_.rows) - of_group + RoundUp(of_group, turned_tiles_);
  const int64_t blocks = CeilDiv(g_.channels, block_channels_);
  PackedLayout layout;
  layout.argument = job_.anchor->operand(1).index();
  layout.padded = {tiles * tile_.rows, blocks * block_channels_};
  layout.padded.insert(layout.padded.end(), g_.kernel.begin(), g_.kernel.end());
  layout.split = {tiles, tile_.rows, blocks, block_channels_ * places(), g_.places() / places()};
  layout.order = {2, 4, 0, 3, 1};
  return job_.l.Pack(std::move(layout));
}

void Conv::Write() {
  job_.Open();
  weights_ = PackWeights();
  bias_ = job_.Argument(2);
  const Dim blocks = math().Name(g_.batch * g_.groups * CeilDiv(g_.positions(), width()));
  const int64_t tiles_of_rows = std::max<int64_t>(tiles(), 1);
  part_ = job_.TilesOfPiece(blocks, tiles_of_rows, part_tiles_);
  part_ = math().Name(CeilDiv(part_, turned_tiles_) * turned_tiles_);
  parts_ = math().Name(CeilDiv(tiles_of_rows, part_));
  math().For(blocks * parts_, job_.parallel, [&](const Dim& i) { WritePiece(i); });
  job_.Close();
}

// Pieces of all images, groups and panels are one loop, so that threads share them however few
// there are of each.
void Conv::WritePiece(Dim number) {
  const auto take = [&](const Dim& extent) {
    if (extent.IsConstant(1)) return Dim(0);
    const Dim taken = math().Name(Mod(number, extent));
    number = math().Name(FloorDiv(number, extent));
    return taken;
  };
  if (copies_) {
    panel_ = job_.Memory(block_channels_ * places(), job_.panels->Pitch(width()));
    if (most_turned() > 0) {
      few_ = job_.Memory(block_channels_ * places(), job_.panels->Pitch(job_.lanes));
    }
  }
  if (SumVectors() > 0) sums_ = job_.Memory(SumVectors(), job_.lanes);
  if (most_turned() > 0) turned_ = job_.Memory(job_.lanes, job_.lanes);
  Columns columns;
  columns.first_tile = math().Name(take(parts_) * part_);
  const Dim panel = take(CeilDiv(g_.positions(), width()));
  columns.group = take(g_.groups);
  columns.image = g_.batch.IsConstant(1) ? Dim(0) : number;
  columns.first = math().Name(panel * width());
  const Dim positions = g_.positions();
  const Dim whole = FloorDiv(positions, width()), rest = Mod(positions, width());
  const Dim is_whole = rest.IsConstant(0)    ? Dim(1)
                       : whole.IsConstant(0) ? Dim(0)
                                             : math().Name(Max(Min(whole - panel, 1), 0));
  columns.vectors = tile_.vectors;
  columns.whole = true;
  math().For(is_whole, false, [&](const Dim&) { WritePanel(columns); });
  columns.whole = false;
  math().For(Dim(1) - is_whole, false, [&](const Dim&) {
    if (!rest.is_constant()) return WriteRest(columns, positions - columns.first);
    columns.vectors = CeilDiv(rest.value(), job_.lanes);
    WritePanel(columns);
  });
}

int64_t Conv::SumVectors() const {
  const int64_t turned = RoundUp(part_tiles_ + 1, turned_tiles_) * most_turned() * filter_vectors();
  int64_t rows = 0;
  if (!InOneBlock()) {
    rows = std::min(g_.filters, (part_tiles_ + 1) * tile_.rows);
  } else if (job_.after->IsLong()) {
    rows = tile_.rows;
  }
  return std::max(turned, rows * tile_.vectors);
}

// As many vectors as there are positions for.
void Conv::WriteRest(Columns columns, const Dim& positions) {
  if (most_turned() > 0) return WriteVectors(columns, positions);
  const Dim needed = math().Name(CeilDiv(positions, job_.lanes));
  for (columns.vectors = 1; columns.vectors <= tile_.vectors; ++columns.vectors) {
    const Dim enough = Max(Min(Dim(columns.vectors + 1) - needed, 1), 0);
    const Dim wanted = Max(Min(needed - (columns.vectors - 1), 1), 0);
    math().For(math().Name(enough * wanted), false, [&](const Dim&) { WritePanel(columns); });
  }
}

// One by one, the last of which may be turned.
void Conv::WriteVectors(Columns columns, const Dim& positions) {
  columns.vectors = 1;
  const Dim first = columns.first;
  const Dim vectors =
      math().Name(FloorDiv(positions + (job_.lanes - most_turned() - 1), job_.lanes));
  math().For(vectors, false, [&](const Dim& v) {
    columns.first = math().Name(first + v * job_.lanes);
    WritePanel(columns);
  });
  columns.first = math().Name(first + vectors * job_.lanes);
  columns.turned = math().Name(Max(positions - vectors * job_.lanes, 0));
  math().For(Min(columns.turned, 1), false, [&](const Dim&) { WritePanel(columns); });
}

Dim Conv::TilesOf(const Columns& columns) {
  if (parts_.IsConstant(1)) return tiles();
  return math().Name(Min(Dim(tiles()) - columns.first_tile, part_));
}

Dim Conv::HasRest(const Columns& columns) {
  if (g_.filters % tile_.rows == 0) return 0;
  if (parts_.IsConstant(1)) return 1;
  return math().Name(Min(Max(columns.first_tile + part_ - (tiles() - 1), 0), 1));
}

Dim Conv::RowsOf(const Columns& columns) {
  const int64_t rest = g_.filters % tile_.rows;
  return math().Name(TilesOf(columns) * tile_.rows + HasRest(columns) * rest);
}

void Conv::WritePanel(Columns columns) {
  if (by_place_) FindPositions(columns);
  if (InOneBlock() && !is_turned(columns)) return WriteBlock(columns, {0, g_.channels});
  StartSums(columns);
  const int64_t blocks = g_.channels / block_channels_, rest = g_.channels % block_channels_;
  const auto write = [&](const Dim& block, int64_t channels) {
    by_place_ ? WritePlaces(columns, {block, channels}) : WriteBlock(columns, {block, channels});
  };
  math().For(blocks, false, [&](const Dim& block) { write(block, block_channels_); });
  if (rest > 0) write(blocks, rest);
  if (is_turned(columns)) {
    math().For(AllTilesOf(columns), false, [&](const Dim& tile) { FinishTurned(columns, tile); });
  } else {
    FinishRows(columns, columns.first_tile * tile_.rows, RowsOf(columns));
  }
}

void Conv::StartSums(const Columns& columns) {
  if (is_turned(columns)) return StartTurned(columns);
  math().For(RowsOf(columns), false, [&](const Dim& row) {
    const Dim first = columns.first_tile * tile_.rows;
    const Value start = lb().Widen(Start(columns, first + row), job_.lanes);
    for (int64_t v = 0; v < columns.vectors; ++v) {
      lb().Store(sums_, start, SumAt(row, v));
    }
  });
}

// So many from `first` on, whose sums are in memory.
void Conv::FinishRows(const Columns& columns, const Dim& first, const Dim& rows) {
  math().For(rows, false, [&](const Dim& row) {
    for (int64_t v = 0; v < columns.vectors; ++v) {
      Finish(columns, first + row, v, lb().Load(sums_, SumAt(row, v), job_.lanes));
    }
  });
}

Value Conv::Live(const Columns& columns, const Dim& position) {
  return columns.whole ? Value() : job_.Live(position, g_.positions());
}

Value Conv::Start(const Columns& columns, const Dim& row) {
  if (!bias_) return lb().Splat(g_.element, 0);
  return lb().Load(bias_, math().At({Row(columns, row)}));
}

void Conv::Finish(const Columns& columns, const Dim& row, int64_t v, Value sum) {
  const Dim position = columns.first + v * job_.lanes;
  const Value live = Live(columns, position);
  job_.after->Store(lb(), math().At({columns.image, Row(columns, row), position}), job_.lanes, live,
                    sum);
}

// A dim's positions are all of them where those of a dim before it differ.
void Conv::FindPositions(Columns& columns) {
  const Dim end =
      math().Name(Min(columns.first + columns.vectors * job_.lanes, g_.positions()) - 1);
  Dim first = columns.first, last = end, same = 1, behind = g_.positions();
  for (size_t a = 0; a < g_.rank(); ++a) {
    const bool is_last = a + 1 == g_.rank();
    behind = is_last ? Dim(1) : math().Name(FloorDiv(behind, g_.out[a]));
    const Dim low = math().Name(FloorDiv(first, behind));
    const Dim high = math().Name(FloorDiv(last, behind));
    columns.positions.emplace_back(math().Name(same * low),
                                   math().Name(same * high + (Dim(1) - same) * (g_.out[a] - 1)));
    first = math().Name(first - low * behind);
    last = math().Name(last - high * behind);
    same = math().Name(same * (Dim(1) - Min(high - low, 1)));
  }
}

// 1 or 0.
Dim Conv::SeesInput(const Columns& columns, size_t axis, const Dim& place) {
  const auto& [first, last] = columns.positions[axis];
  const Dim offset = place * g_.dilations[axis] - g_.begins[axis];
  const Dim low = first * g_.strides[axis] + offset, high = last * g_.strides[axis] + offset;
  return math().Name(Max(Min(high + 1, 1), 0) * Max(Min(g_.in[axis] - low, 1), 0));
}

// As deep as there are spatial dims.
void Conv::WritePlaces(const Columns& columns, const Depth& depth) {
  const size_t axis = depth.place.size();
  if (axis == g_.rank()) return WriteBlock(columns, depth);
  math().For(g_.kernel[axis], false, [&](const Dim& k) {
    math().For(SeesInput(columns, axis, k), false, [&](const Dim&) {
      Depth deeper = depth;
      deeper.place.push_back(k);
      deeper.number = math().Name(depth.number * g_.kernel[axis] + k);
      WritePlaces(columns, deeper);
    });
  });
}

void Conv::WriteBlock(const Columns& columns, const Depth& depth) {
  if (copies_) {
    const Dim first = columns.group * g_.channels + depth.block * block_channels_;
    job_.panels->Write(
        job_.input, {columns.image, math().Name(first), depth.channels, columns.first, depth.place},
        columns.vectors * job_.lanes, is_turned(columns) ? few_ : panel_);
  }
  if (is_turned(columns)) return WriteTurned(columns, depth);
  const Dim whole = TilesOf(columns);
  math().For(whole, false, [&](const Dim& tile) { WriteTile(columns, depth, tile, tile_.rows); });
  math().For(HasRest(columns), false,
             [&](const Dim&) { WriteTile(columns, depth, whole, g_.filters % tile_.rows); });
}

// `tile`: of the piece's.
void Conv::WriteTile(const Columns& columns, const Depth& depth, const Dim& tile, int64_t rows) {
  RegisterTile product{rows, columns.vectors, g_.element, {}, {}, {}, {}};
  const Dim of_group = columns.first_tile + tile;
  const Dim all_tiles = columns.group * tiles() + of_group;
  const auto row = [&](int64_t r) { return of_group * tile_.rows + r; };
  const auto sum_at = [&](int64_t r, int64_t v) {
    return SumAt((InOneBlock() ? Dim(0) : tile * tile_.rows) + r, v);
  };
  product.scalar = [&](int64_t r, Value k) {
    const Dim at = math().Of(k);
    if (packed_) {
      return lb().Load(weights_, math().At({depth.block, depth.number, all_tiles, at, Dim(r)}));
    }
    const Dim here = depth.block * (block_channels_ * places()) + at;
    const Dim column = by_place_ ? here * g_.places() + depth.number : here;
    return lb().Load(weights_, math().At({Row(columns, row(r)), column}));
  };
  product.vector = [&](int64_t v, Value k) {
    if (copies_)
      return lb().Load(panel_, math().At({math().Of(k), Dim(v * job_.lanes)}), job_.lanes);
    const Dim position = columns.first + v * job_.lanes;
    const Value live = Live(columns, position);
    const Dim channel = columns.group * g_.channels + math().Of(k);
    return job_.input.Load(math().At({columns.image, channel, position}), job_.lanes, live);
  };
  product.start = [&](int64_t r, int64_t v) {
    if (InOneBlock()) return Start(columns, row(r));
    return lb().Load(sums_, sum_at(r, v), job_.lanes);
  };
  product.finish = [&](int64_t r, int64_t v, Value sum) {
    if (InOneBlock() && !job_.after->IsLong()) return Finish(columns, row(r), v, sum);
    lb().Store(sums_, sum, sum_at(r, v));
  };
  if (packed_) {  // the weights of the next tile are asked for meanwhile
    product.beside = [&](Value k) {
      lb().Prefetch(weights_,
                    math().At({depth.block, depth.number, all_tiles + 1, math().Of(k), Dim(0)}));
    };
  }
  product.Write(lb(), job_.l.machine, depth.channels * places());
  if (InOneBlock() && job_.after->IsLong()) FinishRows(columns, row(0), rows);
}

// ---- filters in the lanes ----

// The bias of a tile's filters.
Value Conv::StartOfFilters(const Columns& columns, const Dim& tile, int64_t v) {
  if (!bias_) return job_.Zeros();
  const Dim first = (columns.first_tile + tile) * tile_.rows + v * job_.lanes;
  const Dim left = Min(Dim(g_.filters) - first, tile_.rows - v * job_.lanes);
  return lb().Load(bias_, math().At({Row(columns, first)}), job_.lanes,
                   math().At(Max(Min(left, job_.lanes), 0)));
}

void Conv::StartTurned(const Columns& columns) {
  math().For(AllTilesOf(columns), false, [&](const Dim& tile) {
    for (int64_t v = 0; v < filter_vectors(); ++v) {
      const Value start = StartOfFilters(columns, tile, v);
      math().For(most_turned(), false, [&](const Dim& position) {
        lb().Store(sums_, start, TurnedAt(tile, position, v));
      });
    }
  });
}

void Conv::WriteTurned(const Columns& columns, const Depth& depth) {
  int64_t fewer = 0;
  for (const int64_t count : turned_counts_) {
    const Dim enough = Max(Min(Dim(count + 1) - columns.turned, 1), 0);
    const Dim wanted = Max(Min(columns.turned - fewer, 1), 0);
    const int64_t together = TurnedTiles(count);
    const Dim groups = math().Name(enough * wanted * CeilDiv(AllTilesOf(columns), together));
    math().For(groups, false, [&](const Dim& i) {
      MultiplyTurned(columns, depth, math().Name(i * together), count);
    });
    fewer = count;
  }
}

// There may be fewer tiles than are multiplied together.
void Conv::MultiplyTurned(const Columns& columns, const Depth& depth, const Dim& tile,
                          int64_t count) {
  const int64_t vectors = filter_vectors(), together = TurnedTiles(count) * vectors;
  const auto sum_at = [&](int64_t p, int64_t i) {
    return TurnedAt(tile + i / vectors, p, i % vectors);
  };
  std::vector<Value> starts;
  for (int64_t i = 0; i < count * together; ++i) {
    starts.push_back(lb().Load(sums_, sum_at(i / together, i % together), job_.lanes));
  }
  const Dim first = columns.group * tiles() + columns.first_tile + tile;
  const auto step = [&](Value k, std::span<const Value> sums) {
    std::vector<Value> filters, next;
    for (int64_t i = 0; i < together; ++i) {
      const int64_t from = i % vectors * job_.lanes;
      const int64_t live = std::min(tile_.rows - from, job_.lanes);
      const auto at =
          math().At({depth.block, depth.number, first + i / vectors, math().Of(k), Dim(from)});
      filters.push_back(
          lb().Load(weights_, at, job_.lanes, live < job_.lanes ? lb().Int(live) : Value()));
    }
    for (int64_t p = 0; p < count; ++p) {
      const Value element = lb().Load(few_, math().At({math().Of(k), Dim(p)}));
      for (const Value filter : filters) {
        next.push_back(MulAdd(lb(), job_.l.machine, element, filter, sums[next.size()]));
      }
    }
    return next;
  };
  const std::vector<Value> sums = lb().For(depth.channels * places(), starts, step);
  for (int64_t i = 0; i < count * together; ++i) {
    lb().Store(sums_, sums[static_cast<size_t>(i)], sum_at(i / together, i % together));
  }
}

void Conv::FinishTurned(const Columns& columns, const Dim& tile) {
  for (int64_t v = 0; v < filter_vectors(); ++v) {
    std::vector<Value> sums(static_cast<size_t>(job_.lanes), job_.Zeros());
    for (int64_t i = 0; i < most_turned(); ++i) {
      sums[static_cast<size_t>(i)] = lb().Load(sums_, TurnedAt(tile, i, v), job_.lanes);
    }
    const std::vector<Value> filters = lb().Transpose(sums);
    for (int64_t i = 0; i < job_.lanes; ++i) {
      lb().Store(turned_, filters[static_cast<size_t>(i)], math().At({Dim(i), Dim(0)}));
    }
    const Dim first = (columns.first_tile + tile) * tile_.rows + v * job_.lanes;
    const Dim left = Min(Dim(g_.filters) - first, tile_.rows - v * job_.lanes);
    math().For(math().Name(Max(Min(left, job_.lanes), 0)), false, [&](const Dim& i) {
      Finish(columns, math().Name(first + i), 0,
             lb().Load(turned_, math().At({i, Dim(0)}), job_.lanes));
    });
  }
}

}  // namespace

bool LowerConv(Lowering& l) { return WriteUnlessRefused<Conv>(l); }

}  // namespace lathe::lower
