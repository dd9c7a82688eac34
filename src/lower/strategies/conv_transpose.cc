#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/divide.h"
#include "lathe/support/text.h"
#include "src/dialect/nn/convolution.h"
#include "src/lower/anchor.h"
#include "src/lower/index_math.h"
#include "src/lower/pointwise.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/list.h"
#include "src/lower/strategies/phase_rows.h"
#include "src/lower/windows.h"

// Transposed convolutions. Outputs that are a stride apart along each axis, a phase, are those of a
// convolution of stride 1 by every stride-th element of the kernel. Of a block of positions all
// channels are copied, row after row with padding between them, so that vectors go on across the
// ends of rows and images; sums of a phase stay in registers, and phases take turns in what is
// stored. Sizes are known, or found when the program runs, and change no bit.
namespace lathe::lower {
namespace {

constexpr int64_t kMostColumns = 128;       // of a block
constexpr int64_t kMostCopied = 1 << 18;    // bytes of input
constexpr int64_t kMostSums = 1 << 17;      // bytes of finished sums
constexpr int64_t kMostCells = 1024;        // positions of a block, padding included
constexpr int64_t kCellsOfImages = 256;     // that images share a block for
constexpr int64_t kMostStep = 1 << 16;      // stride, dilation or padding
constexpr int64_t kParallelWork = 1 << 17;  // multiplications that are worth threads
constexpr int64_t kFewTaps = 4;             // along the columns, that are written one by one
constexpr int64_t kFewOfAll = 8;            // the same, of all phases, one by one as well

class TransposedConv {
 public:
  explicit TransposedConv(Lowering& l) : l_(l), machine_(l.machine) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  // Output o takes kernel element k from input (o + begin - k * dilation) / stride, where that is
  // whole. Output number q of phase p is p + q * stride.
  struct Axis {
    int64_t kernel = 1, stride = 1, dilation = 1, begin = 0;
    int64_t front = 0, behind = 0;  // inputs that output q reads: q - front to q + behind

    int64_t common() const { return std::gcd(stride, dilation); }
    int64_t period() const { return stride / common(); }  // of elements that reach a phase
    int64_t step() const { return dilation / common(); }  // of the inputs for them
    int64_t most_taps() const { return CeilDiv(kernel, period()); }
    int64_t halo() const { return front + behind; }
    /// Whether all phases have equally many taps.
    bool is_uniform() const { return common() == 1 && kernel % period() == 0; }
    void FindReach();
  };
  // Elements of the kernel that reach some outputs: first + i * period for i from `begin` to `end`;
  // output q takes input q + reach - front - i * step.
  struct Taps {
    Dim first, begin, end, reach;
  };
  // The filters that a tile computes: `count` from number `first` of the group on.
  struct Filters {
    Dim tile, first;
    int64_t count;
  };
  // What a block computes along an axis: `count` outputs of each phase from number `first` on.
  struct Range {
    Dim first, count;
  };
  // An element of the kernel, and the cell of what is copied that the outputs begin at.
  struct Place {
    Dim tap, from;
  };

  std::string AnchorRefusal();
  std::string ShapeRefusal();
  std::string AfterRefusal();
  bool FitsScratch();
  size_t last() const { return axes_.size() - 1; }
  const Axis& rows() const { return axes_[last() - 1]; }
  const Axis& columns() const { return axes_[last()]; }
  int64_t taps() const { return ProductOf(kernel_); }
  bool WritesPhasesApart() const {
    return !columns().is_uniform() && columns().stride * columns().most_taps() <= kFewOfAll;
  }
  bool WritesTapsApart() const {
    return WritesPhasesApart() || (columns().is_uniform() && columns().most_taps() <= kFewTaps);
  }
  int64_t PhasesTogether(int64_t most) const;
  int64_t MostSlots() const;
  PhaseRows::Sizes SumSizes() const {
    return {element_, tile_filters_, columns().stride, RoundUp(most_cells_, lanes_), lanes_};
  }

  void Bind();
  void Divide();
  Dim IsNarrow(const Dim& height, const Dim& width) const;
  void LoadWeights(Value weights);
  Taps TapsOf(const Axis& axis, const Dim& phase);
  Taps Inside(Taps taps, const Axis& axis, const Range& range, const Dim& extent);
  void WriteBlock(Dim number);
  void WriteChunk(const Dim& chunk);
  void CopyLeading(size_t axis, const Dim& slot, const Dim& input);
  void CopySlot(const Dim& slot, const Dim& input);
  void CopyRows(const Dim& to, const Dim& input, const Dim& channel, const Dim& copy,
                const Dim& image);
  void CopyRow(const std::vector<Dim>& from, const Dim& count, const std::vector<Dim>& to);
  void WriteZeros(const Dim& to, const Dim& from, const Dim& count);
  void WriteFilters(const Filters& filters);
  void WriteTiles(const Filters& filters, const Dim& row_phase, const Dim& phase);
  void WriteTile(const Filters& filters, const std::vector<Taps>& taps, const Dim& phase,
                 const Dim& position, int64_t vectors);
  std::vector<Value> SumTaps(size_t axis, const Filters& filters, const std::vector<Taps>& taps,
                             const Dim& slot, const Place& place, std::span<const Value> sums);
  std::vector<Value> SumChannels(const Filters& filters, const Dim& slot,
                                 const std::vector<Place>& places, std::span<const Value> sums);
  void FinishRows(const Filters& filters, const Dim& row_phase);
  void FinishRow(const Filters& filters, const Dim& filter, const Dim& image, const Dim& row,
                 const Dim& position);
  Value Memory(ElementType element, std::vector<Dim> shape);

  Lowering& l_;
  const Machine& machine_;
  const Operation* anchor_ = nullptr;
  std::optional<Pointwise> after_;
  std::vector<Axis> axes_;     // at least two: of one there are rows of one line
  std::vector<Dim> in_, out_;  // extents along them
  std::vector<int64_t> kernel_;
  Dim batch_;
  int64_t groups_ = 1, channels_ = 1, filters_ = 1;  // of one group
  ElementType element_ = ElementType::kUndefined;
  int64_t lanes_ = 1, tile_vectors_ = 1, tile_filters_ = 1, tile_phases_ = 1;
  int64_t most_columns_ = 1, most_cells_ = 1;

  // While writing; the sizes are the same in all blocks.
  std::optional<LoopBuilder> lb_;
  std::optional<IndexMath> math_;
  Value input_, weights_, bias_;
  bool packed_ = false;  // weights: [tiles of M, taps, C, M of a tile], else [C, M, taps]
  Dim column_blocks_, row_blocks_, image_blocks_, chunks_;
  Dim block_columns_, block_rows_, block_images_, chunk_tiles_;
  Dim pitch_, image_rows_;  // from row to row, and from image to image, of what is copied
  // Where columns are few, there is a copy for each tap that reaches another column, in which its
  // column is where the output's is, so that no padding is between rows; otherwise one.
  Dim is_narrow_, copies_, copy_cells_;
  // Of a block.
  Value copy_;  // [slots * C, cells]
  std::optional<PhaseRows> sums_;
  Dim group_;
  Range images_, row_range_, column_range_;
  std::vector<Dim> at_;        // outputs along the axes before the rows
  std::vector<Taps> leading_;  // and what reaches them
};

void TransposedConv::Axis::FindReach() {
  for (int64_t k = 0; k < kernel; ++k) {
    const int64_t place = begin - k * dilation;
    const int64_t phase = ((-place % stride) + stride) % stride;
    const int64_t shift = (phase + place) / stride;
    front = std::max(front, -shift);
    behind = std::max(behind, shift);
  }
}

std::string TransposedConv::AnchorRefusal() {
  const auto is_one = [](const Operation& op) { return op.isa<nn::ConvTransposeOp>(); };
  std::string why = FindAnchor(l_.function, "transposed convolution", is_one, anchor_);
  if (!why.empty() || ReadsArguments(*anchor_)) return why;
  return "an operand is computed in the same function";
}

std::string TransposedConv::ShapeRefusal() {
  const nn::ConvTransposeOp op(anchor_);
  const AnyTensorType x = TensorOf(op.x()), w = TensorOf(op.w()), y = TensorOf(op.y());
  element_ = x.element();
  if (element_ != ElementType::kF32 && element_ != ElementType::kF64) {
    return StrCat("elements are ", Name(element_));
  }
  if (!x.has_rank() || x.rank() < 3 || !w.is_static()) return "the weights are of symbolic shape";
  in_.assign(x.dims().begin() + 2, x.dims().end());
  out_.assign(y.dims().begin() + 2, y.dims().end());
  for (const Dim& dim : w.dims().subspan(2)) kernel_.push_back(dim.value());
  const nn::ConvTransposeSpec spec = nn::ConvTransposeSpecOf(op);
  const nn::WindowSteps steps = nn::CheckedSteps(spec.window, in_.size());
  std::vector<int64_t> begins = steps.begins;
  if (spec.output_shape || nn::IsSame(spec.window)) {
    const auto known = [](const Dim& dim) { return dim.is_constant(); };
    if (!std::ranges::all_of(in_, known)) return "the padding depends on the extents";
    Shape from{1, w.dims()[0].value()}, by, to;
    for (const Dim& dim : in_) from.push_back(dim.value());
    for (const Dim& dim : w.dims()) by.push_back(dim.value());
    for (const Dim& dim : out_) to.push_back(dim.value());
    begins = nn::TransposedBegins(spec, from, by, to);
  }
  for (size_t a = 0; a < in_.size(); ++a) {
    if (in_[a].is_unknown()) return "an extent is unknown";
    if (!in_[a].is_constant() && !(out_[a] - in_[a] * steps.strides[a]).is_constant()) {
      return "the result's extents are not those of the input, stretched";
    }
    if (std::max({steps.strides[a], steps.dilations[a], std::abs(begins[a])}) > kMostStep) {
      return "a stride, a dilation or the padding is large";
    }
    axes_.push_back({kernel_[a], steps.strides[a], steps.dilations[a], begins[a]});
    axes_.back().FindReach();
  }
  if (axes_.size() == 1) {
    axes_.insert(axes_.begin(), Axis());
    in_.insert(in_.begin(), 1);
    out_.insert(out_.begin(), 1);
  }
  batch_ = x.dims()[0];
  groups_ = op.group();
  channels_ = w.dims()[0].value() / groups_;
  filters_ = w.dims()[1].value();
  return channels_ * filters_ * taps() == 0 ? "there is nothing to compute" : "";
}

std::string TransposedConv::AfterRefusal() {
  after_.emplace(l_.function, anchor_, machine_);
  if (std::string why = after_->Refusal(); !why.empty()) return why;
  if (!std::ranges::equal(TensorOf(anchor_->result(0)).dims(), after_->dims())) {
    return "the result is broadcast further";
  }
  std::vector<std::vector<size_t>> axes;
  for (size_t a = 0; a < after_->dims().size(); ++a) axes.push_back({a});
  return after_->SetGroups(std::move(axes)) ? "" : "rows of the result are stored apart";
}

// Of the input along the axes before the rows, that reach an output.
int64_t TransposedConv::MostSlots() const {
  int64_t slots = 1;
  for (size_t a = 0; a + 1 < last(); ++a) slots *= axes_[a].most_taps();
  return slots;
}

// Neighboring phases that read the same inputs, which begin a new phase of the kernel where the
// padding, or the kernel, ends within a stride.
int64_t TransposedConv::PhasesTogether(int64_t most) const {
  const Axis& a = columns();
  if (a.dilation != 1 || WritesPhasesApart()) return 1;
  const int64_t common = std::gcd(std::gcd(a.stride, a.kernel), a.begin);
  for (int64_t phases = std::min(common, most); phases > 1; --phases) {
    if (common % phases == 0) return phases;
  }
  return 1;
}

bool TransposedConv::FitsScratch() {
  lanes_ = machine_.lanes(element_);
  const int64_t sums = machine_.vector_registers >= 32 ? 24 : 12;
  tile_filters_ = TileRowsFor(filters_, sums / 2);
  tile_phases_ = PhasesTogether(sums / 2 / tile_filters_);
  tile_vectors_ = std::min<int64_t>(sums / (tile_filters_ * tile_phases_), 8);
  const int64_t bytes = BitWidth(element_) / 8;
  most_cells_ = std::min({kMostCells, kMostCopied / (bytes * MostSlots() * channels_),
                          kMostSums / (bytes * tile_filters_ * columns().stride)});
  const int64_t fit = most_cells_ / (1 + rows().halo()) - columns().halo();
  most_columns_ = in_[last() - 1].IsConstant(1) ? fit : std::min(kMostColumns, fit);
  return most_columns_ > 0;
}

std::string TransposedConv::Refusal() {
  if (std::string why = AnchorRefusal(); !why.empty()) return why;
  if (std::string why = ShapeRefusal(); !why.empty()) return why;
  if (std::string why = AfterRefusal(); !why.empty()) return why;
  return FitsScratch() ? "" : "what reaches an output is too large";
}

// ---- writing ----

Value TransposedConv::Memory(ElementType element, std::vector<Dim> shape) {
  return lb_->Alloc(VTensorType::Get(lb_->context(), SymShape(std::move(shape)), element));
}

// Extents become names of what they are at run time.
void TransposedConv::Bind() {
  batch_ = math_->Extent(batch_);
  for (size_t a = 0; a < axes_.size(); ++a) {
    if (in_[a].is_constant()) continue;
    const Dim declared = out_[a], over = out_[a] - in_[a] * axes_[a].stride;
    in_[a] = math_->Extent(in_[a]);
    out_[a] = math_->Name(in_[a] * axes_[a].stride + over);
    if (!declared.is_constant()) lb_->Define(declared, math_->At(out_[a]));
  }
}

// Blocks of equal sizes. The padding behind a row, or an image, is that before the next one.
void TransposedConv::Divide() {
  const auto name = [&](const Dim& dim) { return math_->Name(dim); };
  const auto blocks = [&](const Dim& all, const Dim& most) {
    return name(Max(CeilDiv(all, most), 1));
  };
  const auto shared = [&](const Axis& axis, const Dim& outputs, const Dim& inputs,
                          const Dim& count) {
    const Dim is_whole = Max(2 - count, 0), fits = Max(Min(outputs - inputs + 1, 1), 0);
    return is_whole * fits * std::min(axis.front, axis.behind);
  };
  const Dim height = name(CeilDiv(out_[last() - 1], rows().stride));
  const Dim width = name(CeilDiv(out_[last()], columns().stride));
  is_narrow_ = name(IsNarrow(height, width));
  copies_ = name(1 + is_narrow_ * columns().halo());
  column_blocks_ = blocks(width, most_columns_);
  block_columns_ = name(CeilDiv(width, column_blocks_));
  const Dim between = columns().halo() - shared(columns(), width, in_[last()], column_blocks_);
  pitch_ = name(Max(block_columns_ + (1 - is_narrow_) * between, 1));
  const Dim most_rows = name(Max(FloorDiv(most_cells_, pitch_ * copies_) - rows().halo(), 1));
  row_blocks_ = blocks(height, most_rows);
  block_rows_ = name(CeilDiv(height, row_blocks_));
  image_rows_ =
      name(block_rows_ + rows().halo() - shared(rows(), height, in_[last() - 1], row_blocks_));
  const Dim fit = FloorDiv(std::min(kCellsOfImages, most_cells_),
                           Max((height + rows().halo()) * pitch_ * copies_, 1));
  const Dim most_images = name(Max(fit * Max(2 - row_blocks_, 0), 1));
  image_blocks_ = name(CeilDiv(batch_, most_images));
  block_images_ = name(Max(CeilDiv(batch_, Max(image_blocks_, 1)), 1));
  copy_cells_ =
      name((block_images_ - 1) * image_rows_ * pitch_ + (block_rows_ + rows().halo()) * pitch_);
}

// Whether an eighth of the vectors, or more, are there for the padding between rows, and what is
// copied instead fits.
Dim TransposedConv::IsNarrow(const Dim& height, const Dim& width) const {
  const auto is_positive = [](const Dim& dim) { return Max(Min(dim, 1), 0); };
  const int64_t padding = std::max(columns().front, columns().behind);
  if (padding == 0) return 0;
  const Dim padded = CeilDiv(height * (width + padding), lanes_);
  const Dim cells = (height + rows().halo()) * width * (columns().halo() + 1);
  return is_positive(7 * padded - 8 * CeilDiv(height * width, lanes_)) *
         is_positive(most_cells_ - cells + 1);
}

void TransposedConv::LoadWeights(Value weights) {
  packed_ = l_.IsConstant(anchor_->operand(1));
  const int64_t all = channels_ * groups_;
  if (!packed_) {
    const Shape shape{all, filters_, taps()};
    weights_ = nn::ViewReshapeOp::Create(lb_->b(), weights, {.shape = shape}).y();
    return;
  }
  const int64_t tiles = CeilDiv(filters_, tile_filters_);
  Shape whole{all, tiles * tile_filters_};
  whole.insert(whole.end(), kernel_.begin(), kernel_.end());
  weights_ = l_.Pack({.argument = anchor_->operand(1).index(),
                      .padded = whole,
                      .split = {all, tiles, tile_filters_, taps()},
                      .order = {1, 3, 0, 2}});
}

void TransposedConv::Write() {
  lb_.emplace(l_.body);
  math_.emplace(*lb_);
  Bind();
  after_->Open(*lb_, *l_.body);
  const auto argument = [&](size_t i) {
    const Value v = i < anchor_->num_operands() ? anchor_->operand(i) : Value();
    return v ? l_.body->argument(v.index()) : Value();
  };
  LoadWeights(argument(1));
  bias_ = argument(2);
  const auto spatial = static_cast<int64_t>(kernel_.size());
  input_ = lb_->Grouped(argument(0), std::vector<int64_t>{1, 1, spatial - 1, 1});
  Divide();
  Dim blocks = image_blocks_ * groups_ * row_blocks_ * column_blocks_;
  for (size_t a = 0; a + 1 < last(); ++a) blocks *= out_[a];
  const int64_t tiles = CeilDiv(filters_, tile_filters_);
  // Threads share the filters where there are few blocks.
  chunks_ =
      tiles == 1
          ? Dim(1)
          : math_->Name(Max(Min(CeilDiv(4 * math_->NumThreads() - 3, Max(blocks, 1)), tiles), 1));
  chunk_tiles_ = math_->Name(CeilDiv(tiles, chunks_));
  Dim work = batch_ * groups_ * channels_ * filters_ * taps();
  for (const Dim& extent : in_) work *= extent;
  const bool parallel = !work.is_constant() || work.value() > kParallelWork;
  math_->For(blocks * chunks_, parallel, [&](const Dim& number) { WriteBlock(number); });
  after_->Close(*lb_);
}

void TransposedConv::WriteBlock(Dim number) {
  const auto take = [&](const Dim& extent) {
    const Dim taken = math_->Name(Mod(number, extent));
    number = math_->Name(FloorDiv(number, extent));
    return taken;
  };
  const auto range = [&](const Dim& blocks, const Dim& count, const Dim& all) {
    const Dim first = math_->Name(take(blocks) * count);
    return Range{first, math_->Name(Max(Min(all - first, count), 0))};
  };
  column_range_ = range(column_blocks_, block_columns_, CeilDiv(out_[last()], columns().stride));
  row_range_ = range(row_blocks_, block_rows_, CeilDiv(out_[last() - 1], rows().stride));
  at_.assign(last() - 1, Dim());
  for (size_t a = last() - 1; a-- > 0;) at_[a] = take(out_[a]);
  images_ = range(image_blocks_, block_images_, batch_);
  group_ = groups_ == 1 ? Dim(0) : take(groups_);
  leading_.clear();
  for (size_t a = 0; a < at_.size(); ++a) {
    const Range one{math_->Name(FloorDiv(at_[a], axes_[a].stride)), 1};
    leading_.push_back(
        Inside(TapsOf(axes_[a], Mod(at_[a], axes_[a].stride)), axes_[a], one, in_[a]));
  }
  const int64_t cells = most_cells_ + 2 * columns().halo() + (tile_vectors_ + 1) * lanes_;
  // An odd number of vectors, so that channels do not share few sets of the cache.
  const int64_t pitch = (CeilDiv(cells, lanes_) | 1) * lanes_;
  copy_ = Memory(element_, {Dim(MostSlots() * channels_), Dim(pitch)});
  sums_.emplace(*lb_, SumSizes());
  CopyLeading(0, 0, 0);
  WriteChunk(chunks_.IsConstant(1) ? Dim(0) : number);
}

TransposedConv::Taps TransposedConv::TapsOf(const Axis& axis, const Dim& phase) {
  const int64_t period = axis.period();
  int64_t inverse = 0;  // of step, modulo period
  while (inverse < period && (inverse * axis.step()) % period != 1 % period) ++inverse;
  const int64_t lift = axis.begin < 0 ? RoundUp(-axis.begin, axis.stride) : 0;
  const Dim place = phase + axis.begin + lift;
  const Dim first = math_->Name(Mod(FloorDiv(place, axis.common()) * inverse, period));
  const Dim reaches = Max(1 - Mod(place, axis.common()), 0);
  const Dim count = math_->Name(reaches * CeilDiv(Max(axis.kernel - first, 0), period));
  const Dim ahead = phase + axis.begin + axis.front * axis.stride - first * axis.dilation;
  return {first, 0, count, math_->Name(FloorDiv(Max(ahead, 0), axis.stride))};
}

// Without those for which all of the outputs take padding.
TransposedConv::Taps TransposedConv::Inside(Taps taps, const Axis& axis, const Range& range,
                                            const Dim& extent) {
  const Dim from = range.first + taps.reach - axis.front;
  const Dim not_behind = CeilDiv(Max(from - extent + 1, 0), axis.step());
  const Dim not_before = FloorDiv(Max(from + range.count - 1 + axis.step(), 0), axis.step());
  taps.begin = math_->Name(not_behind);
  taps.end = math_->Name(Max(Min(taps.end, not_before), taps.begin));
  return taps;
}

// Copies what reaches the outputs, from each place along the axes before the rows.
void TransposedConv::CopyLeading(size_t axis, const Dim& slot, const Dim& input) {
  if (axis == leading_.size()) return CopySlot(slot, input);
  const Taps& taps = leading_[axis];
  const Axis& a = axes_[axis];
  math_->For(taps.end - taps.begin, false, [&](const Dim& i) {
    const Dim own = FloorDiv(at_[axis], a.stride);
    const Dim from = own + taps.reach - a.front - (taps.begin + i) * a.step();
    CopyLeading(axis + 1, math_->Name(slot * a.most_taps() + i),
                math_->Name(input * in_[axis] + Max(from, 0)));
  });
}

// Channels of some rows of some images, with zeros around them. All is written in order: zeros may
// reach a vector further.
void TransposedConv::CopySlot(const Dim& slot, const Dim& input) {
  math_->For(channels_, false, [&](const Dim& c) {
    const Dim to = math_->Name(slot * channels_ + c);
    math_->For(copies_, false, [&](const Dim& copy) {
      math_->For(block_images_, false,
                 [&](const Dim& image) { CopyRows(to, input, c, copy, image); });
    });
    WriteZeros(to, copies_ * copy_cells_, columns().halo() + tile_vectors_ * lanes_);
  });
}

void TransposedConv::CopyRows(const Dim& to, const Dim& input, const Dim& channel, const Dim& copy,
                              const Dim& image) {
  const Dim &top = row_range_.first, &left = column_range_.first, &height = in_[last() - 1];
  const Dim is_there = Max(Min(images_.count - image, 1), 0);
  const Dim above = math_->Name(Max(rows().front - top, 0));
  const Dim below = Min(row_range_.count + rows().halo(), height + rows().front - top);
  const Dim count = math_->Name(is_there * Max(below - above, 0));
  const Dim row = math_->Name(Max(top - rows().front, 0));
  const Dim before = math_->Name(Max(columns().front - copy - left, 0));
  const Dim width = column_range_.count + (1 - is_narrow_) * columns().halo();
  const Dim behind = Min(width, in_[last()] + columns().front - copy - left);
  const Dim column = math_->Name(Max(left + copy - columns().front, 0));
  const Dim length = math_->Name(Max(behind - before, 0));
  const Dim begin = math_->Name(copy * copy_cells_ + image * image_rows_ * pitch_);
  WriteZeros(to, begin, above * pitch_);
  math_->For(count, false, [&](const Dim& r) {
    const Dim cell = math_->Name(begin + (above + r) * pitch_);
    WriteZeros(to, cell, before);
    CopyRow({images_.first + image, group_ * channels_ + channel, input * height + row + r, column},
            length, {to, cell + before});
    WriteZeros(to, cell + before + length, pitch_ - before - length);
  });
  const Dim done = above + count;
  WriteZeros(to, begin + done * pitch_, (block_rows_ + rows().halo() - done) * pitch_);
}

void TransposedConv::WriteZeros(const Dim& to, const Dim& from, const Dim& count) {
  const Dim begin = math_->Name(from);
  math_->For(CeilDiv(count, lanes_), false, [&](const Dim& v) {
    lb_->Store(copy_, lb_->Splat(element_, 0, lanes_), math_->At({to, begin + v * lanes_}));
  });
}

void TransposedConv::CopyRow(const std::vector<Dim>& from, const Dim& count,
                             const std::vector<Dim>& to) {
  const auto copy = [&](const Dim& vector, Value live) {
    const Dim at = vector * lanes_;
    const Value values =
        lb_->Load(input_, math_->At({from[0], from[1], from[2], from[3] + at}), lanes_, live);
    lb_->Store(copy_, values, math_->At({to[0], to[1] + at}), live);
  };
  const Dim whole = math_->Name(FloorDiv(count, lanes_)), rest = math_->Name(Mod(count, lanes_));
  math_->For(whole, false, [&](const Dim& v) { copy(v, {}); });
  math_->For(Min(rest, 1), false, [&](const Dim&) { copy(whole, math_->At(rest)); });
}

void TransposedConv::WriteChunk(const Dim& chunk) {
  const int64_t full = filters_ / tile_filters_, rest = filters_ % tile_filters_;
  const Dim first = math_->Name(chunk * chunk_tiles_), end = first + chunk_tiles_;
  math_->For(Max(Min(end, full) - first, 0), false, [&](const Dim& i) {
    const Dim tile = math_->Name(first + i);
    WriteFilters({tile, math_->Name(tile * tile_filters_), tile_filters_});
  });
  if (rest == 0) return;
  math_->For(Max(Min(end - full, 1), 0), false,
             [&](const Dim&) { WriteFilters({full, full * tile_filters_, rest}); });
}

void TransposedConv::WriteFilters(const Filters& filters) {
  math_->For(rows().stride, false, [&](const Dim& row_phase) {
    if (WritesPhasesApart()) {
      for (int64_t p = 0; p < columns().stride; ++p) WriteTiles(filters, row_phase, p);
    } else {
      math_->For(columns().stride / tile_phases_, false, [&](const Dim& i) {
        WriteTiles(filters, row_phase, math_->Name(i * tile_phases_));
      });
    }
    FinishRows(filters, row_phase);
  });
}

// All positions of a phase, or of some from that one on. Those between rows are of no use, and not
// stored later.
void TransposedConv::WriteTiles(const Filters& filters, const Dim& row_phase, const Dim& phase) {
  std::vector<Taps> taps = leading_;
  taps.push_back(Inside(TapsOf(rows(), row_phase), rows(), row_range_, in_[last() - 1]));
  taps.push_back(TapsOf(columns(), phase));
  if (!WritesTapsApart()) {
    taps.back() = Inside(taps.back(), columns(), column_range_, in_[last()]);
  }
  const Dim rows_between = (block_images_ - 1) * image_rows_ + block_rows_ - 1;
  const Dim positions = rows_between * pitch_ + block_columns_;
  const Dim vectors = math_->Name(CeilDiv(positions, lanes_));
  const Dim wide = math_->Name(FloorDiv(vectors, tile_vectors_));
  const int64_t width = tile_vectors_ * lanes_;
  math_->For(wide, false, [&](const Dim& i) {
    WriteTile(filters, taps, phase, math_->Name(i * width), tile_vectors_);
  });
  const Dim rest = math_->Name(vectors - wide * tile_vectors_), from = math_->Name(wide * width);
  if (rest.is_constant()) {
    if (rest.value() > 0) WriteTile(filters, taps, phase, from, rest.value());
    return;
  }
  math_->For(rest, false, [&](const Dim& v) {
    WriteTile(filters, taps, phase, math_->Name(from + v * lanes_), 1);
  });
}

void TransposedConv::WriteTile(const Filters& filters, const std::vector<Taps>& taps,
                               const Dim& phase, const Dim& position, int64_t vectors) {
  const std::vector<Value> zeros(static_cast<size_t>(filters.count * tile_phases_ * vectors),
                                 lb_->Splat(element_, 0, lanes_));
  const std::vector<Value> sums = SumTaps(0, filters, taps, 0, {0, position}, zeros);
  for (int64_t i = 0; i < std::ssize(sums); ++i) {
    const int64_t row = i / vectors;
    sums_->Store(lb_->Int(row / tile_phases_), math_->At(phase + row % tile_phases_),
                 math_->At(position + i % vectors * lanes_), sums[static_cast<size_t>(i)]);
  }
}

// `place`: its tap counts the elements along the axes before.
std::vector<Value> TransposedConv::SumTaps(size_t axis, const Filters& filters,
                                           const std::vector<Taps>& taps, const Dim& slot,
                                           const Place& place, std::span<const Value> sums) {
  if (axis > last()) return SumChannels(filters, slot, {place}, sums);
  const Taps& own = taps[axis];
  const Axis& a = axes_[axis];
  const auto next = [&](const Dim& i) {
    const Dim number = own.begin + i;
    const Dim tap = math_->Name(place.tap * a.kernel + own.first + number * a.period());
    if (axis + 1 < last()) return Place{tap, place.from};
    const Dim cells = axis < last() ? pitch_ : 1 + is_narrow_ * (copy_cells_ - 1);
    return Place{tap, math_->Name(place.from + (own.reach - number * a.step()) * cells)};
  };
  if (axis == last() && WritesTapsApart()) {
    std::vector<Place> places;
    const int64_t count = WritesPhasesApart() ? own.end.value() : a.most_taps();
    for (int64_t i = 0; i < count; ++i) places.push_back(next(i));
    return SumChannels(filters, slot, places, sums);
  }
  return lb_->For(math_->At(own.end - own.begin), sums, [&](Value i, std::span<const Value> s) {
    const bool leads = axis + 1 < last();
    const Dim into = leads ? math_->Name(slot * a.most_taps() + math_->Of(i)) : slot;
    return SumTaps(axis + 1, filters, taps, into, next(math_->Of(i)), s);
  });
}

std::vector<Value> TransposedConv::SumChannels(const Filters& filters, const Dim& slot,
                                               const std::vector<Place>& places,
                                               std::span<const Value> sums) {
  const int64_t rows = filters.count * tile_phases_;
  const size_t vectors = sums.size() / static_cast<size_t>(rows);
  const auto add = [&](const Place& place, const Dim& channel, std::vector<Value>& next) {
    std::vector<Value> x;
    for (size_t v = 0; v < vectors; ++v) {
      const Dim cell = place.from + static_cast<int64_t>(v) * lanes_;
      x.push_back(lb_->Load(copy_, math_->At({slot * channels_ + channel, cell}), lanes_));
    }
    const Dim of_all = group_ * channels_ + channel;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t f = r / tile_phases_;
      const Dim tap = place.tap + r % tile_phases_;
      const Value weight =
          lb_->Load(weights_, packed_ ? math_->At({filters.tile, tap, of_all, Dim(f)})
                                      : math_->At({of_all, filters.first + f, tap}));
      for (size_t v = 0; v < vectors; ++v) {
        Value& sum = next[static_cast<size_t>(r) * vectors + v];
        sum = MulAdd(*lb_, machine_, x[v], weight, sum);
      }
    }
  };
  return lb_->For(channels_, sums, [&](Value channel, std::span<const Value> so_far) {
    std::vector<Value> next(so_far.begin(), so_far.end());
    for (const Place& place : places) add(place, math_->Of(channel), next);
    return next;
  });
}

// Stores the rows of a phase, all columns of which are there: the epilogue is computed along them.
void TransposedConv::FinishRows(const Filters& filters, const Dim& row_phase) {
  const Dim all = CeilDiv(Max(out_[last() - 1] - row_phase, 0), rows().stride);
  const Dim count = math_->Name(Max(Min(row_range_.count, all - row_range_.first), 0));
  math_->For(filters.count, false, [&](const Dim& filter) {
    math_->For(images_.count, false, [&](const Dim& image) {
      math_->For(count, false, [&](const Dim& r) {
        const Dim position = math_->Name((image * image_rows_ + r) * pitch_);
        const Dim row = math_->Name((row_range_.first + r) * rows().stride + row_phase);
        FinishRow(filters, filter, images_.first + image, row, position);
      });
    });
  });
}

void TransposedConv::FinishRow(const Filters& filters, const Dim& filter, const Dim& image,
                               const Dim& row, const Dim& position) {
  const int64_t stride = columns().stride, lanes = sums_->lanes();
  const Dim begin = column_range_.first * stride;
  const Dim count = math_->Name(Max(Min(out_[last()] - begin, column_range_.count * stride), 0));
  const Dim of_all = group_ * filters_ + filters.first + filter;
  const Value bias = bias_ ? lb_->Widen(lb_->Load(bias_, math_->At({of_all})), lanes) : Value();
  const auto finish = [&](const Dim& piece, Value live) {
    std::vector<Value> to = math_->At({image, of_all});
    for (const Dim& index : at_) to.push_back(math_->At(index));
    if (kernel_.size() > 1) to.push_back(math_->At(row));
    to.push_back(math_->At(begin + piece * lanes));
    Value values = sums_->Load(math_->At(filter), math_->At(position), math_->At(piece));
    if (bias_) values = nn::AddOp::Create(lb_->b(), values, bias).c();
    after_->Store(*lb_, to, lanes, live, values);
  };
  const Dim whole = math_->Name(FloorDiv(count, lanes)), rest = math_->Name(Mod(count, lanes));
  math_->For(whole, false, [&](const Dim& i) { finish(i, {}); });
  math_->For(Min(rest, 1), false, [&](const Dim&) { finish(whole, math_->At(rest)); });
}

}  // namespace

bool LowerConvTranspose(Lowering& l) { return WriteUnlessRefused<TransposedConv>(l); }

}  // namespace lathe::lower
