#include <algorithm>
#include <vector>

#include "lathe/dialect/nn/view.h"
#include "lathe/support/text.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/conv_job.h"
#include "src/lower/strategies/list.h"
#include "src/lower/tiles.h"

// A convolution and the elementwise operations after it as a matrix product: the weights are the
// rows, the positions of the output the columns. What the columns multiply is copied from the input
// a panel at a time, so that the whole matrix never exists. A panel is cut in depth where it would
// not stay in cache; the sums so far then wait in memory.
namespace lathe::lower {
namespace {

constexpr int64_t kFewRows = 4;

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
    int64_t vectors;
    bool whole;  // all columns are positions
  };

  Value PackWeights();
  void WritePanels(const Dim& first_panel, const Dim& panels, int64_t vectors, bool whole);
  void WritePanel(const Columns& columns);
  void WriteBlock(const Columns& columns, const Dim& block, int64_t channels);
  void WriteTile(const Columns& columns, const Dim& block, const Dim& tile, int64_t rows,
                 int64_t depth);
  void StartSums(const Columns& columns);
  void FinishSums(const Columns& columns);
  Value Live(const Columns& columns, const Dim& position);
  Value Start(const Columns& columns, const Dim& row);
  void Finish(const Columns& columns, const Dim& row, int64_t v, Value sum);
  Dim Row(const Columns& columns, const Dim& row) { return columns.group * g_.filters + row; }
  bool InOneBlock() const { return block_channels_ == g_.channels; }
  int64_t width() const { return tile_.vectors * job_.lanes; }
  LoopBuilder& lb() { return *job_.lb; }
  IndexMath& math() { return *job_.math; }

  ConvJob job_;
  const ConvGeometry& g_;
  Tile tile_{1, 1};
  int64_t block_channels_ = 1;  // that a panel holds
  bool packed_ = false;         // the weights of a tile's rows lie side by side
  bool copies_ = true;          // panels are copied, not read where they are

  // While writing.
  Value weights_, bias_, panel_, sums_;
};

std::string Conv::Refusal() {
  if (std::string why = job_.Refusal(); !why.empty()) return why;
  const Machine& machine = job_.l.machine;
  tile_ = PickTile(g_.filters, g_.positions(), job_.lanes, job_.SumRegisters(), kFewRows);
  const int64_t tiles = (g_.filters + tile_.rows - 1) / tile_.rows;
  copies_ = !g_.reads_own_element || tiles > (job_.before ? 1 : 2);
  int64_t apart = 1;
  for (const int64_t stride : g_.strides) apart *= stride;
  if (job_.before && g_.places() > apart) {
    return StrCat("each element of the input would be computed ", (g_.places() + apart - 1) / apart,
                  " times");
  }
  const int64_t row_bytes = width() * BitWidth(g_.element) / 8;
  const int64_t most_depth = std::max<int64_t>(2 * machine.l1_bytes / row_bytes, 64);
  block_channels_ = copies_ ? BlockChannels(g_, most_depth) : g_.channels;
  packed_ = job_.weights_are_constant() && (g_.groups == 1 || g_.filters % tile_.rows == 0);
  return "";
}

// ---- writing ----

// [blocks, tiles, depth of a block, rows of a tile], or as they are: [filters, depth].
Value Conv::PackWeights() {
  const int64_t filters = g_.filters * g_.groups;
  if (!packed_) {
    const std::vector<int64_t> shape{filters, g_.depth()};
    return nn::ViewReshapeOp::Create(lb().b(), job_.Argument(1), {.shape = shape}).y();
  }
  const int64_t tiles = (filters + tile_.rows - 1) / tile_.rows;
  const int64_t blocks = (g_.channels + block_channels_ - 1) / block_channels_;
  PackedLayout layout;
  layout.argument = job_.master->operand(1).index();
  layout.padded = {tiles * tile_.rows, blocks * block_channels_};
  layout.padded.insert(layout.padded.end(), g_.kernel.begin(), g_.kernel.end());
  layout.split = {tiles, tile_.rows, blocks, block_channels_ * g_.places()};
  layout.order = {2, 0, 3, 1};
  return job_.l.Pack(std::move(layout));
}

void Conv::Write() {
  job_.Open();
  weights_ = PackWeights();
  bias_ = job_.Argument(2);
  const Dim positions = math().Extent(g_.positions());
  const Dim whole = FloorDiv(positions, width()), rest = Mod(positions, width());
  WritePanels(0, whole, tile_.vectors, true);
  const int64_t vectors =
      rest.is_constant() ? (rest.value() + job_.lanes - 1) / job_.lanes : tile_.vectors;
  WritePanels(whole, Min(rest, 1), vectors, false);
  job_.Close();
}

// Panels of all images and groups are one loop, so that threads share them however few there are of
// each.
void Conv::WritePanels(const Dim& first_panel, const Dim& panels, int64_t vectors, bool whole) {
  const Dim count = math().Name(panels);
  const Dim all = math().Extent(g_.batch) * g_.groups * count;
  math().For(all, job_.parallel, [&](const Dim& i) {
    const Dim panel = count.IsConstant(1) ? Dim(0) : Mod(i, count);
    const Dim rest = count.IsConstant(1) ? i : math().Name(FloorDiv(i, count));
    const Dim image = g_.batch.IsConstant(1) ? Dim(0) : FloorDiv(rest, g_.groups);
    const Dim group = g_.groups == 1 ? Dim(0) : Mod(rest, g_.groups);
    WritePanel({math().Name(image), math().Name(group),
                math().Name((first_panel + panel) * width()), vectors, whole});
  });
}

void Conv::WritePanel(const Columns& columns) {
  const int64_t width = columns.vectors * job_.lanes;
  if (copies_) {
    panel_ = job_.Memory(block_channels_ * g_.places(), job_.panels->Pitch(width));
  }
  if (InOneBlock()) return WriteBlock(columns, 0, g_.channels);
  sums_ = job_.Memory(g_.filters, width);
  StartSums(columns);
  const int64_t blocks = g_.channels / block_channels_, rest = g_.channels % block_channels_;
  math().For(blocks, false, [&](const Dim& block) { WriteBlock(columns, block, block_channels_); });
  if (rest > 0) WriteBlock(columns, blocks, rest);
  FinishSums(columns);
}

void Conv::StartSums(const Columns& columns) {
  math().For(g_.filters, false, [&](const Dim& row) {
    const Value start = lb().Widen(Start(columns, row), job_.lanes);
    for (int64_t v = 0; v < columns.vectors; ++v) {
      lb().Store(sums_, start, math().At({row, Dim(v * job_.lanes)}));
    }
  });
}

void Conv::FinishSums(const Columns& columns) {
  math().For(g_.filters, false, [&](const Dim& row) {
    for (int64_t v = 0; v < columns.vectors; ++v) {
      Finish(columns, row, v, lb().Load(sums_, math().At({row, Dim(v * job_.lanes)}), job_.lanes));
    }
  });
}

Value Conv::Live(const Columns& columns, const Dim& position) {
  return columns.whole ? Value() : job_.Live(position, math().Extent(g_.positions()));
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

void Conv::WriteBlock(const Columns& columns, const Dim& block, int64_t channels) {
  if (copies_) {
    const Dim first = columns.group * g_.channels + block * block_channels_;
    job_.panels->Write(job_.input, {columns.image, math().Name(first), channels, columns.first},
                       columns.vectors * job_.lanes, panel_);
  }
  const int64_t tiles = g_.filters / tile_.rows, rest = g_.filters % tile_.rows;
  const int64_t depth = channels * g_.places();
  math().For(tiles, false,
             [&](const Dim& tile) { WriteTile(columns, block, tile, tile_.rows, depth); });
  if (rest > 0) WriteTile(columns, block, tiles, rest, depth);
}

void Conv::WriteTile(const Columns& columns, const Dim& block, const Dim& tile, int64_t rows,
                     int64_t depth) {
  RegisterTile product{rows, columns.vectors, g_.element, {}, {}, {}, {}};
  const Dim all_tiles = columns.group * (g_.filters / tile_.rows) + tile;
  const auto row = [&](int64_t r) { return tile * tile_.rows + r; };
  product.scalar = [&](int64_t r, Value k) {
    const Dim at = math().Of(k);
    if (packed_) return lb().Load(weights_, math().At({block, all_tiles, at, Dim(r)}));
    const Dim before = block * (block_channels_ * g_.places());
    return lb().Load(weights_, math().At({Row(columns, row(r)), before + at}));
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
    return lb().Load(sums_, math().At({row(r), Dim(v * job_.lanes)}), job_.lanes);
  };
  product.finish = [&](int64_t r, int64_t v, Value sum) {
    if (InOneBlock()) return Finish(columns, row(r), v, sum);
    lb().Store(sums_, sum, math().At({row(r), Dim(v * job_.lanes)}));
  };
  product.Write(lb(), job_.l.machine, depth);
}

}  // namespace

bool LowerConv(Lowering& l) {
  Conv lowering(l);
  l.why = lowering.Refusal();
  if (!l.why.empty()) return false;
  lowering.Write();
  return true;
}

}  // namespace lathe::lower
