#include <algorithm>

#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/support/text.h"
#include "src/lower/anchor.h"
#include "src/lower/planes.h"
#include "src/lower/pointwise.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/conv_groups.h"
#include "src/lower/strategies/list.h"
#include "src/lower/strategies/window_blocks.h"
#include "src/lower/windows.h"

// What conv_depthwise does, where extents are known only when the program runs or the kernel is
// large: sums of a tile of outputs are held in registers, and what a block of tiles reads is copied
// with its padding.
namespace lathe::lower {
namespace {

constexpr int64_t kMostChannels = 16;    // of a group, that are summed over
constexpr int64_t kWrittenOut = 9;       // places of a kernel; their weights stay in registers
constexpr int64_t kUsualWork = 56 * 56;  // outputs of a plane
constexpr int64_t kMostSums = 8;         // of one filter, so that additions need not wait

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

  std::string AnchorRefusal();
  std::string AfterRefusal();
  void PickTile();
  bool holds_weights() const { return g_.channels * g_.filters == 1 && g_.places() <= kWrittenOut; }
  void WriteGroups(const Dim& first);
  void HoldWeights();
  void WriteTile(const Tile& tile, const Filters& filters);
  using Sums = std::vector<Value>;
  struct Place {  // of the kernel
    Dim outer, row, column;
  };
  Sums Start(const Filters& filters);
  using AddTo = std::function<void(const Dim& i, Sums& sums)>;
  void Repeat(int64_t count, Sums& sums, const AddTo& body);
  void RepeatPlaces(int64_t count, Sums& sums, const AddTo& body);
  void AddPlaces(const Tile& tile, const Filters& filters, const Dim& channel, Sums& sums);
  void AddColumn(const Tile& tile, const Filters& filters, const Dim& channel, const Place& first,
                 int64_t rows, Sums& sums);
  void Finish(const Tile& tile, const Filters& filters, const Sums& sums);
  Value Weight(const Dim& filter, const Dim& channel, const Dim& tap);
  int64_t rows_of_kernel() const { return g_.rank() > 1 ? g_.kernel[g_.rank() - 2] : 1; }
  int64_t row_stride() const { return g_.rank() > 1 ? g_.strides[g_.rank() - 2] : 1; }
  int64_t row_dilation() const { return g_.rank() > 1 ? g_.dilations[g_.rank() - 2] : 1; }
  size_t Number(int64_t filter, int64_t row, int64_t vector) const {
    return static_cast<size_t>((filter * sizes_.tile_rows + row) * sizes_.tile_vectors + vector);
  }
  Dim Filter(const Filters& filters, int64_t f) { return group_ * g_.filters + filters.first + f; }

  Lowering& l_;
  const Machine& machine_;
  const Operation* anchor_ = nullptr;
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

std::string GroupedConvBlocks::AnchorRefusal() {
  const auto is_one = [](const Operation& op) { return op.isa<nn::ConvOp>(); };
  std::string why = FindAnchor(l_.function, "convolution", is_one, anchor_);
  if (!why.empty()) return why;
  if (!ReadsArguments(*anchor_)) return "an operand is computed in the same function";
  if (why = g_.Parse(*anchor_); !why.empty()) return why;
  if (g_.groups == 1) return "there is one group";
  if (g_.channels > kMostChannels) return "there are many channels in a group";
  if (g_.places() == 1) return "the kernel has one element";
  const Condition by_filters =
      FiltersFillVectors(l_, *anchor_, g_.channels, g_.filters, g_.out.back());
  if (by_filters.Prove() == Truth::kTrue) return "filters fill vectors, positions do not";
  if (by_filters.Prove() == Truth::kUnknown) l_.where = !by_filters;
  return "";
}

std::string GroupedConvBlocks::AfterRefusal() {
  after_.emplace(l_.function, anchor_, machine_);
  if (std::string why = after_->Refusal(); !why.empty()) return why;
  const auto dims = anchor_->result(0).type().cast<AnyTensorType>().dims();
  if (!std::ranges::equal(dims, after_->dims())) return "the result is broadcast further";
  std::vector<std::vector<size_t>> axes;
  for (size_t a = 0; a < dims.size(); ++a) axes.push_back({a});
  return after_->SetGroups(std::move(axes)) ? "" : "rows of the result are stored apart";
}

// Rows of one vector, so that few outputs are computed that there are not.
void GroupedConvBlocks::PickTile() {
  const Dim& columns = g_.out.back();
  sizes_.lanes = machine_.lanes(g_.element);
  if (columns.is_constant()) sizes_.lanes = LanesFor(columns.value(), sizes_.lanes);
  sizes_.planes = g_.channels;
  sizes_.sets = SetsTogether(g_.groups, g_.channels);
  sizes_.cache_bytes = machine_.l1_bytes / 2;
  const int64_t held = holds_weights() ? g_.places() : 1;
  const int64_t room = std::max<int64_t>(machine_.vector_registers - held - 3, 2);
  tile_filters_ = TileRowsFor(g_.filters, std::min<int64_t>(room, 4));
  const bool has_room = g_.places() > kWrittenOut && room >= kMostSums + kKernelRows;
  const int64_t most = std::clamp<int64_t>(room / tile_filters_, 1, has_room ? kMostSums : 4);
  if (g_.rank() > 1) {
    const Dim& rows = g_.out[g_.rank() - 2];
    sizes_.tile_rows = rows.is_constant() ? TileRowsFor(rows.value(), most) : most;
  }
  sizes_.tile_vectors = std::max<int64_t>(1, most / sizes_.tile_rows);
  if (columns.is_constant()) {
    sizes_.tile_vectors = std::min(sizes_.tile_vectors, CeilDiv(columns.value(), sizes_.lanes));
  }
}

std::string GroupedConvBlocks::Refusal() {
  if (std::string why = AnchorRefusal(); !why.empty()) return why;
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
    const Value v = i < anchor_->num_operands() ? anchor_->operand(i) : Value();
    return v ? l_.body->argument(v.index()) : Value();
  };
  const std::vector<int64_t> matrix{g_.filters * g_.groups, g_.depth()};
  weights_ = nn::ViewReshapeOp::Create(lb_->b(), argument(1), {.shape = matrix}).y();
  bias_ = argument(2);
  input_ = ConvInput(*lb_, argument(0));
  const AnyTensorType x = anchor_->operand(0).type().cast<AnyTensorType>();
  ForPlanes(*lb_, x.dims()[0], CeilDiv(g_.groups, sizes_.sets),
            sizes_.sets * kUsualWork * g_.depth() * g_.filters / 4, [&](Value n, Value i, Value) {
              image_ = math_->Of(n);
              WriteGroups(math_->Name(math_->Of(i) * sizes_.sets));
            });
  after_->Close(*lb_);
}

void GroupedConvBlocks::WriteGroups(const Dim& first) {
  const bool whole = g_.groups % sizes_.sets == 0;
  const Dim sets = whole ? Dim(sizes_.sets) : math_->Name(Min(g_.groups - first, sizes_.sets));
  blocks_->Open(*lb_, *math_);
  const auto open = [&](const Dim& set) {
    group_ = math_->Name(first + set);
    HoldWeights();
  };
  blocks_->Write(
      input_, image_, math_->Name(first * g_.channels), sets, open, [&](const Tile& tile) {
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

Value GroupedConvBlocks::Weight(const Dim& filter, const Dim& channel, const Dim& tap) {
  if (!held_.empty()) return held_[static_cast<size_t>(tap.value())];
  return lb_->Load(weights_, math_->At({filter, channel * g_.places() + tap}));
}

// Sums: filter by filter, row by row, vector by vector.
GroupedConvBlocks::Sums GroupedConvBlocks::Start(const Filters& filters) {
  Sums sums;
  for (int64_t f = 0; f < filters.count; ++f) {
    Value start = lb_->Splat(g_.element, 0, sizes_.lanes);
    if (bias_) start = lb_->Widen(lb_->Load(bias_, math_->At({Filter(filters, f)})), sizes_.lanes);
    sums.insert(sums.end(), Number(1, 0, 0), start);
  }
  return sums;
}

void GroupedConvBlocks::WriteTile(const Tile& tile, const Filters& filters) {
  Sums sums = Start(filters);
  Repeat(g_.channels, sums,
         [&](const Dim& channel, Sums& next) { AddPlaces(tile, filters, channel, next); });
  blocks_->Finish(tile, [&](const Tile& t) { Finish(t, filters, sums); });
}

// A loop that carries the sums.
void GroupedConvBlocks::Repeat(int64_t count, Sums& sums, const AddTo& body) {
  if (count == 1) return body(0, sums);
  sums = lb_->For(count, sums, [&](Value i, std::span<const Value> carried) {
    Sums next(carried.begin(), carried.end());
    body(math_->Of(i), next);
    return next;
  });
}

// The same, written out if the kernel is small.
void GroupedConvBlocks::RepeatPlaces(int64_t count, Sums& sums, const AddTo& body) {
  if (g_.places() > kWrittenOut) return Repeat(count, sums, body);
  for (int64_t i = 0; i < count; ++i) body(i, sums);
}

// Column by column of the kernel, for some rows of it at a time; large kernels in loops.
void GroupedConvBlocks::AddPlaces(const Tile& tile, const Filters& filters, const Dim& channel,
                                  Sums& sums) {
  const int64_t rows = rows_of_kernel(), together = TileRowsFor(rows, kKernelRows);
  const int64_t full = rows / together, rest = rows % together;
  RepeatPlaces(g_.outer_places(), sums, [&](const Dim& outer, Sums& of_outer) {
    const auto add = [&](const Dim& first, int64_t count, Sums& of_rows) {
      RepeatPlaces(g_.kernel.back(), of_rows, [&](const Dim& column, Sums& of_column) {
        AddColumn(tile, filters, channel, {outer, first, column}, count, of_column);
      });
    };
    RepeatPlaces(full, of_outer, [&](const Dim& i, Sums& of_rows) {
      add(math_->Name(i * together), together, of_rows);
    });
    if (rest > 0) add(full * together, rest, of_outer);
  });
}

// Each weight serves all rows of the tile, and what is read of the input all places that see it.
void GroupedConvBlocks::AddColumn(const Tile& tile, const Filters& filters, const Dim& channel,
                                  const Place& first, int64_t rows, Sums& sums) {
  std::vector<Value> weights;  // row by row of the kernel, filter by filter
  for (int64_t i = 0; i < rows; ++i) {
    const Dim row = first.outer * rows_of_kernel() + first.row + i;
    for (int64_t f = 0; f < filters.count; ++f) {
      weights.push_back(Weight(Filter(filters, f), channel, row * g_.kernel.back() + first.column));
    }
  }
  const int64_t reach = (sizes_.tile_rows - 1) * row_stride() + (rows - 1) * row_dilation();
  for (int64_t below = 0; below <= reach; ++below) {
    std::vector<Value> read(static_cast<size_t>(sizes_.tile_vectors));
    for (int64_t r = 0; r < sizes_.tile_rows; ++r) {
      const int64_t rest = below - r * row_stride(), i = rest / row_dilation();
      if (rest < 0 || rest % row_dilation() != 0 || i >= rows) continue;
      for (int64_t v = 0; v < sizes_.tile_vectors; ++v) {
        Value& x = read[static_cast<size_t>(v)];
        if (!x) {
          const Dim row = first.row * row_dilation() + below;
          x = blocks_->Load(tile, channel, first.outer, row, first.column, v);
        }
        for (int64_t f = 0; f < filters.count; ++f) {
          const Value weight = weights[static_cast<size_t>(i * filters.count + f)];
          Value& sum = sums[Number(f, r, v)];
          sum = MulAdd(*lb_, machine_, x, weight, sum);
        }
      }
    }
  }
}

void GroupedConvBlocks::Finish(const Tile& tile, const Filters& filters, const Sums& sums) {
  for (int64_t f = 0; f < filters.count; ++f) {
    for (int64_t r = 0; r < sizes_.tile_rows; ++r) {
      for (int64_t v = 0; v < sizes_.tile_vectors; ++v) {
        after_->Store(*lb_, blocks_->At(tile, image_, Filter(filters, f), r, v), sizes_.lanes,
                      blocks_->Live(tile, r, v), sums[Number(f, r, v)]);
      }
    }
  }
}

}  // namespace

bool LowerConvDepthwiseBlocks(Lowering& l) { return WriteUnlessRefused<GroupedConvBlocks>(l); }

}  // namespace lathe::lower
