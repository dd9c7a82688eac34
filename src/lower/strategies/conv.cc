#include "lathe/dialect/nn/conv.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "lathe/dialect/nn/view.h"
#include "lathe/support/text.h"
#include "src/lower/pointwise.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/conv_panel.h"
#include "src/lower/strategies/list.h"
#include "src/lower/tiles.h"

// A convolution and the elementwise operations after it as a matrix product: the weights are the
// rows, the positions of the output the columns. What the columns multiply is copied from the input
// a panel at a time, so that the whole matrix never exists. A panel is cut in depth where it would
// not stay in cache; the sums so far then wait in memory.
namespace lathe::lower {
namespace {

constexpr int64_t kParallelFlops = 1 << 21;
constexpr int64_t kFewRows = 4;

class Conv {
 public:
  explicit Conv(Lowering& lowering)
      : l_(lowering), function_(lowering.function), machine_(lowering.machine) {}

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

  std::string FindMaster();
  void PickTiles();
  Value PackWeights();
  void WritePanels(const Dim& first_panel, const Dim& panels, int64_t vectors, bool whole);
  void WritePanel(const Columns& columns);
  void WriteBlock(const Columns& columns, const Dim& block, int64_t channels);
  void WriteTile(const Columns& columns, const Dim& block, const Dim& tile, int64_t rows,
                 int64_t depth);
  void StartSums(const Columns& columns);
  void FinishSums(const Columns& columns);
  Value Start(const Columns& columns, const Dim& row);
  void Finish(const Columns& columns, const Dim& row, int64_t v, Value sum);
  Dim Row(const Columns& columns, const Dim& row) { return columns.group * g_.filters + row; }
  bool InOneBlock() const { return block_channels_ == g_.channels; }
  int64_t width() const { return tile_.vectors * lanes_; }

  Lowering& l_;
  const Block& function_;
  const Machine& machine_;
  const Operation* master_ = nullptr;
  std::optional<Pointwise> after_;
  ConvGeometry g_;
  int64_t lanes_ = 1;
  Tile tile_{1, 1};
  int64_t block_channels_ = 1;  // that a panel holds
  bool packed_ = false;         // the weights of a tile's rows lie side by side
  bool copies_ = true;          // panels are copied, not read where they are
  bool parallel_ = false;

  // While writing.
  std::optional<LoopBuilder> lb_;
  std::optional<IndexMath> math_;
  std::optional<ConvPanel> builder_;
  Value input_, weights_, bias_, panel_, sums_;
};

std::string Conv::FindMaster() {
  for (const Operation& op : function_) {
    if (op.name() != nn::ConvOp::kName) continue;
    if (master_ != nullptr) return "there are two convolutions";
    master_ = &op;
  }
  if (master_ == nullptr) return "there is no convolution";
  for (size_t i = 0; i < master_->num_operands(); ++i) {
    const Value v = master_->operand(i);
    if (v && !v.is_block_argument()) return "an operand is computed in the same function";
  }
  return "";
}

std::string Conv::Refusal() {
  if (std::string why = FindMaster(); !why.empty()) return why;
  if (std::string why = g_.Parse(*master_); !why.empty()) return why;
  after_.emplace(function_, master_, machine_);
  if (std::string why = after_->Refusal(); !why.empty()) return why;
  const auto dims = master_->result(0).type().cast<AnyTensorType>().dims();
  if (!std::ranges::equal(dims, after_->dims())) return "the result is broadcast further";
  std::vector<std::vector<size_t>> axes{{0}, {1}, {}};
  for (size_t a = 2; a < dims.size(); ++a) axes.back().push_back(a);
  if (!after_->SetGroups(std::move(axes))) return "the positions can not be walked as one";
  PickTiles();
  return "";
}

// Channels of a block: as many as keep the panel in the first-level cache, in equal parts where
// that takes few more blocks.
int64_t BlockChannels(const ConvGeometry& g, int64_t most_depth) {
  const int64_t most = std::max<int64_t>(most_depth / g.places(), 1);
  if (most >= g.channels) return g.channels;
  for (int64_t c = most; c > most / 2; --c) {
    if (g.channels % c == 0) return c;
  }
  const int64_t blocks = (g.channels + most - 1) / most;
  return (g.channels + blocks - 1) / blocks;
}

void Conv::PickTiles() {
  lanes_ = machine_.lanes(g_.element);
  const Dim positions = g_.positions();
  tile_ = PickTile(g_.filters, positions, lanes_, machine_.vector_registers, kFewRows);
  const int64_t tiles = (g_.filters + tile_.rows - 1) / tile_.rows;
  copies_ = !g_.reads_own_element || tiles > 2;
  const int64_t row_bytes = width() * BitWidth(g_.element) / 8;
  const int64_t most_depth = std::max<int64_t>(2 * machine_.l1_bytes / row_bytes, 64);
  block_channels_ = copies_ ? BlockChannels(g_, most_depth) : g_.channels;
  packed_ = l_.IsConstant(master_->operand(1)) && (g_.groups == 1 || g_.filters % tile_.rows == 0);
  const Dim work = g_.batch * positions * (g_.depth() * g_.filters * g_.groups);
  parallel_ = !work.is_constant() || work.value() > kParallelFlops;
}

// ---- writing ----

// [blocks, tiles, depth of a block, rows of a tile], or as they are: [filters, depth].
Value Conv::PackWeights() {
  const Value weights = master_->operand(1);
  const int64_t filters = g_.filters * g_.groups;
  if (!packed_) {
    return nn::ViewReshapeOp::Create(lb_->b(), l_.body->argument(weights.index()),
                                     {.shape = {filters, g_.depth()}})
        .y();
  }
  const int64_t tiles = (filters + tile_.rows - 1) / tile_.rows;
  const int64_t blocks = (g_.channels + block_channels_ - 1) / block_channels_;
  PackedLayout layout;
  layout.argument = weights.index();
  layout.padded = {tiles * tile_.rows, blocks * block_channels_};
  layout.padded.insert(layout.padded.end(), g_.kernel.begin(), g_.kernel.end());
  layout.split = {tiles, tile_.rows, blocks, block_channels_ * g_.places()};
  layout.order = {2, 0, 3, 1};
  return l_.Pack(std::move(layout));
}

void Conv::Write() {
  lb_.emplace(l_.body);
  math_.emplace(*lb_);
  builder_.emplace(*lb_, *math_, g_, lanes_);
  weights_ = PackWeights();
  after_->Open(*lb_, *l_.body);
  input_ = builder_->View(l_.body->argument(master_->operand(0).index()));
  const Value bias = master_->num_operands() > 2 ? master_->operand(2) : Value();
  if (bias) bias_ = l_.body->argument(bias.index());
  const Dim positions = math_->Extent(g_.positions());
  const Dim whole = FloorDiv(positions, width()), rest = Mod(positions, width());
  WritePanels(0, whole, tile_.vectors, true);
  const int64_t vectors = rest.is_constant() ? (rest.value() + lanes_ - 1) / lanes_ : tile_.vectors;
  WritePanels(whole, Min(rest, 1), vectors, false);
  after_->Close(*lb_);
}

// Panels of all images and groups are one loop, so that threads share them however few there are of
// each.
void Conv::WritePanels(const Dim& first_panel, const Dim& panels, int64_t vectors, bool whole) {
  const Dim count = math_->Name(panels);
  const Dim all = math_->Extent(g_.batch) * g_.groups * count;
  math_->For(all, parallel_, [&](const Dim& i) {
    const Dim panel = count.IsConstant(1) ? Dim(0) : Mod(i, count);
    const Dim rest = count.IsConstant(1) ? i : math_->Name(FloorDiv(i, count));
    const Dim image = g_.batch.IsConstant(1) ? Dim(0) : FloorDiv(rest, g_.groups);
    const Dim group = g_.groups == 1 ? Dim(0) : Mod(rest, g_.groups);
    WritePanel({math_->Name(image), math_->Name(group),
                math_->Name((first_panel + panel) * width()), vectors, whole});
  });
}

void Conv::WritePanel(const Columns& columns) {
  const auto memory = [&](int64_t rows, int64_t pitch) {
    const SymShape shape({Dim(rows), Dim(pitch)});
    return lb_->Alloc(VTensorType::Get(lb_->context(), shape, g_.element));
  };
  const int64_t width = columns.vectors * lanes_;
  if (copies_) panel_ = memory(block_channels_ * g_.places(), builder_->Pitch(width));
  if (InOneBlock()) return WriteBlock(columns, 0, g_.channels);
  sums_ = memory(g_.filters, width);
  StartSums(columns);
  const int64_t blocks = g_.channels / block_channels_, rest = g_.channels % block_channels_;
  math_->For(blocks, false, [&](const Dim& block) { WriteBlock(columns, block, block_channels_); });
  if (rest > 0) WriteBlock(columns, blocks, rest);
  FinishSums(columns);
}

void Conv::StartSums(const Columns& columns) {
  math_->For(g_.filters, false, [&](const Dim& row) {
    const Value start = lb_->Widen(Start(columns, row), lanes_);
    for (int64_t v = 0; v < columns.vectors; ++v) {
      lb_->Store(sums_, start, math_->At({row, Dim(v * lanes_)}));
    }
  });
}

void Conv::FinishSums(const Columns& columns) {
  math_->For(g_.filters, false, [&](const Dim& row) {
    for (int64_t v = 0; v < columns.vectors; ++v) {
      Finish(columns, row, v, lb_->Load(sums_, math_->At({row, Dim(v * lanes_)}), lanes_));
    }
  });
}

Value Conv::Start(const Columns& columns, const Dim& row) {
  if (!bias_) return lb_->Splat(g_.element, 0);
  return lb_->Load(bias_, math_->At({Row(columns, row)}));
}

void Conv::Finish(const Columns& columns, const Dim& row, int64_t v, Value sum) {
  const Dim position = columns.first + v * lanes_;
  Value live;
  if (!columns.whole) {
    const Dim left = math_->Extent(g_.positions()) - position;
    live = math_->At(Max(Min(left, lanes_), 0));
  }
  after_->Store(*lb_, math_->At({columns.image, Row(columns, row), position}), lanes_, live, sum);
}

void Conv::WriteBlock(const Columns& columns, const Dim& block, int64_t channels) {
  if (copies_) {
    const Dim first = columns.group * g_.channels + block * block_channels_;
    builder_->Write(input_, {columns.image, math_->Name(first), channels, columns.first},
                    columns.vectors * lanes_, panel_);
  }
  const int64_t tiles = g_.filters / tile_.rows, rest = g_.filters % tile_.rows;
  const int64_t depth = channels * g_.places();
  math_->For(tiles, false,
             [&](const Dim& tile) { WriteTile(columns, block, tile, tile_.rows, depth); });
  if (rest > 0) WriteTile(columns, block, tiles, rest, depth);
}

void Conv::WriteTile(const Columns& columns, const Dim& block, const Dim& tile, int64_t rows,
                     int64_t depth) {
  RegisterTile product{rows, columns.vectors, g_.element, {}, {}, {}, {}};
  const Dim all_tiles = columns.group * (g_.filters / tile_.rows) + tile;
  const auto row = [&](int64_t r) { return tile * tile_.rows + r; };
  product.scalar = [&](int64_t r, Value k) {
    const Dim at = math_->Of(k);
    if (packed_) return lb_->Load(weights_, math_->At({block, all_tiles, at, Dim(r)}));
    const Dim before = block * (block_channels_ * g_.places());
    return lb_->Load(weights_, math_->At({Row(columns, row(r)), before + at}));
  };
  product.vector = [&](int64_t v, Value k) {
    if (copies_) return lb_->Load(panel_, math_->At({math_->Of(k), Dim(v * lanes_)}), lanes_);
    const Dim position = columns.first + v * lanes_;
    Value live;
    if (!columns.whole) {
      live = math_->At(Max(Min(math_->Extent(g_.positions()) - position, lanes_), 0));
    }
    const Dim channel = columns.group * g_.channels + math_->Of(k);
    return lb_->Load(input_, math_->At({columns.image, channel, position}), lanes_, live);
  };
  product.start = [&](int64_t r, int64_t v) {
    if (InOneBlock()) return Start(columns, row(r));
    return lb_->Load(sums_, math_->At({row(r), Dim(v * lanes_)}), lanes_);
  };
  product.finish = [&](int64_t r, int64_t v, Value sum) {
    if (InOneBlock()) return Finish(columns, row(r), v, sum);
    lb_->Store(sums_, sum, math_->At({row(r), Dim(v * lanes_)}));
  };
  product.Write(*lb_, machine_, depth);
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
