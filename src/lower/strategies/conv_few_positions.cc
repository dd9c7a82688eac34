#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/divide.h"
#include "lathe/support/text.h"
#include "src/dialect/nn/window.h"
#include "src/lower/anchor.h"
#include "src/lower/compute/elements.h"
#include "src/lower/index_math.h"
#include "src/lower/pointwise.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/list.h"
#include "src/lower/windows.h"

// A convolution whose kernel is about as large as the picture, so that there are few positions: the
// gradient of the filters of another convolution. Filters are in the lanes of vectors, positions of
// some images in the rows of a tile, which sums over the places of the kernel. A block of places is
// packed, filters side by side, and multiplied by image after image, each of which was copied with
// the padding around it; the sums go to memory and back between blocks. How work is shared out
// changes no bit.
namespace lathe::lower {
namespace {

constexpr int64_t kMostPositions = 64;
constexpr int64_t kFewPlaces = 16;     // for which there are other ways
constexpr int64_t kBlockPlaces = 512;  // of the kernel
constexpr int64_t kMostSumBytes = 64 << 10;
constexpr int64_t kMostRows = 14;        // of a tile
constexpr size_t kRow = 0, kColumn = 1;  // axes of the window

class ConvFewPositions {
 public:
  explicit ConvFewPositions(Lowering& lowering) : l_(lowering) {}

  std::string Refusal();
  void Write();

 private:
  // A row of a tile: an image of those that are copied together, and a position.
  struct TileRow {
    int64_t image, row, column;
  };
  // Channels and rows of the kernel that are multiplied at once.
  struct Block {
    Dim channel, channels, row, rows;
  };

  std::string AnchorRefusal();
  void Plan();
  void WriteItem(const Dim& item);
  void WriteBlock(const Block& block, const Dim& first_group, const Dim& groups, const Dim& rest);
  void PackPanel(const Block& block);
  void WriteGroup(const Block& block, const Dim& group, int64_t images);
  void CopyImages(const Block& block, const Dim& group, int64_t images);
  void CopyRow(const Block& block, const Dim& image, const Dim& channel, const Dim& row,
               const Dim& to);
  void WriteTile(const Block& block, const Dim& first_sum, const std::vector<TileRow>& rows);
  void StoreImages(const Dim& first_group, const Dim& images);
  std::vector<Value> Sums(const Dim& extent, std::vector<Value> initial,
                          const LoopBuilder::CarryingBody& body);
  Value Memory(int64_t rows, int64_t columns);

  int64_t positions() const { return window_.out[kRow] * window_.out[kColumn]; }
  int64_t places() const { return window_.kernel[kRow] * window_.kernel[kColumn]; }
  int64_t width() const { return vectors_ * lanes_; }
  int64_t Reach(int64_t rows) const {  // of the input, that so many rows of the kernel see
    return (rows - 1) * window_.dilations[kRow] + (window_.out[kRow] - 1) * window_.strides[kRow] +
           1;
  }
  LoopBuilder& lb() { return *lb_; }
  IndexMath& math() { return *math_; }

  Lowering& l_;
  const Operation* anchor_ = nullptr;
  std::optional<Pointwise> after_;
  nn::Window window_;
  ElementType element_ = ElementType::kUndefined;
  int64_t images_ = 0, filters_ = 0;
  Dim channels_;

  int64_t lanes_ = 1, vectors_ = 1;
  int64_t group_ = 1;                            // images that are copied together
  int64_t item_groups_ = 1;                      // of an item
  int64_t block_rows_ = 1, block_channels_ = 1;  // of the kernel
  int64_t panel_pitch_ = 1, pitch_ = 1;          // places of a channel; elements of a copied row

  // While writing.
  std::optional<LoopBuilder> lb_;
  std::optional<IndexMath> math_;
  Value input_, weights_;
  Value sums_, panel_, copied_;
  Dim first_filter_;
};

std::string ConvFewPositions::AnchorRefusal() {
  const auto is_one = [](const Operation& op) { return op.isa<nn::ConvOp>(); };
  if (std::string why = FindAnchor(l_.function, "convolution", is_one, anchor_); !why.empty()) {
    return why;
  }
  const nn::ConvOp conv(anchor_);
  if (!ReadsArguments(*anchor_)) return "what it reads is computed in the same function";
  if (conv.b()) return "there is a bias";
  if (conv.group() != 1 || conv.layout().value_or("NCHW") != "NCHW") return "of groups";
  if (l_.IsConstant(conv.w())) return "the weights are constant";
  const auto x = TensorOf(conv.x()), w = TensorOf(conv.w());
  element_ = x.element();
  if (element_ != ElementType::kF32 && element_ != ElementType::kF64) {
    return StrCat("elements are ", Name(element_));
  }
  if (!x.has_rank() || x.rank() != 4) return "there are not two spatial axes";
  std::vector<int64_t> in, kernel;
  for (const size_t a : {2, 3}) {
    if (!x.dims()[a].is_constant() || !w.dims()[a].is_constant()) return "an extent is symbolic";
    in.push_back(x.dims()[a].value());
    kernel.push_back(w.dims()[a].value());
  }
  if (!x.dims()[0].is_constant() || !w.dims()[0].is_constant()) return "an extent is symbolic";
  window_ = nn::ResolveWindow(nn::WindowOf(conv), in, kernel);
  images_ = x.dims()[0].value();
  filters_ = w.dims()[0].value();
  channels_ = x.dims()[1];
  if (channels_.is_unknown()) return "an extent is unknown";
  return "";
}

std::string ConvFewPositions::Refusal() {
  if (std::string why = AnchorRefusal(); !why.empty()) return why;
  if (images_ * filters_ * positions() * places() == 0) return "there is nothing to compute";
  if (positions() > kMostPositions) return "there are many positions";
  if (places() < kFewPlaces || places() < positions()) return "the kernel is small";
  after_.emplace(l_.function, anchor_, l_.machine);
  if (std::string why = after_->Refusal(); !why.empty()) return why;
  if (!std::ranges::equal(TensorOf(anchor_->result(0)).dims(), after_->dims())) {
    return "the result is broadcast further";
  }
  if (!after_->SetGroups({{0}, {1}, {2, 3}})) return "the positions cannot be iterated as one";
  Plan();
  return "";
}

void ConvFewPositions::Plan() {
  lanes_ = l_.machine.lanes(element_);
  const int64_t registers = l_.machine.vector_registers - 2;
  const int64_t all = CeilDiv(filters_, lanes_);
  const int64_t rows = std::min(positions() * images_, kMostRows);
  const auto fits = [&](int64_t v) { return v * (std::min<int64_t>(rows, 9) + 1) <= registers; };
  for (int64_t v = 2; v <= std::min<int64_t>(all, 4); ++v) {
    if (fits(v) && (all % v == 0 || v == 2)) vectors_ = v;
  }
  const int64_t most_rows = std::clamp<int64_t>(registers / vectors_ - 1, 1, kMostRows);
  group_ = std::clamp<int64_t>(most_rows / positions(), 1, images_);
  const int64_t sum_bytes = group_ * positions() * width() * BitWidth(element_) / 8;
  const int64_t groups = std::max<int64_t>(images_ / group_, 1);
  const int64_t items = CeilDiv(groups, std::max<int64_t>(kMostSumBytes / sum_bytes, 1));
  item_groups_ = CeilDiv(groups, items);
  const int64_t kernel_rows = window_.kernel[kRow];
  const int64_t most = std::clamp<int64_t>(kBlockPlaces / window_.kernel[kColumn], 1, kernel_rows);
  block_rows_ = CeilDiv(kernel_rows, CeilDiv(kernel_rows, most));
  block_channels_ = block_rows_ < kernel_rows ? 1 : std::max<int64_t>(kBlockPlaces / places(), 1);
  if (channels_.is_constant()) {
    const int64_t channels = std::max<int64_t>(channels_.value(), 1);
    block_channels_ = CeilDiv(channels, CeilDiv(channels, block_channels_));
  }
  panel_pitch_ = RoundUp(block_rows_ * window_.kernel[kColumn], lanes_);
  const int64_t seen = (window_.kernel[kColumn] - 1) * window_.dilations[kColumn] +
                       (window_.out[kColumn] - 1) * window_.strides[kColumn] + 1;
  pitch_ = RoundUp(std::max(seen, window_.begins[kColumn] + window_.in[kColumn]), lanes_) + lanes_;
}

// ---- writing ----

Value ConvFewPositions::Memory(int64_t rows, int64_t columns) {
  return lb().Alloc(
      VTensorType::Get(lb().context(), SymShape({Dim(rows), Dim(columns)}), element_));
}

void ConvFewPositions::Write() {
  lb_.emplace(l_.body);
  math_.emplace(lb());
  after_->Open(lb(), *l_.body);
  input_ = l_.body->argument(anchor_->operand(0).index());
  weights_ = nn::ViewReshapeOp::Create(lb().b(), l_.body->argument(anchor_->operand(1).index()),
                                       {.shape = {filters_, -1, places()}})
                 .y();
  channels_ = math().Extent(channels_);
  const int64_t blocks = CeilDiv(filters_, width());
  const int64_t parts = CeilDiv(std::max<int64_t>(images_ / group_, 1), item_groups_);
  math().For(blocks * parts, true, [&](const Dim& item) { WriteItem(item); });
  after_->Close(lb());
}

void ConvFewPositions::WriteItem(const Dim& item) {
  const int64_t groups = images_ / group_, rest = images_ % group_;
  const int64_t parts = CeilDiv(std::max<int64_t>(groups, 1), item_groups_);
  const Dim part = math().Name(Mod(item, parts));
  first_filter_ = math().Name(FloorDiv(item, parts) * width());
  const Dim first = math().Name(part * item_groups_);
  const Dim own = math().Name(Min(Dim(groups) - first, item_groups_));
  const Dim is_last = rest == 0 ? Dim(0) : math().Name(FloorDiv(part + 1, parts));
  const int64_t images = (item_groups_ + (rest > 0)) * group_;
  sums_ = Memory(images * positions(), width());
  panel_ = Memory(block_channels_ * panel_pitch_, width());
  copied_ = Memory(group_ * block_channels_ * Reach(block_rows_), pitch_);
  math().For(images * positions(), false, [&](const Dim& row) {
    for (int64_t v = 0; v < vectors_; ++v) {
      lb().Store(sums_, lb().Splat(element_, 0, lanes_), math().At({row, Dim(v * lanes_)}));
    }
  });
  const int64_t rows = window_.kernel[kRow];
  math().For(CeilDiv(channels_, block_channels_), false, [&](const Dim& c) {
    const Dim channel = math().Name(c * block_channels_);
    const Dim channels = math().Name(Min(channels_ - channel, block_channels_));
    math().For(CeilDiv(rows, block_rows_), false, [&](const Dim& r) {
      const Dim row = math().Name(r * block_rows_);
      const Dim count = math().Name(Min(Dim(rows) - row, block_rows_));
      WriteBlock({channel, channels, row, count}, first, own, is_last);
    });
  });
  StoreImages(first, math().Name(own * group_ + is_last * rest));
}

void ConvFewPositions::WriteBlock(const Block& block, const Dim& first_group, const Dim& groups,
                                  const Dim& rest) {
  PackPanel(block);
  const auto write = [&](const Dim& group, int64_t images) {
    CopyImages(block, math().Name((first_group + group) * group_), images);
    WriteGroup(block, group, images);
  };
  math().For(groups, false, [&](const Dim& group) { write(group, group_); });
  math().For(rest, false, [&](const Dim&) { write(groups, images_ % group_); });
}

// Square tiles of the weights are transposed in registers. What lies behind the last filter is a
// copy of that filter; nobody reads it.
void ConvFewPositions::PackPanel(const Block& block) {
  const int64_t columns = window_.kernel[kColumn];
  math().For(block.channels, false, [&](const Dim& c) {
    const Dim count = block.rows * columns;
    math().For(CeilDiv(count, lanes_), false, [&](const Dim& i) {
      const Dim place = math().Name(i * lanes_);
      const Value live = math().At(Min(count - place, lanes_));
      for (int64_t v = 0; v < vectors_; ++v) {
        std::vector<Value> filters;
        for (int64_t f = 0; f < lanes_; ++f) {
          const Dim filter = Min(first_filter_ + (v * lanes_ + f), filters_ - 1);
          filters.push_back(lb().Load(
              weights_, math().At({filter, block.channel + c, block.row * columns + place}), lanes_,
              live));
        }
        const std::vector<Value> turned = lb().Transpose(filters);
        for (int64_t k = 0; k < lanes_; ++k) {
          lb().Store(panel_, turned[static_cast<size_t>(k)],
                     math().At({c * panel_pitch_ + place + k, Dim(v * lanes_)}));
        }
      }
    });
  });
}

void ConvFewPositions::CopyImages(const Block& block, const Dim& group, int64_t images) {
  const int64_t reach = Reach(block_rows_);
  const Dim rows = math().Name((block.rows - 1) * window_.dilations[kRow] + Reach(1));
  math().For(images, false, [&](const Dim& image) {
    math().For(block.channels, false, [&](const Dim& c) {
      math().For(rows, false, [&](const Dim& r) {
        CopyRow(block, math().Name(group + image), math().Name(block.channel + c), r,
                math().Name((image * block_channels_ + c) * reach + r));
      });
    });
  });
}

void ConvFewPositions::CopyRow(const Block& block, const Dim& image, const Dim& channel,
                               const Dim& row, const Dim& to) {
  const int64_t before = window_.begins[kRow], in = window_.in[kRow];
  const Dim padded = math().Name(block.row * window_.dilations[kRow] + row);
  const Dim inside = math().Name(Max(Min(padded - (before - 1), 1), 0) *
                                 Max(Min(Dim(in + before) - padded, 1), 0));
  const Value zeros = lb().Splat(element_, 0, lanes_);
  math().For(inside, false, [&](const Dim&) {
    const PaddedRow wanted{
        .front = window_.begins[kColumn], .count = window_.in[kColumn], .columns = pitch_ - lanes_};
    const std::vector<Value> from =
        math().At({image, channel, Min(Max(padded - before, 0), in - 1)});
    CopyPaddedRow(lb(), wanted, input_, from, copied_, math().At(to), zeros);
  });
  math().For(Dim(1) - inside, false, [&](const Dim&) {
    math().For(pitch_ / lanes_, false,
               [&](const Dim& i) { lb().Store(copied_, zeros, math().At({to, i * lanes_})); });
  });
}

// All positions of the images, a tile of them at a time.
void ConvFewPositions::WriteGroup(const Block& block, const Dim& group, int64_t images) {
  std::vector<TileRow> all;
  for (int64_t i = 0; i < images; ++i) {
    for (int64_t p = 0; p < positions(); ++p) {
      all.push_back({i, p / window_.out[kColumn], p % window_.out[kColumn]});
    }
  }
  const int64_t registers = l_.machine.vector_registers - 2;
  const int64_t most = std::clamp<int64_t>(registers / vectors_ - 1, 1, kMostRows);
  const auto count = static_cast<int64_t>(all.size());
  const int64_t tiles = CeilDiv(count, most), each = CeilDiv(count, tiles);
  for (int64_t first = 0; first < count; first += each) {
    const int64_t end = std::min(first + each, count);
    WriteTile(block, group * (group_ * positions()) + first,
              {all.begin() + first, all.begin() + end});
  }
}

std::vector<Value> ConvFewPositions::Sums(const Dim& extent, std::vector<Value> initial,
                                          const LoopBuilder::CarryingBody& body) {
  if (extent.is_constant()) return lb().For(extent, initial, body);
  return lb().For(math().At(extent), initial, body);
}

void ConvFewPositions::WriteTile(const Block& block, const Dim& first_sum,
                                 const std::vector<TileRow>& rows) {
  const auto sum_at = [&](size_t r, int64_t v) {
    return math().At({first_sum + static_cast<int64_t>(r), Dim(v * lanes_)});
  };
  const auto step = [&](const Dim& c, const Dim& row, const Dim& column,
                        std::span<const Value> sums) {
    std::vector<Value> filters, next;
    const Dim place = c * panel_pitch_ + row * window_.kernel[kColumn] + column;
    for (int64_t v = 0; v < vectors_; ++v) {
      filters.push_back(lb().Load(panel_, math().At({place, Dim(v * lanes_)}), lanes_));
    }
    for (const TileRow& at : rows) {
      const Dim line = (c + at.image * block_channels_) * Reach(block_rows_) +
                       row * window_.dilations[kRow] + at.row * window_.strides[kRow];
      const Dim x = column * window_.dilations[kColumn] + at.column * window_.strides[kColumn];
      const Value scalar = lb().Load(copied_, math().At({line, x}));
      for (const Value filter : filters) {
        next.push_back(MulAdd(lb(), l_.machine, scalar, filter, sums[next.size()]));
      }
    }
    return next;
  };
  std::vector<Value> sums;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (int64_t v = 0; v < vectors_; ++v) sums.push_back(lb().Load(sums_, sum_at(r, v), lanes_));
  }
  sums = Sums(block.channels, sums, [&](Value c, std::span<const Value> by_channel) {
    const std::vector<Value> before(by_channel.begin(), by_channel.end());
    return Sums(block.rows, before, [&](Value row, std::span<const Value> by_row) {
      const std::vector<Value> start(by_row.begin(), by_row.end());
      return Sums(window_.kernel[kColumn], start, [&](Value column, std::span<const Value> now) {
        return step(math().Of(c), math().Of(row), math().Of(column), now);
      });
    });
  });
  for (size_t r = 0; r < rows.size(); ++r) {
    for (int64_t v = 0; v < vectors_; ++v) {
      lb().Store(sums_, sums[r * static_cast<size_t>(vectors_) + static_cast<size_t>(v)],
                 sum_at(r, v));
    }
  }
}

// The sums of a filter as neighbors.
void ConvFewPositions::StoreImages(const Dim& first_group, const Dim& images) {
  const Dim filters = math().Name(Min(Dim(filters_) - first_filter_, width()));
  math().For(images, false, [&](const Dim& image) {
    math().For(filters, false, [&](const Dim& filter) {
      for (int64_t p = 0; p < positions(); p += lanes_) {
        const int64_t count = std::min(positions() - p, lanes_);
        const Value live = count < lanes_ ? lb().Int(count) : Value();
        const Value sums =
            lb().LoadApart(sums_, math().At({image * positions() + p, filter}), lanes_, 0, 1, live);
        after_->Store(lb(),
                      math().At({first_group * group_ + image, first_filter_ + filter, Dim(p)}),
                      lanes_, live, sums);
      }
    });
  });
}

}  // namespace

bool LowerConvFewPositions(Lowering& l) { return WriteUnlessRefused<ConvFewPositions>(l); }

}  // namespace lathe::lower
