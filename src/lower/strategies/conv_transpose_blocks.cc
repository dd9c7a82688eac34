#include <algorithm>
#include <numeric>

#include "lathe/dialect/nn/conv.h"
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

// What conv_transpose does, where extents are known only when the program runs, or rows or kernels
// are too large for it: of an output row, a block of columns at a time. The rows of the input that
// reach it are listed, and the columns that reach the block copied with padding.
namespace lathe::lower {
namespace {

constexpr int64_t kMostTaps = 32;  // along the last axis, that are written one by one
constexpr int64_t kLeastSums = 8;  // that hide how long an addition takes

int64_t FloorOf(int64_t a, int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

class TransposedConvBlocks {
 public:
  explicit TransposedConvBlocks(Lowering& l) : l_(l), machine_(l.machine) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  // Outputs first, first + stride, ... of a block, which begins at a multiple of the stride.
  struct Phase {
    int64_t first = 0;
    std::vector<int64_t> taps;    // kernel elements that reach them
    std::vector<int64_t> shifts;  // per tap, the input's position for the first output
  };
  // The filters that a tile computes: `count` from number `first` of the group on.
  struct Filters {
    Dim first;
    int64_t count;
  };

  std::string AnchorRefusal();
  std::string ShapeRefusal();
  std::string AfterRefusal();
  void FindPhases();
  bool FitsScratch();
  size_t last() const { return in_.size() - 1; }
  int64_t taps() const { return ProductOf(kernel_); }
  int64_t stride() const { return strides_.back(); }
  bool HasLargeKernel() const { return kernel_.back() > kMostTaps; }
  int64_t width() const { return tile_vectors_ * lanes_; }  // of a block, per phase
  int64_t MostEntries() const;
  PhaseRows::Sizes OutputSizes() const {
    return {element_, tile_filters_, stride(), width(), lanes_};
  }

  void Bind();
  void WriteBlock(Dim number);
  Dim ListEntries(size_t axis, const Dim& tap, const Dim& input, const Dim& count);
  void WriteOutputs(const Dim& first);
  void CopyRows(const Dim& first);
  void CopyVector(const Dim& first, int64_t j, const std::vector<Value>& from, const Dim& to);
  void WriteFilters(const Filters& filters, const Dim& first);
  void WritePhase(const Phase& phase, const Filters& filters);
  void WritePhaseInLoops(const Dim& phase, const Filters& filters);
  std::vector<Value> Start(const Filters& filters);
  template <class Add>
  std::vector<Value> SumChannels(std::span<const Value> sums, const Add& add);
  void AddTap(const Filters& filters, const Dim& entry, const Dim& channel, const Dim& tap,
              const Dim& shift, std::vector<Value>& sums);
  void StoreSums(Value phase, const Filters& filters, std::span<const Value> sums);
  void FinishBlock(const Filters& filters, const Dim& first);
  Value Memory(ElementType element, std::vector<Dim> shape);

  Lowering& l_;
  const Machine& machine_;
  const Operation* anchor_ = nullptr;
  std::optional<Pointwise> after_;
  std::vector<Dim> in_, out_;
  std::vector<int64_t> kernel_, strides_, dilations_, begins_, over_;  // over: out beyond in
  Dim batch_, blocks_;                                                 // blocks: of a row
  int64_t groups_ = 1, channels_ = 1, filters_ = 1;                    // of one group
  ElementType element_ = ElementType::kUndefined;
  int64_t lanes_ = 1, tile_vectors_ = 1, tile_filters_ = 1;
  std::vector<Phase> phases_;
  int64_t front_ = 0, columns_ = 0;  // of copied rows

  // While writing.
  std::optional<LoopBuilder> lb_;
  std::optional<IndexMath> math_;
  Value input_, weights_, bias_;
  Value entry_taps_, entry_rows_;  // what reaches the row: lists
  Value copy_;                     // columns of the input
  std::optional<PhaseRows> outputs_;
  Dim image_, group_, entries_;
  std::vector<Dim> at_;  // of the row, along the axes before the last
};

std::string TransposedConvBlocks::AnchorRefusal() {
  const auto is_one = [](const Operation& op) { return op.isa<nn::ConvTransposeOp>(); };
  std::string why = FindAnchor(l_.function, "transposed convolution", is_one, anchor_);
  if (!why.empty() || ReadsArguments(*anchor_)) return why;
  return "an operand is computed in the same function";
}

std::string TransposedConvBlocks::ShapeRefusal() {
  const nn::ConvTransposeOp op(anchor_);
  const AnyTensorType x = TensorOf(op.x()), w = TensorOf(op.w()), y = TensorOf(op.y());
  element_ = x.element();
  if (element_ != ElementType::kF32 && element_ != ElementType::kF64) {
    return StrCat("elements are ", Name(element_));
  }
  if (!x.has_rank() || x.rank() < 3 || !w.is_static()) return "the weights are of symbolic shape";
  const nn::ConvTransposeSpec spec = nn::ConvTransposeSpecOf(op);
  if (spec.output_shape || nn::IsSame(spec.window)) return "the padding depends on the extents";
  in_.assign(x.dims().begin() + 2, x.dims().end());
  out_.assign(y.dims().begin() + 2, y.dims().end());
  for (const Dim& dim : w.dims().subspan(2)) kernel_.push_back(dim.value());
  const nn::WindowSteps steps = nn::CheckedSteps(spec.window, in_.size());
  strides_ = steps.strides;
  dilations_ = steps.dilations;
  begins_ = steps.begins;
  for (size_t a = 0; a < in_.size(); ++a) {
    if (in_[a].is_unknown()) return "an extent is unknown";
    const Dim over = out_[a] - in_[a] * strides_[a];
    if (!over.is_constant()) return "the result's extents are not those of the input, stretched";
    over_.push_back(over.value());
  }
  batch_ = x.dims()[0];
  groups_ = op.group();
  channels_ = w.dims()[0].value() / groups_;
  filters_ = w.dims()[1].value();
  if (channels_ * filters_ * taps() == 0) return "there is nothing to compute";
  return HasLargeKernel() && dilations_.back() > 1 ? "the kernel is large and dilated" : "";
}

std::string TransposedConvBlocks::AfterRefusal() {
  after_.emplace(l_.function, anchor_, machine_);
  if (std::string why = after_->Refusal(); !why.empty()) return why;
  if (!std::ranges::equal(TensorOf(anchor_->result(0)).dims(), after_->dims())) {
    return "the result is broadcast further";
  }
  std::vector<std::vector<size_t>> axes;
  for (size_t a = 0; a < after_->dims().size(); ++a) axes.push_back({a});
  return after_->SetGroups(std::move(axes)) ? "" : "rows of the result are stored apart";
}

// Output o takes kernel element k from input (o + begin - k * dilation) / stride, where that is
// whole.
void TransposedConvBlocks::FindPhases() {
  for (int64_t first = 0; first < stride(); ++first) {
    Phase phase{first, {}, {}};
    for (int64_t k = 0; k < kernel_.back(); ++k) {
      const int64_t place = first + begins_.back() - k * dilations_.back();
      const int64_t shift = FloorOf(place, stride());
      if (shift * stride() != place) continue;
      phase.taps.push_back(k);
      phase.shifts.push_back(shift);
      front_ = std::max(front_, -shift);
    }
    phases_.push_back(std::move(phase));
  }
}

int64_t TransposedConvBlocks::MostEntries() const {
  int64_t entries = 1;
  for (size_t a = 0; a < last(); ++a) {
    const int64_t period = strides_[a] / std::gcd(strides_[a], dilations_[a]);
    entries *= CeilDiv(kernel_[a], period);
  }
  return entries;
}

bool TransposedConvBlocks::FitsScratch() {
  lanes_ = machine_.lanes(element_);
  tile_vectors_ = 2;
  const int64_t room = (machine_.vector_registers - tile_vectors_ - 2) / tile_vectors_;
  tile_filters_ = TileRowsFor(filters_, std::clamp<int64_t>(room, 1, 8));
  while (HasLargeKernel() && tile_vectors_ * tile_filters_ < kLeastSums) tile_vectors_ *= 2;
  int64_t behind = 0;
  for (const Phase& phase : phases_) {
    for (const int64_t shift : phase.shifts) behind = std::max(behind, shift);
  }
  for (;; --tile_vectors_) {
    columns_ = RoundUp(front_ + behind + width(), lanes_);
    const int64_t elements = MostEntries() * channels_ * columns_;
    const int64_t bytes = elements * BitWidth(element_) / 8 + PhaseRows::Bytes(OutputSizes());
    if (bytes <= kMostScratch) return true;
    if (tile_vectors_ == 1) return false;
  }
}

std::string TransposedConvBlocks::Refusal() {
  if (std::string why = AnchorRefusal(); !why.empty()) return why;
  if (std::string why = ShapeRefusal(); !why.empty()) return why;
  if (std::string why = AfterRefusal(); !why.empty()) return why;
  FindPhases();
  return FitsScratch() ? "" : "the rows that reach an output are too large";
}

// ---- writing ----

Value TransposedConvBlocks::Memory(ElementType element, std::vector<Dim> shape) {
  return lb_->Alloc(VTensorType::Get(lb_->context(), SymShape(std::move(shape)), element));
}

// Extents become names of what they are at run time.
void TransposedConvBlocks::Bind() {
  batch_ = math_->Extent(batch_);
  for (size_t a = 0; a < in_.size(); ++a) {
    const Dim declared = out_[a];
    in_[a] = math_->Extent(in_[a]);
    out_[a] = math_->Name(in_[a] * strides_[a] + over_[a]);
    if (!declared.is_constant()) lb_->Define(declared, math_->At(out_[a]));
  }
}

void TransposedConvBlocks::Write() {
  lb_.emplace(l_.body);
  math_.emplace(*lb_);
  Bind();
  after_->Open(*lb_, *l_.body);
  const auto argument = [&](size_t i) {
    const Value v = i < anchor_->num_operands() ? anchor_->operand(i) : Value();
    return v ? l_.body->argument(v.index()) : Value();
  };
  const int64_t all = channels_ * groups_;
  // [tiles, taps, channels, filters of a tile], or as they are: [channels, filters, taps].
  if (l_.IsConstant(anchor_->operand(1))) {
    const int64_t tiles = CeilDiv(filters_, tile_filters_);
    Shape whole{all, tiles * tile_filters_};
    whole.insert(whole.end(), kernel_.begin(), kernel_.end());
    weights_ = l_.Pack({.argument = anchor_->operand(1).index(),
                        .padded = whole,
                        .split = {all, tiles, tile_filters_, taps()},
                        .order = {1, 3, 0, 2}});
  } else {
    weights_ =
        nn::ViewReshapeOp::Create(lb_->b(), argument(1), {.shape = {all, filters_, taps()}}).y();
  }
  bias_ = argument(2);
  const std::vector<int64_t> axes{1, 1, static_cast<int64_t>(last()), 1};
  input_ = lb_->Grouped(argument(0), axes);
  blocks_ = math_->Name(CeilDiv(out_.back(), width() * stride()));
  Dim rows = batch_ * groups_;
  for (size_t a = 0; a < last(); ++a) rows *= out_[a];
  math_->For(rows * blocks_, true, [&](const Dim& block) { WriteBlock(block); });
  after_->Close(*lb_);
}

void TransposedConvBlocks::WriteBlock(Dim number) {
  const auto take = [&](const Dim& extent) {
    const Dim taken = math_->Name(Mod(number, extent));
    number = math_->Name(FloorDiv(number, extent));
    return taken;
  };
  const Dim first = math_->Name(take(blocks_) * width());
  at_.assign(last(), Dim());
  for (size_t a = last(); a-- > 0;) at_[a] = take(out_[a]);
  group_ = groups_ == 1 ? Dim(0) : take(groups_);
  image_ = number;
  entry_taps_ = Memory(ElementType::kI64, {Dim(MostEntries())});
  entry_rows_ = Memory(ElementType::kI64, {Dim(MostEntries())});
  copy_ = Memory(element_, {Dim(MostEntries() * channels_), Dim(columns_)});
  outputs_.emplace(*lb_, OutputSizes());
  entries_ = ListEntries(0, 0, 0, 0);
  WriteOutputs(first);
}

// Writes entries for all kernel elements along the axes from `axis` on that reach the row; `tap`
// and `input` count those of the axes before. Returns the length of the lists.
Dim TransposedConvBlocks::ListEntries(size_t axis, const Dim& tap, const Dim& input,
                                      const Dim& count) {
  if (axis == last()) {
    lb_->Store(entry_taps_, math_->At(tap), math_->At({count}));
    lb_->Store(entry_rows_, math_->At(input), math_->At({count}));
    return count + 1;
  }
  const int64_t step = strides_[axis];
  const auto element = [&](Value k, std::span<const Value> counted) {
    const Dim place = at_[axis] + begins_[axis] - math_->Of(k) * dilations_[axis];
    const Dim whole = Max(1 - Mod(place, step), 0), inside = Min(Max(place + 1, 0), 1);
    const Dim before_end = Min(Max(in_[axis] - FloorDiv(place, step), 0), 1);
    const Value reaches = math_->At(whole * inside * before_end);
    return lb_->For(reaches, counted, [&](Value, std::span<const Value> c) {
      const Dim next_tap = math_->Name(tap * kernel_[axis] + math_->Of(k));
      const Dim next_input = math_->Name(input * in_[axis] + Max(FloorDiv(place, step), 0));
      const Dim next = ListEntries(axis + 1, next_tap, next_input, math_->Of(c[0]));
      return std::vector<Value>{math_->At(next)};
    });
  };
  const Value initial[] = {math_->At(count)};
  return math_->Of(lb_->For(lb_->Int(kernel_[axis]), initial, element)[0]);
}

// Outputs from number `first` of each phase on.
void TransposedConvBlocks::WriteOutputs(const Dim& first) {
  CopyRows(first);
  const int64_t full = filters_ / tile_filters_, rest = filters_ % tile_filters_;
  math_->For(full, false, [&](const Dim& i) {
    WriteFilters({math_->Name(i * tile_filters_), tile_filters_}, first);
  });
  if (rest > 0) WriteFilters({filters_ - rest, rest}, first);
}

// Columns first - front, ... of the rows that reach the output.
void TransposedConvBlocks::CopyRows(const Dim& first) {
  math_->For(entries_, false, [&](const Dim& entry) {
    const Dim row = math_->Of(lb_->Load(entry_rows_, math_->At({entry})));
    for (int64_t j = 0; j < columns_; j += lanes_) {
      const Dim skipped = math_->Name(Min(Max(front_ - j - first, 0), lanes_));
      const Dim from = math_->Name(Max(first + j - front_, 0));
      const Dim live = math_->Name(Max(Min(in_.back() - from, Dim(lanes_) - skipped), 0));
      math_->For(channels_, false, [&](const Dim& c) {
        const Dim to = entry * channels_ + c;
        lb_->Store(copy_, lb_->Splat(element_, 0, lanes_), math_->At({to, Dim(j)}));
        const std::vector<Value> at = math_->At({image_, group_ * channels_ + c, row, from});
        const Value count = math_->At(live);
        lb_->Store(copy_, lb_->Load(input_, at, lanes_, count), math_->At({to, j + skipped}),
                   count);
      });
    }
  });
}

void TransposedConvBlocks::WriteFilters(const Filters& filters, const Dim& first) {
  if (HasLargeKernel()) {
    math_->For(stride(), false, [&](const Dim& phase) { WritePhaseInLoops(phase, filters); });
  } else {
    for (const Phase& phase : phases_) WritePhase(phase, filters);
  }
  FinishBlock(filters, first);
}

std::vector<Value> TransposedConvBlocks::Start(const Filters& filters) {
  std::vector<Value> sums;
  for (int64_t f = 0; f < filters.count; ++f) {
    Value start = lb_->Splat(element_, 0, lanes_);
    if (bias_) {
      const std::vector<Value> at = math_->At({group_ * filters_ + filters.first + f});
      start = lb_->Widen(lb_->Load(bias_, at), lanes_);
    }
    sums.insert(sums.end(), static_cast<size_t>(tile_vectors_), start);
  }
  return sums;
}

// `add(entry, channel, sums)` adds what a channel of a row that reaches the output gives.
template <class Add>
std::vector<Value> TransposedConvBlocks::SumChannels(std::span<const Value> sums, const Add& add) {
  return lb_->For(math_->At(entries_), sums, [&](Value entry, std::span<const Value> before) {
    return lb_->For(channels_, before, [&](Value channel, std::span<const Value> carried) {
      std::vector<Value> next(carried.begin(), carried.end());
      add(math_->Of(entry), math_->Of(channel), next);
      return next;
    });
  });
}

void TransposedConvBlocks::WritePhase(const Phase& phase, const Filters& filters) {
  std::vector<Value> sums = Start(filters);
  if (!phase.taps.empty()) {
    sums = SumChannels(sums, [&](const Dim& entry, const Dim& channel, std::vector<Value>& next) {
      for (size_t t = 0; t < phase.taps.size(); ++t) {
        AddTap(filters, entry, channel, phase.taps[t], front_ + phase.shifts[t], next);
      }
    });
  }
  StoreSums(lb_->Int(phase.first), filters, sums);
}

// Of a large kernel the elements that reach a phase's outputs are counted when the program runs:
// they are a stride apart, and the input's positions one.
void TransposedConvBlocks::WritePhaseInLoops(const Dim& phase, const Filters& filters) {
  const Dim place = math_->Name(phase + begins_.back());
  const Dim first = math_->Name(Mod(place, stride()));
  const Dim shift = math_->Name(FloorDiv(place, stride()));
  const Dim count = math_->Name(CeilDiv(Max(kernel_.back() - first, 0), stride()));
  const std::vector<Value> sums =
      lb_->For(math_->At(count), Start(filters), [&](Value number, std::span<const Value> so_far) {
        const Dim tap = math_->Name(first + math_->Of(number) * stride());
        const Dim from = math_->Name(front_ + shift - math_->Of(number));
        return SumChannels(so_far,
                           [&](const Dim& entry, const Dim& channel, std::vector<Value>& next) {
                             AddTap(filters, entry, channel, tap, from, next);
                           });
      });
  StoreSums(math_->At(phase), filters, sums);
}

void TransposedConvBlocks::StoreSums(Value phase, const Filters& filters,
                                     std::span<const Value> sums) {
  for (int64_t i = 0; i < filters.count * tile_vectors_; ++i) {
    outputs_->Store(lb_->Int(i / tile_vectors_), phase, lb_->Int(i % tile_vectors_ * lanes_),
                    sums[static_cast<size_t>(i)]);
  }
}

// What a kernel element of a row gives, for which the first output takes the copied column `from`.
void TransposedConvBlocks::AddTap(const Filters& filters, const Dim& entry, const Dim& channel,
                                  const Dim& tap, const Dim& from, std::vector<Value>& sums) {
  const Dim row = entry * channels_ + channel;
  const Dim of_row = math_->Of(lb_->Load(entry_taps_, math_->At({entry})));
  const Dim of_all = group_ * channels_ + channel;
  const bool packed = l_.IsConstant(anchor_->operand(1));
  std::vector<Value> x;
  for (int64_t v = 0; v < tile_vectors_; ++v) {
    x.push_back(lb_->Load(copy_, math_->At({row, from + v * lanes_}), lanes_));
  }
  const Dim k = of_row * kernel_.back() + tap;
  for (int64_t f = 0; f < filters.count; ++f) {
    const Dim tile = FloorDiv(filters.first, tile_filters_);
    const Value weight = lb_->Load(weights_, packed ? math_->At({tile, k, of_all, Dim(f)})
                                                    : math_->At({of_all, filters.first + f, k}));
    for (int64_t v = 0; v < tile_vectors_; ++v) {
      Value& sum = sums[static_cast<size_t>(f * tile_vectors_ + v)];
      sum = MulAdd(*lb_, machine_, x[static_cast<size_t>(v)], weight, sum);
    }
  }
}

// Sums of the phases, which lie side by side: what follows is computed along the row.
void TransposedConvBlocks::FinishBlock(const Filters& filters, const Dim& first) {
  const Dim begin = math_->Name(first * stride());
  const Dim count = math_->Name(Min(out_.back() - begin, width() * stride()));
  const int64_t lanes = outputs_->lanes();
  const auto finish = [&](const Dim& piece, Value live) {
    for (int64_t f = 0; f < filters.count; ++f) {
      std::vector<Value> to = math_->At({image_, group_ * filters_ + filters.first + f});
      for (const Dim& index : at_) to.push_back(math_->At(index));
      to.push_back(math_->At(begin + piece * lanes));
      after_->Store(*lb_, to, lanes, live, outputs_->Load(lb_->Int(f), math_->At(piece)));
    }
  };
  const Dim whole = math_->Name(FloorDiv(count, lanes)), rest = math_->Name(Mod(count, lanes));
  math_->For(whole, false, [&](const Dim& i) { finish(i, {}); });
  math_->For(Min(rest, 1), false, [&](const Dim&) { finish(whole, math_->At(rest)); });
}

}  // namespace

bool LowerConvTransposeBlocks(Lowering& l) { return WriteUnlessRefused<TransposedConvBlocks>(l); }

}  // namespace lathe::lower
