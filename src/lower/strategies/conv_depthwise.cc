#include <algorithm>

#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/text.h"
#include "src/lower/anchor.h"
#include "src/lower/planes.h"
#include "src/lower/pointwise.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/conv_groups.h"
#include "src/lower/strategies/list.h"
#include "src/lower/windows.h"

// Convolutions of many groups with few channels each: sums of a tile of outputs are held in
// registers, for some rows and some channels of the group, which share what is read of the input.
// Weights are scalars, the same for all lanes.
namespace lathe::lower {
namespace {

constexpr int64_t kMostChannels = 16;  // of a group, that are summed over
constexpr int64_t kMostTaps = 36;      // that are written out
constexpr int64_t kHeldWeights = 9;    // in registers

class GroupedConv {
 public:
  explicit GroupedConv(const Lowering& l)
      : lowering_(l), function_(l.function), machine_(l.machine) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write(Block* body);

 private:
  using Tile = WindowTiles::Tile;
  // The filters of a group that a tile computes: `count` from number `first` on.
  struct Filters {
    Value first;
    int64_t count;
  };

  std::string AnchorRefusal();
  std::string ShapeRefusal();
  std::string AfterRefusal();
  void PickTile();
  size_t last() const { return window_.rank() - 1; }
  int64_t taps() const { return ProductOf(window_.kernel); }
  bool holds_weights() const { return channels_ * filters_ == 1 && taps() <= kHeldWeights; }
  Value Weight(const Filters& filters, int64_t filter, Value channel, int64_t tap);
  void WriteGroup(Value n, Value g, Value plane);
  void WriteTile(const Tile& tile, const Filters& filters);
  std::vector<Value> Start(const Tile& tile, const Filters& filters);
  void AddChannel(const Tile& tile, const Filters& filters, Value channel,
                  std::vector<Value>& sums);
  void AddRow(const Tile& tile, const Filters& filters, Value channel,
              std::span<const int64_t> offsets, int64_t tap, int64_t column,
              std::vector<Value>& sums);
  void Finish(const Tile& tile, const Filters& filters, std::span<const Value> sums);
  Value Filter(const Filters& filters, int64_t filter);

  const Lowering& lowering_;
  const Block& function_;
  const Machine& machine_;
  const Operation* anchor_ = nullptr;
  std::optional<Pointwise> after_;
  nn::Window window_;
  bool has_rows_ = true;  // else the first axis of the window is made up
  Dim batch_;
  int64_t groups_ = 1, channels_ = 1, filters_ = 1;  // of one group
  ElementType element_ = ElementType::kUndefined;
  int64_t lanes_ = 1, tile_rows_ = 1, tile_vectors_ = 1, tile_filters_ = 1;
  int64_t together_ = 1;  // groups whose planes are brought in at once
  std::optional<WindowReader> reader_;

  // While writing.
  std::optional<LoopBuilder> lb_;
  Value weights_, bias_, n_, g_;
  std::vector<Value> held_;  // weights
};

std::string GroupedConv::AnchorRefusal() {
  const auto is_one = [](const Operation& op) { return op.isa<nn::ConvOp>(); };
  std::string why = FindAnchor(function_, "convolution", is_one, anchor_);
  if (!why.empty() || ReadsArguments(*anchor_)) return why;
  return "an operand is computed in the same function";
}

std::string GroupedConv::ShapeRefusal() {
  const nn::ConvOp op(anchor_);
  const AnyTensorType x = TensorOf(anchor_->operand(0)), w = TensorOf(anchor_->operand(1));
  if (op.layout().value_or("NCHW") != "NCHW") return "the channels are last";
  groups_ = op.group();
  if (groups_ == 1) return "there is one group";
  element_ = x.element();
  if (element_ != ElementType::kF32 && element_ != ElementType::kF64) {
    return StrCat("elements are ", Name(element_));
  }
  if (!x.has_rank() || !w.is_static()) return "the weights are of symbolic shape";
  std::vector<int64_t> in, kernel;
  for (size_t a = 2; a < x.rank(); ++a) {
    const Dim& dim = x.dims()[a];
    if (!dim.is_constant()) return StrCat("extent ", dim.ToString(), " is symbolic");
    in.push_back(dim.value());
    kernel.push_back(w.dims()[a].value());
  }
  batch_ = x.dims()[0];
  channels_ = w.dims()[1].value();
  filters_ = w.dims()[0].value() / groups_;
  if (channels_ > kMostChannels) return "there are many channels in a group";
  window_ = nn::ResolveWindow(nn::WindowOf(op), in, kernel);
  if (FiltersFillVectors(lowering_, *anchor_, channels_, filters_, window_.out.back()).Prove() ==
      Truth::kTrue) {
    return "filters fill vectors, positions do not";
  }
  has_rows_ = window_.rank() > 1;
  window_ = WithRows(window_);
  if (taps() == 1) return "the kernel has one element";
  if (taps() > kMostTaps || window_.kernel[last() - 1] > kKernelRows) return "the kernel is large";
  if (ProductOf(window_.out) * ProductOf(window_.in) * channels_ * filters_ * taps() == 0) {
    return "there is nothing to compute";
  }
  return "";
}

std::string GroupedConv::AfterRefusal() {
  after_.emplace(function_, anchor_, machine_);
  if (std::string why = after_->Refusal(); !why.empty()) return why;
  if (!std::ranges::equal(TensorOf(anchor_->result(0)).dims(), after_->dims())) {
    return "the result is broadcast further";
  }
  std::vector<std::vector<size_t>> axes;
  for (size_t a = 0; a < after_->dims().size(); ++a) axes.push_back({a});
  return after_->SetGroups(std::move(axes)) ? "" : "rows of the result are stored apart";
}

// Sums for some filters and rows; of one filter at least four, so that additions need not wait.
void GroupedConv::PickTile() {
  lanes_ = LanesFor(window_.out[last()], machine_.lanes(element_));
  const int64_t held = holds_weights() ? taps() : 1;
  const int64_t room = std::max<int64_t>(machine_.vector_registers - held - 3, 2);
  tile_filters_ = TileRowsFor(filters_, std::min<int64_t>(room, 4));
  const int64_t most = std::clamp<int64_t>(room / tile_filters_, 1, 4);
  tile_rows_ = TileRowsFor(window_.out[last() - 1], most);
  tile_vectors_ = std::max<int64_t>(1, most / tile_rows_);
}

std::string GroupedConv::Refusal() {
  if (std::string why = AnchorRefusal(); !why.empty()) return why;
  if (std::string why = ShapeRefusal(); !why.empty()) return why;
  if (std::string why = AfterRefusal(); !why.empty()) return why;
  PickTile();
  WindowReader::Options options{.element = element_,
                                .lanes = lanes_,
                                .planes = channels_,
                                .tile_rows = tile_rows_,
                                .cache_bytes = machine_.l1_bytes / 2,
                                .masks = machine_.vector_bytes >= 32};
  together_ = PlanesTogether(window_, options, groups_);
  options.planes *= together_;
  reader_.emplace(window_, options);
  return reader_->scratch_bytes() > kMostScratch ? "the planes are too large" : "";
}

// ---- writing ----

void GroupedConv::Write(Block* body) {
  lb_.emplace(body);
  after_->Open(*lb_, *body);
  const auto argument = [&](size_t i) {
    const Value v = i < anchor_->num_operands() ? anchor_->operand(i) : Value();
    return v ? body->argument(v.index()) : Value();
  };
  const std::vector<int64_t> matrix{filters_ * groups_, channels_ * taps()};
  weights_ = nn::ViewReshapeOp::Create(lb_->b(), argument(1), {.shape = matrix}).y();
  bias_ = argument(2);
  Value planes = ViewPlanes(*lb_, argument(0));
  if (!has_rows_) {
    const int64_t all = batch_.is_constant() ? batch_.value() * groups_ * channels_ : -1;
    const std::vector<int64_t> shape{all, 1, window_.in[1]};
    planes = nn::ViewReshapeOp::Create(lb_->b(), planes, {.shape = shape}).y();
  }
  const int64_t work = ProductOf(window_.out) * taps() * channels_ * filters_ * together_;
  const auto groups = [&](Value n, Value block, Value number) {
    reader_->Allocate(*lb_, planes);
    const Value first = lb_->Index(LoopBuilder::D0() * (channels_ * together_), number);
    if (together_ == 1) return WriteGroup(n, block, first);
    reader_->Open(first, lb_->Int(0));
    lb_->For(together_, false, [&](Value i) {
      const Value both[] = {block, i};
      reader_->Select(lb_->Index(LoopBuilder::D0() * channels_, i));
      WriteGroup(n, lb_->Index(LoopBuilder::D0() * together_ + LoopBuilder::D1(), both), {});
    });
  };
  ForPlanes(*lb_, batch_, groups_ / together_, work / 4, groups);
  after_->Close(*lb_);
}

// `plane`: the first of the group's, if they are to be brought in.
void GroupedConv::WriteGroup(Value n, Value g, Value plane) {
  n_ = n;
  g_ = g;
  std::vector<Value> held;
  held_.clear();
  const Filters all{lb_->Int(0), filters_};
  for (int64_t k = 0; k < taps() && holds_weights(); ++k) {
    held.push_back(Weight(all, 0, lb_->Int(0), k));
  }
  held_ = std::move(held);
  const auto open = [&](Value band) {
    if (plane) reader_->Open(plane, band);
  };
  const auto tile = [&](const Tile& t) {
    const int64_t full = filters_ / tile_filters_;
    lb_->For(full, false, [&](Value i) {
      WriteTile(t, {lb_->Index(LoopBuilder::D0() * tile_filters_, i), tile_filters_});
    });
    const int64_t done = full * tile_filters_;
    if (done < filters_) WriteTile(t, {lb_->Int(done), filters_ - done});
  };
  WindowTiles(window_, lanes_, tile_rows_, tile_vectors_).Write(*lb_, *reader_, open, tile);
}

// The number of a filter among all.
Value GroupedConv::Filter(const Filters& filters, int64_t filter) {
  const Value both[] = {g_, filters.first};
  return lb_->Index(LoopBuilder::D0() * filters_ + LoopBuilder::D1() + filter, both);
}

Value GroupedConv::Weight(const Filters& filters, int64_t filter, Value channel, int64_t tap) {
  if (!held_.empty()) return held_[static_cast<size_t>(tap)];
  const Value at[] = {Filter(filters, filter),
                      lb_->Index(LoopBuilder::D0() * taps() + tap, channel)};
  return lb_->Load(weights_, at);
}

// Sums: filter by filter, row by row, vector by vector.
std::vector<Value> GroupedConv::Start(const Tile& tile, const Filters& filters) {
  std::vector<Value> sums;
  for (int64_t f = 0; f < filters.count; ++f) {
    Value start = lb_->Splat(element_, 0, lanes_);
    if (bias_) {
      const Value at = Filter(filters, f);
      start = lb_->Widen(lb_->Load(bias_, {&at, 1}), lanes_);
    }
    sums.insert(sums.end(), static_cast<size_t>(tile.rows) * tile.vectors.size(), start);
  }
  return sums;
}

void GroupedConv::WriteTile(const Tile& tile, const Filters& filters) {
  std::vector<Value> sums = Start(tile, filters);
  sums = lb_->For(channels_, sums, [&](Value channel, std::span<const Value> carried) {
    std::vector<Value> next(carried.begin(), carried.end());
    AddChannel(tile, filters, channel, next);
    return next;
  });
  Finish(tile, filters, sums);
}

// Column by column of the kernel (kKernelRows), and row by row of the input that the tile sees.
void GroupedConv::AddChannel(const Tile& tile, const Filters& filters, Value channel,
                             std::vector<Value>& sums) {
  Tile here = tile;
  if (channels_ > 1) here.place = reader_->OfPlane(tile.place, channel);
  const size_t axis = last() - 1;
  const int64_t reach = (tile.rows - 1) * window_.strides[axis] +
                        (window_.kernel[axis] - 1) * window_.dilations[axis];
  std::vector<int64_t> offsets(last(), 0);
  int64_t outer = 1;
  for (size_t a = 0; a < axis; ++a) outer *= window_.kernel[a];
  for (int64_t k = 0; k < outer; ++k) {
    int64_t rest = k;
    for (size_t a = axis; a-- > 0; rest /= window_.kernel[a]) {
      offsets[a] = rest % window_.kernel[a] * window_.dilations[a];
    }
    const int64_t tap = k * window_.kernel[axis] * window_.kernel[last()];
    for (int64_t column = 0; column < window_.kernel[last()]; ++column) {
      for (int64_t q = 0; q <= reach; ++q) {
        offsets[axis] = q;
        AddRow(here, filters, channel, offsets, tap, column, sums);
      }
    }
  }
}

// `tap`: the number of the kernel's first element that the axes before the rows leave.
void GroupedConv::AddRow(const Tile& tile, const Filters& filters, Value channel,
                         std::span<const int64_t> offsets, int64_t tap, int64_t column,
                         std::vector<Value>& sums) {
  const size_t axis = last() - 1;
  const int64_t stride = window_.strides[axis], dilation = window_.dilations[axis];
  const auto vectors = static_cast<int64_t>(tile.vectors.size());
  std::vector<Value> read(tile.vectors.size());
  for (int64_t r = 0; r < tile.rows; ++r) {
    const int64_t rest = offsets[axis] - r * stride;
    if (rest < 0 || rest % dilation != 0 || rest / dilation >= window_.kernel[axis]) continue;
    for (int64_t f = 0; f < filters.count; ++f) {
      const int64_t place = tap + rest / dilation * window_.kernel[last()] + column;
      const Value weight = Weight(filters, f, channel, place);
      for (int64_t v = 0; v < vectors; ++v) {
        Value& x = read[static_cast<size_t>(v)];
        if (!x) {
          x = reader_->Load(tile.place, offsets, column, tile.vectors[static_cast<size_t>(v)]);
        }
        Value& sum = sums[static_cast<size_t>((f * tile.rows + r) * vectors + v)];
        sum = MulAdd(*lb_, machine_, x, weight, sum);
      }
    }
  }
}

void GroupedConv::Finish(const Tile& tile, const Filters& filters, std::span<const Value> sums) {
  size_t next = 0;
  for (int64_t f = 0; f < filters.count; ++f) {
    for (int64_t r = 0; r < tile.rows; ++r) {
      for (const OutputVector vector : tile.vectors) {
        std::vector<Value> at{n_, Filter(filters, f)};
        for (size_t a = has_rows_ ? 0 : 1; a < window_.rank(); ++a) {
          const int64_t offset = a == last() ? vector.offset : a + 1 == last() ? r : 0;
          at.push_back(lb_->Index(LoopBuilder::D0() + offset, tile.outputs[a]));
        }
        after_->Store(*lb_, at, lanes_, vector.live < lanes_ ? lb_->Int(vector.live) : Value(),
                      sums[next++]);
      }
    }
  }
}

}  // namespace

bool LowerConvDepthwise(Lowering& l) {
  GroupedConv conv(l);
  l.why = conv.Refusal();
  if (!l.why.empty()) return false;
  conv.Write(l.body);
  return true;
}

}  // namespace lathe::lower
