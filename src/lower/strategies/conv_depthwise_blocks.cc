#include <algorithm>

#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/support/text.h"
#include "src/lower/master.h"
#include "src/lower/planes.h"
#include "src/lower/pointwise.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/list.h"
#include "src/lower/strategies/window_blocks.h"
#include "src/lower/windows.h"

// What conv_depthwise does, where extents are known only when the program runs: sums of a tile of
// outputs are held in registers, and what a block of tiles reads is copied with its padding.
namespace lathe::lower {
namespace {

constexpr int64_t kMostChannels = 16;      // of a group, that are summed over
constexpr int64_t kMostTaps = 64;          // that are written out
constexpr int64_t kMostScratch = 1 << 19;  // bytes
constexpr int64_t kHeldWeights = 9;        // in registers
constexpr int64_t kUsualWork = 56 * 56;    // outputs of a plane

class GroupedConvBlocks {
 public:
  explicit GroupedConvBlocks(Lowering& l) : l_(l), machine_(l.machine) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  using Tile = WindowBlocks::Tile;
  // The filters of a group that a tile computes: `count` from number `first` on.
  struct Filters {
    Dim first;
    int64_t count;
  };

  std::string MasterRefusal();
  std::string AfterRefusal();
  void PickTile();
  bool holds_weights() const {
    return g_.channels * g_.filters == 1 && g_.places() <= kHeldWeights;
  }
  void WriteGroups(const Dim& image, const Dim& first);
  void HoldWeights();
  void WriteTile(const Tile& tile, const Filters& filters);
  std::vector<Value> Start(const Filters& filters);
  void AddChannel(const Tile& tile, const Filters& filters, const Dim& channel,
                  std::vector<Value>& sums);
  void AddRow(const Tile& tile, const Filters& filters, const Dim& channel, int64_t outer,
              int64_t row, std::vector<Value>& sums);
  void Finish(const Tile& tile, const Filters& filters, const std::vector<Value>& sums);
  Value Weight(const Dim& filter, const Dim& channel, int64_t tap);
  Dim Filter(const Filters& filters, int64_t f) { return group_ * g_.filters + filters.first + f; }

  Lowering& l_;
  const Machine& machine_;
  const Operation* master_ = nullptr;
  std::optional<Pointwise> after_;
  ConvGeometry g_;
  WindowBlocks::Sizes sizes_;
  int64_t tile_filters_ = 1;
  std::optional<WindowBlocks> blocks_;

  // While writing.
  std::optional<LoopBuilder> lb_;
  std::optional<IndexMath> math_;
  ConvInput input_;
  Value weights_, bias_;
  Dim image_, group_;
  std::vector<Value> held_;  // weights
};

std::string GroupedConvBlocks::MasterRefusal() {
  const auto is_one = [](const Operation& op) { return op.isa<nn::ConvOp>(); };
  std::string why = FindMaster(l_.function, "convolution", is_one, master_);
  if (!why.empty()) return why;
  if (!ReadsArguments(*master_)) return "an operand is computed in the same function";
  if (why = g_.Parse(*master_); !why.empty()) return why;
  if (g_.is_static()) return "all extents are known";
  if (g_.groups == 1) return "there is one group";
  if (g_.channels > kMostChannels) return "there are many channels in a group";
  if (g_.places() == 1) return "the kernel has one element";
  return g_.places() > kMostTaps ? "the kernel is large" : "";
}

std::string GroupedConvBlocks::AfterRefusal() {
  after_.emplace(l_.function, master_, machine_);
  if (std::string why = after_->Refusal(); !why.empty()) return why;
  const auto dims = master_->result(0).type().cast<AnyTensorType>().dims();
  if (!std::ranges::equal(dims, after_->dims())) return "the result is broadcast further";
  std::vector<std::vector<size_t>> axes;
  for (size_t a = 0; a < dims.size(); ++a) axes.push_back({a});
  return after_->SetGroups(std::move(axes)) ? "" : "rows of the result are stored apart";
}

// As many sums as conv_depthwise has.
void GroupedConvBlocks::PickTile() {
  sizes_.lanes = machine_.lanes(g_.element);
  sizes_.planes = g_.channels;
  sizes_.sets = SetsTogether(g_.groups, g_.channels);
  sizes_.cache_bytes = machine_.l1_bytes / 2;
  const int64_t held = holds_weights() ? g_.places() : 1;
  const int64_t room = std::max<int64_t>(machine_.vector_registers - held - 3, 2);
  tile_filters_ = TileRowsFor(g_.filters, std::min<int64_t>(room, 4));
  const int64_t most = std::clamp<int64_t>(room / tile_filters_, 1, 4);
  if (g_.rank() > 1) {
    const Dim& rows = g_.out[g_.rank() - 2];
    sizes_.tile_rows = rows.is_constant() ? TileRowsFor(rows.value(), most) : most;
  }
  sizes_.tile_vectors = std::max<int64_t>(1, most / sizes_.tile_rows);
}

std::string GroupedConvBlocks::Refusal() {
  if (std::string why = MasterRefusal(); !why.empty()) return why;
  if (std::string why = AfterRefusal(); !why.empty()) return why;
  PickTile();
  blocks_.emplace(g_, sizes_);
  return blocks_->bytes() > kMostScratch ? "what a block reads is too large" : "";
}

// ---- writing ----

void GroupedConvBlocks::Write() {
  lb_.emplace(l_.body);
  math_.emplace(*lb_);
  g_.Bind(*lb_, *math_);
  after_->Open(*lb_, *l_.body);
  const auto argument = [&](size_t i) {
    const Value v = i < master_->num_operands() ? master_->operand(i) : Value();
    return v ? l_.body->argument(v.index()) : Value();
  };
  const std::vector<int64_t> matrix{g_.filters * g_.groups, g_.depth()};
  weights_ = nn::ViewReshapeOp::Create(lb_->b(), argument(1), {.shape = matrix}).y();
  bias_ = argument(2);
  input_ = ConvInput(*lb_, argument(0));
  const AnyTensorType x = master_->operand(0).type().cast<AnyTensorType>();
  ForPlanes(*lb_, x.dims()[0], CeilDiv(g_.groups, sizes_.sets),
            sizes_.sets * kUsualWork * g_.depth() * g_.filters / 4, [&](Value n, Value i, Value) {
              WriteGroups(math_->Of(n), math_->Name(math_->Of(i) * sizes_.sets));
            });
  after_->Close(*lb_);
}

void GroupedConvBlocks::WriteGroups(const Dim& image, const Dim& first) {
  image_ = image;
  const bool whole = g_.groups % sizes_.sets == 0;
  const Dim sets = whole ? Dim(sizes_.sets) : math_->Name(Min(g_.groups - first, sizes_.sets));
  blocks_->Open(*lb_, *math_);
  const auto open = [&](const Dim& set) {
    group_ = math_->Name(first + set);
    HoldWeights();
  };
  blocks_->Write(
      input_, image, math_->Name(first * g_.channels), sets, open, [&](const Tile& tile) {
        const int64_t full = g_.filters / tile_filters_;
        math_->For(full, false,
                   [&](const Dim& i) { WriteTile(tile, {i * tile_filters_, tile_filters_}); });
        const int64_t done = full * tile_filters_;
        if (done < g_.filters) WriteTile(tile, {done, g_.filters - done});
      });
}

void GroupedConvBlocks::HoldWeights() {
  held_.clear();
  std::vector<Value> held;
  for (int64_t k = 0; k < g_.places() && holds_weights(); ++k) held.push_back(Weight(group_, 0, k));
  held_ = std::move(held);
}

Value GroupedConvBlocks::Weight(const Dim& filter, const Dim& channel, int64_t tap) {
  if (!held_.empty()) return held_[static_cast<size_t>(tap)];
  return lb_->Load(weights_, math_->At({filter, channel * g_.places() + tap}));
}

// Sums: filter by filter, row by row, vector by vector.
std::vector<Value> GroupedConvBlocks::Start(const Filters& filters) {
  std::vector<Value> sums;
  for (int64_t f = 0; f < filters.count; ++f) {
    Value start = lb_->Splat(g_.element, 0, sizes_.lanes);
    if (bias_) start = lb_->Widen(lb_->Load(bias_, math_->At({Filter(filters, f)})), sizes_.lanes);
    sums.insert(sums.end(), static_cast<size_t>(sizes_.tile_rows * sizes_.tile_vectors), start);
  }
  return sums;
}

void GroupedConvBlocks::WriteTile(const Tile& tile, const Filters& filters) {
  std::vector<Value> sums = Start(filters);
  if (g_.channels == 1) {
    AddChannel(tile, filters, 0, sums);
  } else {
    sums = lb_->For(g_.channels, sums, [&](Value channel, std::span<const Value> carried) {
      std::vector<Value> next(carried.begin(), carried.end());
      AddChannel(tile, filters, math_->Of(channel), next);
      return next;
    });
  }
  Finish(tile, filters, sums);
}

// Row by row of the input that the tile sees.
void GroupedConvBlocks::AddChannel(const Tile& tile, const Filters& filters, const Dim& channel,
                                   std::vector<Value>& sums) {
  const bool has_rows = g_.rank() > 1;
  const size_t axis = g_.rank() - 2;
  const int64_t reach = !has_rows ? 0
                                  : (sizes_.tile_rows - 1) * g_.strides[axis] +
                                        (g_.kernel[axis] - 1) * g_.dilations[axis];
  for (int64_t outer = 0; outer < g_.outer_places(); ++outer) {
    for (int64_t row = 0; row <= reach; ++row) AddRow(tile, filters, channel, outer, row, sums);
  }
}

void GroupedConvBlocks::AddRow(const Tile& tile, const Filters& filters, const Dim& channel,
                               int64_t outer, int64_t row, std::vector<Value>& sums) {
  const bool has_rows = g_.rank() > 1;
  const size_t axis = has_rows ? g_.rank() - 2 : 0;
  const int64_t stride = has_rows ? g_.strides[axis] : 1;
  const int64_t dilation = has_rows ? g_.dilations[axis] : 1;
  const int64_t rows = has_rows ? g_.kernel[axis] : 1, columns = g_.kernel.back();
  for (int64_t k = 0; k < columns; ++k) {
    std::vector<Value> read(static_cast<size_t>(sizes_.tile_vectors));
    for (int64_t r = 0; r < sizes_.tile_rows; ++r) {
      const int64_t rest = row - r * stride;
      if (rest < 0 || rest % dilation != 0 || rest / dilation >= rows) continue;
      const int64_t tap = (outer * rows + rest / dilation) * columns + k;
      for (int64_t f = 0; f < filters.count; ++f) {
        const Value weight = Weight(Filter(filters, f), channel, tap);
        for (int64_t v = 0; v < sizes_.tile_vectors; ++v) {
          Value& x = read[static_cast<size_t>(v)];
          if (!x) x = blocks_->Load(tile, channel, outer, row, k, v);
          const int64_t number = (f * sizes_.tile_rows + r) * sizes_.tile_vectors + v;
          Value& sum = sums[static_cast<size_t>(number)];
          sum = MulAdd(*lb_, machine_, x, weight, sum);
        }
      }
    }
  }
}

void GroupedConvBlocks::Finish(const Tile& tile, const Filters& filters,
                               const std::vector<Value>& sums) {
  size_t next = 0;
  for (int64_t f = 0; f < filters.count; ++f) {
    for (int64_t r = 0; r < sizes_.tile_rows; ++r) {
      for (int64_t v = 0; v < sizes_.tile_vectors; ++v) {
        after_->Store(*lb_, blocks_->At(tile, image_, Filter(filters, f), r, v), sizes_.lanes,
                      blocks_->Live(tile, r, v), sums[next++]);
      }
    }
  }
}

}  // namespace

bool LowerConvDepthwiseBlocks(Lowering& l) { return WriteUnlessRefused<GroupedConvBlocks>(l); }

}  // namespace lathe::lower
