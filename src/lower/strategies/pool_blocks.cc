#include <algorithm>

#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/support/text.h"
#include "src/lower/planes.h"
#include "src/lower/pooling.h"
#include "src/lower/strategies/list.h"
#include "src/lower/strategies/window_blocks.h"
#include "src/lower/windows.h"

// What pool does, where extents are known only when the program runs: what a block of tiles reads
// is copied with its padding.
namespace lathe::lower {
namespace {

constexpr int64_t kMostTaps = 128;       // that are written out
constexpr int64_t kUsualWork = 28 * 28;  // outputs of a plane

class PoolBlocks {
 public:
  PoolBlocks(Pooling pooling, const Machine& machine)
      : pooling_(std::move(pooling)), machine_(machine) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write(Block* body);

 private:
  using Tile = WindowBlocks::Tile;

  std::string WindowRefusal();
  bool HasPadding() const;
  void WriteScales();
  Value ScaleAt(size_t axis, const Dim& output);
  Value Scale(const Tile& tile, int64_t row, int64_t v);
  void WriteTile(const Tile& tile, const Dim& image, const Dim& channel);
  void AddRow(const Tile& tile, int64_t outer, int64_t row);
  Value AlongRow(const Tile& tile, int64_t outer, int64_t row, int64_t v);

  Pooling pooling_;
  const Machine& machine_;
  ConvGeometry g_;
  WindowBlocks::Sizes sizes_;
  std::optional<WindowBlocks> blocks_;

  // While writing.
  std::optional<LoopBuilder> lb_;
  std::optional<IndexMath> math_;
  std::vector<Value> scales_;    // of an average, per axis: memory; null where it is constant
  double constant_scale_ = 1;    // of the other axes
  std::vector<Value> combined_;  // row by row, vector by vector
};

std::string PoolBlocks::WindowRefusal() {
  const AnyTensorType x = pooling_.input();
  if (x.rank() < 3) return "there are no spatial axes";
  if (std::ranges::any_of(x.dims(), [](const Dim& d) { return d.is_unknown(); })) {
    return "an extent is unknown";
  }
  const auto spatial = x.dims().subspan(2);
  g_.element = pooling_.element;
  g_.batch = x.dims()[0];
  g_.ParseWindow(pooling_.spec, spatial, *pooling_.spec.kernel_shape);
  if (g_.is_static()) return "all extents are known";
  int64_t taps = 1;
  for (const int64_t k : g_.kernel) taps *= std::min(k, kMostTaps + 1);
  if (taps > kMostTaps) return "the window is large";
  const bool is_far = std::ranges::any_of(g_.dilations, [](int64_t d) { return d > kMostTaps; });
  if (is_far) return "the elements of the window are far apart";
  if (g_.rank() > 1) {
    const bool shares_rows = g_.kernel[g_.rank() - 2] > g_.strides[g_.rank() - 2];
    sizes_.tile_rows = taps > 32 || !shares_rows ? 1 : 4;
  }
  return "";
}

std::string PoolBlocks::Refusal() {
  if (pooling_.global) return "the window is the whole plane";
  if (pooling_.gives_indices()) return "positions are wanted";
  if (std::string why = WindowRefusal(); !why.empty()) return why;
  sizes_.lanes = machine_.lanes(pooling_.element);
  sizes_.tile_vectors = 1;  // vectors share nothing, and planes may be narrow
  sizes_.cache_bytes = machine_.l1_bytes / 2;
  sizes_.fill = pooling_.neutral();
  sizes_.copies = HasPadding();
  if (!sizes_.copies) return "";
  sizes_.sets = SetsTogether(pooling_.input().dims()[1], 1);
  return WindowBlocks(g_, sizes_).bytes() > kMostScratch ? "what a block reads is too large" : "";
}

// Rounded up, the last window hangs over the end.
bool PoolBlocks::HasPadding() const {
  const nn::WindowSteps steps = nn::CheckedSteps(pooling_.spec, g_.rank());
  const auto is_none = [](int64_t pad) { return pad == 0; };
  return nn::IsSame(pooling_.spec) || pooling_.spec.ceil_mode ||
         !std::ranges::all_of(steps.begins, is_none) || !std::ranges::all_of(steps.ends, is_none);
}

void PoolBlocks::Write(Block* body) {
  lb_.emplace(body);
  math_.emplace(*lb_);
  g_.Bind(*lb_, *math_);
  if (pooling_.kind == Pooling::Kind::kAverage) WriteScales();
  blocks_.emplace(g_, sizes_);
  pooling_.after->Open(*lb_, *body);
  const ConvInput input(*lb_, body->argument(pooling_.op->operand(0).index()));
  const AnyTensorType x = pooling_.input();
  const Dim channels = math_->Extent(x.dims()[1]);
  ForPlanes(*lb_, x.dims()[0], CeilDiv(x.dims()[1], sizes_.sets),
            sizes_.sets * kUsualWork * g_.places() / 4, [&](Value n, Value i, Value) {
              const Dim image = math_->Of(n), first = math_->Name(math_->Of(i) * sizes_.sets);
              const Dim sets = math_->Name(Min(channels - first, sizes_.sets));
              Dim channel;
              blocks_->Open(*lb_, *math_);
              blocks_->Write(
                  input, image, first, sets,
                  [&](const Dim& set) { channel = math_->Name(first + set); },
                  [&](const Tile& tile) { WriteTile(tile, image, channel); });
            });
  pooling_.after->Close(*lb_);
}

// One over the number of elements that count, per output along an axis.
void PoolBlocks::WriteScales() {
  const auto declared = pooling_.output().dims().subspan(2);
  const Dim room = sizes_.tile_rows + (sizes_.tile_vectors + 1) * sizes_.lanes;  // of tiles at ends
  scales_.assign(g_.rank(), Value());
  constant_scale_ = 1;
  for (size_t a = 0; a < g_.rank(); ++a) {
    if (pooling_.CountsAll(a)) {
      constant_scale_ *= 1.0 / static_cast<double>(g_.kernel[a]);
      continue;
    }
    const Dim extent = declared[a] + room;
    std::vector<Value> sizes;
    if (!extent.is_constant()) sizes.push_back(math_->At(g_.out[a] + room));
    const Type type = TensorType::Get(lb_->context(), SymShape({extent}), g_.element);
    scales_[a] = loop::AllocOp::Create(lb_->b(), sizes, {&type, 1}).memory();
    math_->For(g_.out[a], false, [&](const Dim& o) {
      const Value at[] = {math_->At(o)};
      lb_->Store(scales_[a], ScaleAt(a, o), at);
    });
  }
}

Value PoolBlocks::ScaleAt(size_t axis, const Dim& output) {
  const nn::WindowSteps steps = nn::CheckedSteps(pooling_.spec, g_.rank());
  const Dim start = output * g_.strides[axis], begin = g_.begins[axis];
  const auto before = [&](const Dim& end) {  // counted from the beginning of the padding
    return Min(CeilDiv(Max(end - start, 0), g_.dilations[axis]), g_.kernel[axis]);
  };
  Dim count = before(begin + g_.in[axis]);
  if (pooling_.count_include_pad) {
    count = before(begin + g_.in[axis] + steps.ends[axis]);
  } else {
    count = count - before(begin);
  }
  Builder& b = lb_->b();
  const auto cast = [&](Value v, ElementType to) {
    return nn::CastOp::Create(b, v, {.to = to}).output();
  };
  const Value one = lb_->Splat(ElementType::kF64, 1);
  const Value scale = nn::DivOp::Create(b, one, cast(math_->At(count), ElementType::kF64)).c();
  return g_.element == ElementType::kF64 ? scale : cast(scale, g_.element);
}

Value PoolBlocks::Scale(const Tile& tile, int64_t row, int64_t v) {
  if (pooling_.kind != Pooling::Kind::kAverage) return {};
  Value scale = lb_->Splat(g_.element, constant_scale_, sizes_.lanes);
  for (size_t a = 0; a < g_.rank(); ++a) {
    if (!scales_[a]) continue;
    const bool is_last = a + 1 == g_.rank();
    const int64_t offset = is_last ? v * sizes_.lanes : a + 2 == g_.rank() ? row : 0;
    const Value at[] = {math_->At(tile.first[a] + offset)};
    const Value factor = lb_->Load(scales_[a], at, is_last ? sizes_.lanes : 0);
    scale = nn::MulOp::Create(lb_->b(), scale, factor).c();
  }
  return scale;
}

void PoolBlocks::WriteTile(const Tile& tile, const Dim& image, const Dim& channel) {
  const bool has_rows = g_.rank() > 1;
  const size_t axis = has_rows ? g_.rank() - 2 : 0;
  combined_.assign(static_cast<size_t>(sizes_.tile_rows * sizes_.tile_vectors), Value());
  const int64_t reach = !has_rows ? 0
                                  : (sizes_.tile_rows - 1) * g_.strides[axis] +
                                        (g_.kernel[axis] - 1) * g_.dilations[axis];
  for (int64_t outer = 0; outer < g_.outer_places(); ++outer) {
    for (int64_t row = 0; row <= reach; ++row) AddRow(tile, outer, row);
  }
  blocks_->Finish(tile, [&](const Tile& t) {
    size_t next = 0;
    for (int64_t r = 0; r < sizes_.tile_rows; ++r) {
      for (int64_t v = 0; v < sizes_.tile_vectors; ++v) {
        pooling_.after->Store(*lb_, blocks_->At(t, image, channel, r, v), sizes_.lanes,
                              blocks_->Live(t, r, v),
                              pooling_.Finished(*lb_, combined_[next++], Scale(t, r, v)));
      }
    }
  });
}

// A row of the input, for all rows of the tile that see it.
void PoolBlocks::AddRow(const Tile& tile, int64_t outer, int64_t row) {
  const bool has_rows = g_.rank() > 1;
  const size_t axis = has_rows ? g_.rank() - 2 : 0;
  const int64_t stride = has_rows ? g_.strides[axis] : 1;
  const int64_t dilation = has_rows ? g_.dilations[axis] : 1;
  const int64_t rows = has_rows ? g_.kernel[axis] : 1;
  std::vector<int64_t> users;
  for (int64_t r = 0; r < sizes_.tile_rows; ++r) {
    const int64_t rest = row - r * stride;
    if (rest >= 0 && rest % dilation == 0 && rest / dilation < rows) users.push_back(r);
  }
  for (int64_t v = 0; v < sizes_.tile_vectors && !users.empty(); ++v) {
    const Value along = AlongRow(tile, outer, row, v);
    for (const int64_t r : users) {
      Value& x = combined_[static_cast<size_t>(r * sizes_.tile_vectors + v)];
      x = x ? pooling_.Combined(*lb_, x, along) : along;
    }
  }
}

Value PoolBlocks::AlongRow(const Tile& tile, int64_t outer, int64_t row, int64_t v) {
  Value combined;
  for (int64_t k = 0; k < g_.kernel.back(); ++k) {
    const Value x = pooling_.Prepared(*lb_, blocks_->Load(tile, 0, outer, row, k, v));
    combined = combined ? pooling_.Combined(*lb_, combined, x) : x;
  }
  return combined;
}

}  // namespace

bool LowerPoolBlocks(Lowering& l) {
  auto pooling = Pooling::Find(l.function, l.machine, l.why);
  if (!pooling) return false;
  PoolBlocks pool(std::move(*pooling), l.machine);
  l.why = pool.Refusal();
  if (!l.why.empty()) return false;
  pool.Write(l.body);
  return true;
}

}  // namespace lathe::lower
