#include <algorithm>
#include <numeric>

#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/support/divide.h"
#include "lathe/support/text.h"
#include "src/lower/planes.h"
#include "src/lower/pooling.h"
#include "src/lower/strategies/list.h"
#include "src/lower/windows.h"

// Pools whose windows lie in planes of static extents: a vector of outputs of a row at a time, and
// several rows, which share what is combined along the rows of the input.
namespace lathe::lower {
namespace {

constexpr int64_t kMostTaps = 128;  // that are written out

class Pool {
 public:
  Pool(Pooling pooling, const Machine& machine) : pooling_(std::move(pooling)), machine_(machine) {}

  std::string Refusal();
  void Write(Block* body);

 private:
  int64_t taps() const;
  size_t last() const { return window_.rank() - 1; }
  void WritePlanes(Value n, Value block, Value first);
  void WriteTables();
  Value Scale(const WindowTiles::Tile& tile, int64_t row, OutputVector vector);
  void WriteTile(Value n, Value c, const WindowTiles::Tile& tile);
  void AddRow(const WindowTiles::Tile& tile, std::vector<int64_t>& offsets);
  Value AlongRow(const WindowTiles::Tile& tile, std::span<const int64_t> offsets,
                 OutputVector vector);

  Pooling pooling_;
  const Machine& machine_;
  nn::Window window_;
  bool has_rows_ = true;  // else the first axis of the window is made up
  int64_t lanes_ = 1, tile_rows_ = 1, tile_vectors_ = 1;
  int64_t together_ = 1;  // planes that are brought in at once
  std::optional<WindowReader> reader_;

  // While writing.
  std::optional<LoopBuilder> lb_;
  std::vector<Value> tables_;    // of an average, per axis: memory; null where it is constant
  double constant_scale_ = 1;    // of the other axes
  std::vector<Value> combined_;  // row by row, vector by vector
};

// At most kMostTaps + 1, however large the kernel is.
int64_t Pool::taps() const {
  int64_t taps = 1;
  for (const int64_t k : window_.kernel) taps *= std::min(k, kMostTaps + 1);
  return std::min(taps, kMostTaps + 1);
}

std::string Pool::Refusal() {
  if (pooling_.global) return "the window is the whole plane";
  if (pooling_.gives_indices()) return "positions are wanted";
  const AnyTensorType x = pooling_.input();
  if (x.rank() < 3) return "there are no spatial axes";
  std::vector<int64_t> in;
  for (const Dim& dim : x.dims().subspan(2)) {
    if (!dim.is_constant()) return StrCat("extent ", dim.ToString(), " is symbolic");
    in.push_back(dim.value());
  }
  window_ = nn::ResolveWindow(pooling_.spec, in, *pooling_.spec.kernel_shape);
  has_rows_ = window_.rank() > 1;
  window_ = WithRows(window_);
  if (taps() > kMostTaps) return "the window is large";
  const bool is_far =
      std::ranges::any_of(window_.dilations, [](int64_t d) { return d > kMostTaps; });
  if (is_far) return "the elements of the window are far apart";
  for (size_t a = 0; a < window_.rank(); ++a) {
    if (window_.in[a] == 0 || window_.out[a] == 0) return "there is nothing to compute";
  }
  lanes_ = LanesFor(window_.out[last()], machine_.lanes(pooling_.element));
  const int64_t rows = window_.out[last() - 1];
  const bool shares_rows = window_.kernel[last() - 1] > window_.strides[last() - 1];
  tile_rows_ = taps() > 32 || !shares_rows ? 1 : TileRowsFor(rows, 4);
  tile_vectors_ = std::max<int64_t>(1, 4 / tile_rows_);
  WindowReader::Options options{.element = pooling_.element,
                                .lanes = lanes_,
                                .padding = pooling_.neutral(),
                                .tile_rows = tile_rows_,
                                .cache_bytes = machine_.l1_bytes / 2,
                                .masks = machine_.vector_bytes >= 32};
  together_ = options.planes = PlanesTogether(window_, options, x.dims()[1]);
  reader_.emplace(window_, options);
  return reader_->scratch_bytes() > kMostScratch ? "the planes are too large" : "";
}

void Pool::Write(Block* body) {
  lb_.emplace(body);
  pooling_.after->Open(*lb_, *body);
  if (pooling_.kind == Pooling::Kind::kAverage) WriteTables();
  const AnyTensorType x = pooling_.input();
  Value planes = body->argument(pooling_.op->operand(0).index());
  if (!has_rows_) {
    const auto with_rows = [&](const Dim& d) { return d.is_constant() ? d.value() : -1; };
    const std::vector<int64_t> shape{with_rows(x.dims()[0] * x.dims()[1]), 1, window_.in[1]};
    planes = nn::ViewReshapeOp::Create(lb_->b(), planes, {.shape = shape}).y();
  } else {
    planes = ViewPlanes(*lb_, planes);
  }
  const int64_t work =
      std::accumulate(window_.out.begin(), window_.out.end(), taps(), std::multiplies<>());
  const Dim blocks = FloorDiv(x.dims()[1], together_);
  ForPlanes(*lb_, x.dims()[0], blocks, work / 4 * together_,
            [&](Value n, Value block, Value number) {
              reader_->Allocate(*lb_, planes);
              WritePlanes(n, block, lb_->Index(LoopBuilder::D0() * together_, number));
            });
  pooling_.after->Close(*lb_);
}

// Block number `block` of the planes of an image, the first of which is number `first` of all.
void Pool::WritePlanes(Value n, Value block, Value first) {
  if (together_ > 1) reader_->Open(first, lb_->Int(0));
  lb_->For(together_, false, [&](Value i) {
    const Value both[] = {block, i};
    const Value c = lb_->Index(LoopBuilder::D0() * together_ + LoopBuilder::D1(), both);
    if (together_ > 1) reader_->Select(i);
    WindowTiles(window_, lanes_, tile_rows_, tile_vectors_)
        .Write(
            *lb_, *reader_,
            [&](Value band) {
              if (together_ == 1) reader_->Open(first, band);
            },
            [&](const WindowTiles::Tile& tile) { WriteTile(n, c, tile); });
  });
}

// One over the number of elements that count, per axis.
void Pool::WriteTables() {
  tables_.assign(window_.rank(), Value());
  constant_scale_ = 1;
  for (size_t a = 0; a < window_.rank(); ++a) {
    if (!has_rows_ && a == 0) continue;
    if (pooling_.CountsAll(has_rows_ ? a : a - 1)) {
      constant_scale_ *= 1.0 / static_cast<double>(window_.kernel[a]);
      continue;
    }
    const int64_t room = RoundUp(window_.out[a], lanes_);
    std::vector<double> scales(static_cast<size_t>(room), 1);
    for (int64_t o = 0; o < window_.out[a]; ++o) {
      const int64_t start = o * window_.strides[a] - window_.begins[a];
      const auto before = [&](int64_t end) {
        return std::clamp<int64_t>(CeilDiv(end - start, window_.dilations[a]), 0,
                                   window_.kernel[a]);
      };
      const bool pads = pooling_.count_include_pad;
      const int64_t count =
          before(window_.in[a] + (pads ? window_.ends[a] : 0)) - (pads ? 0 : before(0));
      scales[static_cast<size_t>(o)] = 1.0 / static_cast<double>(count);
    }
    tables_[a] =
        lb_->Alloc(VTensorType::Get(lb_->context(), SymShape({Dim(room)}), pooling_.element));
    for (int64_t i = 0; i < room; i += lanes_) {
      const std::vector<double> part(scales.begin() + i, scales.begin() + i + lanes_);
      const Value at = lb_->Int(i);
      lb_->Store(tables_[a],
                 lb_->Constant(Cast(Tensor::Of<double>({lanes_}, part), pooling_.element)),
                 {&at, 1});
    }
  }
}

Value Pool::Scale(const WindowTiles::Tile& tile, int64_t row, OutputVector vector) {
  if (pooling_.kind != Pooling::Kind::kAverage) return {};
  Value scale = lb_->Splat(pooling_.element, constant_scale_, lanes_);
  for (size_t a = 0; a < window_.rank(); ++a) {
    if (!tables_[a]) continue;
    const int64_t offset = a == last() ? vector.offset : a + 1 == last() ? row : 0;
    const Value at = lb_->Index(LoopBuilder::D0() + offset, tile.outputs[a]);
    const Value factor = lb_->Load(tables_[a], {&at, 1}, a == last() ? lanes_ : 0);
    scale = nn::MulOp::Create(lb_->b(), scale, factor).c();
  }
  return scale;
}

void Pool::WriteTile(Value n, Value c, const WindowTiles::Tile& tile) {
  combined_.assign(static_cast<size_t>(tile.rows) * tile.vectors.size(), Value());
  std::vector<int64_t> offsets(last(), 0);
  const std::function<void(size_t)> axis = [&](size_t a) {
    if (a + 1 == last()) return AddRow(tile, offsets);
    for (int64_t k = 0; k < window_.kernel[a]; ++k) {
      offsets[a] = k * window_.dilations[a];
      axis(a + 1);
    }
  };
  axis(0);
  for (int64_t r = 0; r < tile.rows; ++r) {
    for (size_t v = 0; v < tile.vectors.size(); ++v) {
      const OutputVector vector = tile.vectors[v];
      std::vector<Value> at{n, c};
      for (size_t a = has_rows_ ? 0 : 1; a < window_.rank(); ++a) {
        const int64_t offset = a == last() ? vector.offset : a + 1 == last() ? r : 0;
        at.push_back(lb_->Index(LoopBuilder::D0() + offset, tile.outputs[a]));
      }
      const Value x = combined_[static_cast<size_t>(r) * tile.vectors.size() + v];
      pooling_.after->Store(*lb_, at, lanes_,
                            vector.live < lanes_ ? lb_->Int(vector.live) : Value(),
                            pooling_.Finished(*lb_, x, Scale(tile, r, vector)));
    }
  }
}

// All rows of the input that the tile sees; `offsets`: of the axes before them.
void Pool::AddRow(const WindowTiles::Tile& tile, std::vector<int64_t>& offsets) {
  const size_t axis = last() - 1;
  const int64_t stride = window_.strides[axis], dilation = window_.dilations[axis];
  const int64_t reach = (tile.rows - 1) * stride + (window_.kernel[axis] - 1) * dilation;
  for (int64_t q = 0; q <= reach; ++q) {
    std::vector<int64_t> users;
    for (int64_t r = 0; r < tile.rows; ++r) {
      const int64_t rest = q - r * stride;
      if (rest >= 0 && rest % dilation == 0 && rest / dilation < window_.kernel[axis]) {
        users.push_back(r);
      }
    }
    offsets[axis] = q;
    for (size_t v = 0; v < tile.vectors.size() && !users.empty(); ++v) {
      const Value row = AlongRow(tile, offsets, tile.vectors[v]);
      for (const int64_t r : users) {
        Value& x = combined_[static_cast<size_t>(r) * tile.vectors.size() + v];
        x = x ? pooling_.Combined(*lb_, x, row) : row;
      }
    }
  }
}

Value Pool::AlongRow(const WindowTiles::Tile& tile, std::span<const int64_t> offsets,
                     OutputVector vector) {
  Value row;
  for (int64_t k = 0; k < window_.kernel[last()]; ++k) {
    const Value x = pooling_.Prepared(*lb_, reader_->Load(tile.place, offsets, k, vector));
    row = row ? pooling_.Combined(*lb_, row, x) : x;
  }
  return row;
}

}  // namespace

bool LowerPool(Lowering& l) {
  auto pooling = Pooling::Find(l.function, l.machine, l.why);
  if (!pooling) return false;
  Pool pool(std::move(*pooling), l.machine);
  l.why = pool.Refusal();
  if (!l.why.empty()) return false;
  pool.Write(l.body);
  return true;
}

}  // namespace lathe::lower
