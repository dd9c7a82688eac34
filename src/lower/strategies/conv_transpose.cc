#include <algorithm>
#include <numeric>

#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/divide.h"
#include "lathe/support/text.h"
#include "src/dialect/nn/convolution.h"
#include "src/lower/anchor.h"
#include "src/lower/planes.h"
#include "src/lower/pointwise.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/list.h"
#include "src/lower/strategies/phase_rows.h"
#include "src/lower/windows.h"

// Transposed convolutions, an output row at a time: the rows of the input that reach it are listed
// and copied with padding; outputs that are a stride apart read them as a convolution of stride 1
// with every stride-th kernel element, and are sums in registers over all channels.
namespace lathe::lower {
namespace {

constexpr int64_t kMostTaps = 32;  // along the last axis
constexpr int64_t kLongRow = 256;  // outputs, that are worth more than one thread

const Dim kD0 = LoopBuilder::D0(), kD1 = LoopBuilder::D1();

class TransposedConv {
 public:
  explicit TransposedConv(Lowering& l) : l_(l), machine_(l.machine) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  // Outputs first, first + stride, ... along the last axis.
  struct Phase {
    int64_t first = 0, count = 0;
    std::vector<int64_t> taps;    // kernel elements that reach them
    std::vector<int64_t> shifts;  // per tap, the input's position for the first output
  };
  // The filters that a tile computes: `count` from number `first` of the group on.
  struct Filters {
    Value first;
    int64_t count;
  };

  std::string AnchorRefusal();
  std::string ShapeRefusal();
  std::string AfterRefusal();
  void FindPhases();
  bool FitsScratch();
  size_t last() const { return in_.size() - 1; }
  int64_t rows() const { return ProductOf(std::span(out_).first(last())); }
  int64_t taps() const { return ProductOf(kernel_); }
  int64_t MostEntries() const;
  PhaseRows::Sizes OutputSizes() const {
    const int64_t vectors = CeilDiv(phases_[0].count, lanes_);
    return {element_, tile_filters_, static_cast<int64_t>(phases_.size()), vectors * lanes_,
            lanes_};
  }

  void WriteRow(Value n, Value g, Value row);
  Value ListEntries(size_t axis, Value row, Value tap, Value input, Value count);
  void CopyRows(Value n, Value g);
  void WriteFilters(const Filters& filters);
  void WritePhase(const Phase& phase, const Filters& filters);
  void WriteTile(const Phase& phase, const Filters& filters, Value first, int64_t count);
  void AddChannel(const Phase& phase, const Filters& filters, Value entry, Value channel,
                  Value first, std::vector<Value>& sums);
  Value Weight(Value channel, const Filters& filters, int64_t filter, Value tap);
  void StoreVector(const Filters& filters, int64_t filter, const Phase& phase, Value first,
                   int64_t live, Value sum);
  void Finish(Value filter, Value column, int64_t lanes, int64_t live, Value value);
  void FinishRow(const Filters& filters);
  Value Memory(ElementType element, std::vector<Dim> shape);
  Value Plus(Value v, int64_t offset) { return lb_->Index(kD0 + offset, v); }

  Lowering& l_;
  const Machine& machine_;
  const Operation* anchor_ = nullptr;
  std::optional<Pointwise> after_;
  std::vector<int64_t> in_, kernel_, strides_, dilations_, begins_, out_;
  Dim batch_;
  int64_t groups_ = 1, channels_ = 1, filters_ = 1;  // of one group
  ElementType element_ = ElementType::kUndefined;
  int64_t lanes_ = 1, tile_vectors_ = 1, tile_filters_ = 1;
  std::vector<Phase> phases_;
  int64_t front_ = 0, columns_ = 0, pitch_ = 0;  // of copied rows

  // While writing.
  std::optional<LoopBuilder> lb_;
  Value input_, weights_, bias_;
  bool packed_ = false;  // weights: [tiles of M, taps, C, M of a tile], else [C, M, taps]
  Value entry_taps_, entry_rows_, entries_;  // what reaches the row: lists, and their length
  Value copy_;                               // rows of the input
  std::optional<PhaseRows> outputs_;
  Value n_, g_;
  std::vector<Value> at_;  // of the row, along the axes before the last
};

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
  if (!x.has_rank() || !w.is_static()) return "the weights are of symbolic shape";
  Shape x_shape{1, w.dims()[0].value()}, w_shape;
  for (const Dim& dim : w.dims()) w_shape.push_back(dim.value());
  for (size_t a = 2; a < x.rank(); ++a) {
    if (!x.dims()[a].is_constant() || !y.dims()[a].is_constant()) {
      return StrCat("extent ", x.dims()[a].ToString(), " is symbolic");
    }
    in_.push_back(x.dims()[a].value());
    out_.push_back(y.dims()[a].value());
    kernel_.push_back(w_shape[a]);
    x_shape.push_back(in_.back());
  }
  const nn::ConvTransposeSpec spec = nn::ConvTransposeSpecOf(op);
  const nn::WindowSteps steps = nn::CheckedSteps(spec.window, in_.size());
  strides_ = steps.strides;
  dilations_ = steps.dilations;
  begins_ = nn::TransposedBegins(spec, x_shape, w_shape, out_);
  batch_ = x.dims()[0];
  groups_ = op.group();
  channels_ = w_shape[0] / groups_;
  filters_ = w_shape[1];
  if (ProductOf(in_) * ProductOf(out_) * channels_ * filters_ * taps() == 0) {
    return "there is nothing to compute";
  }
  return kernel_.back() > kMostTaps ? "the kernel is large" : "";
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

// Output o takes kernel element k from input (o + begin - k * dilation) / stride, where that is
// whole.
void TransposedConv::FindPhases() {
  const int64_t stride = strides_.back(), dilation = dilations_.back(), begin = begins_.back();
  for (int64_t first = 0; first < std::min(stride, out_.back()); ++first) {
    Phase phase{first, CeilDiv(out_.back() - first, stride), {}, {}};
    for (int64_t k = 0; k < kernel_.back(); ++k) {
      const int64_t place = first + begin - k * dilation;
      if (((place % stride) + stride) % stride != 0) continue;
      const int64_t shift = place / stride;
      if (shift >= in_.back() || shift + phase.count <= 0) continue;
      phase.taps.push_back(k);
      phase.shifts.push_back(shift);
      front_ = std::max(front_, -shift);
    }
    phases_.push_back(std::move(phase));
  }
}

int64_t TransposedConv::MostEntries() const {
  int64_t entries = 1;
  for (size_t a = 0; a < last(); ++a) {
    const int64_t period = strides_[a] / std::gcd(strides_[a], dilations_[a]);
    entries *= CeilDiv(kernel_[a], period);
  }
  return entries;
}

bool TransposedConv::FitsScratch() {
  const int64_t outputs = phases_[0].count;
  lanes_ = LanesFor(outputs, machine_.lanes(element_));
  const int64_t vectors = CeilDiv(outputs, lanes_);
  tile_vectors_ = std::min<int64_t>(vectors, 2);
  const int64_t room = (machine_.vector_registers - tile_vectors_ - 2) / tile_vectors_;
  tile_filters_ = TileRowsFor(filters_, std::clamp<int64_t>(room, 1, 8));
  for (const Phase& phase : phases_) {
    for (const int64_t shift : phase.shifts) {
      columns_ = std::max(columns_, front_ + shift + vectors * lanes_);
    }
  }
  pitch_ = (std::max(columns_, front_ + in_.back()) / lanes_ + 2) * lanes_;
  const int64_t elements = MostEntries() * channels_ * pitch_;
  return elements * BitWidth(element_) / 8 + PhaseRows::Bytes(OutputSizes()) <= kMostScratch;
}

std::string TransposedConv::Refusal() {
  if (std::string why = AnchorRefusal(); !why.empty()) return why;
  if (std::string why = ShapeRefusal(); !why.empty()) return why;
  if (std::string why = AfterRefusal(); !why.empty()) return why;
  if (rows() == 1 && out_.back() >= kLongRow) return "one row: threads share its blocks";
  FindPhases();
  return FitsScratch() ? "" : "the rows that reach an output are too large";
}

// ---- writing ----

Value TransposedConv::Memory(ElementType element, std::vector<Dim> shape) {
  return lb_->Alloc(VTensorType::Get(lb_->context(), SymShape(std::move(shape)), element));
}

void TransposedConv::Write() {
  lb_.emplace(l_.body);
  after_->Open(*lb_, *l_.body);
  const auto argument = [&](size_t i) {
    const Value v = i < anchor_->num_operands() ? anchor_->operand(i) : Value();
    return v ? l_.body->argument(v.index()) : Value();
  };
  const int64_t all = channels_ * groups_;
  packed_ = l_.IsConstant(anchor_->operand(1));
  if (packed_) {
    // As the tiles read them.
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
  const int64_t planes = batch_.is_constant() ? batch_.value() * all : -1;
  const std::vector<int64_t> shape{planes, ProductOf(std::span(in_).first(last())), in_.back()};
  input_ = nn::ViewReshapeOp::Create(lb_->b(), argument(0), {.shape = shape}).y();
  const int64_t work = out_.back() * channels_ * filters_ * taps() / ProductOf(strides_);
  ForPlanes(*lb_, batch_, groups_ * rows(), work / 4, [&](Value n, Value row, Value) {
    WriteRow(n, lb_->Index(FloorDiv(kD0, rows()), row), lb_->Index(Mod(kD0, rows()), row));
  });
  after_->Close(*lb_);
}

void TransposedConv::WriteRow(Value n, Value g, Value row) {
  n_ = n;
  g_ = g;
  at_.assign(last(), Value());
  int64_t inner = 1;
  for (size_t a = last(); a-- > 0; inner *= out_[a]) {
    at_[a] = lb_->Index(Mod(FloorDiv(kD0, inner), out_[a]), row);
  }
  entry_taps_ = Memory(ElementType::kI64, {Dim(MostEntries())});
  entry_rows_ = Memory(ElementType::kI64, {Dim(MostEntries())});
  copy_ = Memory(element_, {Dim(MostEntries() * channels_), Dim(pitch_)});
  if (phases_.size() > 1) outputs_.emplace(*lb_, OutputSizes());
  entries_ = ListEntries(0, row, lb_->Int(0), lb_->Int(0), lb_->Int(0));
  CopyRows(n, g);
  lb_->For(filters_ / tile_filters_, false,
           [&](Value i) { WriteFilters({lb_->Index(kD0 * tile_filters_, i), tile_filters_}); });
  const int64_t rest = filters_ % tile_filters_;
  if (rest > 0) WriteFilters({lb_->Int(filters_ - rest), rest});
}

// Writes entries for all kernel elements along the axes from `axis` on that reach the row; `tap`
// and `input` count those of the axes before. Returns the length of the lists.
Value TransposedConv::ListEntries(size_t axis, Value row, Value tap, Value input, Value count) {
  if (axis == last()) {
    lb_->Store(entry_taps_, tap, {&count, 1});
    lb_->Store(entry_rows_, input, {&count, 1});
    return Plus(count, 1);
  }
  const int64_t stride = strides_[axis];
  const auto element = [&](Value k, std::span<const Value> counted) {
    const Value both[] = {at_[axis], k};
    const Dim place = kD0 + begins_[axis] - kD1 * dilations_[axis];
    const Dim whole = Max(1 - Mod(place, stride), 0), inside = Min(Max(place + 1, 0), 1);
    const Dim before_end = Min(Max(in_[axis] - FloorDiv(place, stride), 0), 1);
    const Value reaches = lb_->Index(whole * inside * before_end, both);
    return lb_->For(reaches, counted, [&](Value, std::span<const Value> c) {
      const Value taps[] = {tap, k};
      const Value inputs[] = {at_[axis], k, input};
      const Value next_tap = lb_->Index(kD0 * kernel_[axis] + kD1, taps);
      const Value next_input =
          lb_->Index(Max(FloorDiv(place, stride), 0) + Dim::Symbol("d2") * in_[axis], inputs);
      return std::vector<Value>{ListEntries(axis + 1, row, next_tap, next_input, c[0])};
    });
  };
  const Value initial[] = {count};
  return lb_->For(lb_->Int(kernel_[axis]), initial, element)[0];
}

void TransposedConv::CopyRows(Value n, Value g) {
  const Value padding = lb_->Splat(element_, 0, lanes_);
  const PaddedRow row{
      .front = front_, .count = std::min(in_.back(), columns_ - front_), .columns = columns_};
  lb_->For(entries_, false, [&](Value e) {
    const Value from = lb_->Load(entry_rows_, {&e, 1});
    lb_->For(channels_, false, [&](Value c) {
      const Value to[] = {e, c}, planes[] = {n, g, c};
      const Value plane = lb_->Index((kD0 * groups_ + kD1) * channels_ + Dim::Symbol("d2"), planes);
      CopyPaddedRow(*lb_, row, input_, {plane, from}, copy_, lb_->Index(kD0 * channels_ + kD1, to),
                    padding);
    });
  });
}

void TransposedConv::WriteFilters(const Filters& filters) {
  for (const Phase& phase : phases_) WritePhase(phase, filters);
  if (phases_.size() > 1) FinishRow(filters);
}

void TransposedConv::WritePhase(const Phase& phase, const Filters& filters) {
  const int64_t width = tile_vectors_ * lanes_, wide = phase.count / width;
  lb_->For(wide, false,
           [&](Value i) { WriteTile(phase, filters, lb_->Index(kD0 * width, i), width); });
  if (phase.count > wide * width) {
    WriteTile(phase, filters, lb_->Int(wide * width), phase.count - wide * width);
  }
}

// `count` outputs of a phase from its number `first` on.
void TransposedConv::WriteTile(const Phase& phase, const Filters& filters, Value first,
                               int64_t count) {
  const int64_t vectors = CeilDiv(count, lanes_);
  std::vector<Value> sums;
  for (int64_t f = 0; f < filters.count; ++f) {
    Value start = lb_->Splat(element_, 0, lanes_);
    if (bias_) {
      const Value both[] = {g_, filters.first};
      const Value at = lb_->Index(kD0 * filters_ + kD1 + f, both);
      start = lb_->Widen(lb_->Load(bias_, {&at, 1}), lanes_);
    }
    sums.insert(sums.end(), static_cast<size_t>(vectors), start);
  }
  if (!phase.taps.empty()) {
    sums = lb_->For(entries_, sums, [&](Value entry, std::span<const Value> before) {
      return lb_->For(channels_, before, [&](Value channel, std::span<const Value> carried) {
        std::vector<Value> next(carried.begin(), carried.end());
        AddChannel(phase, filters, entry, channel, first, next);
        return next;
      });
    });
  }
  for (int64_t f = 0; f < filters.count; ++f) {
    for (int64_t v = 0; v < vectors; ++v) {
      StoreVector(filters, f, phase, Plus(first, v * lanes_), std::min(count - v * lanes_, lanes_),
                  sums[static_cast<size_t>(f * vectors + v)]);
    }
  }
}

void TransposedConv::AddChannel(const Phase& phase, const Filters& filters, Value entry,
                                Value channel, Value first, std::vector<Value>& sums) {
  const int64_t vectors = static_cast<int64_t>(sums.size()) / filters.count;
  const Value both[] = {entry, channel};
  const Value row = lb_->Index(kD0 * channels_ + kD1, both);
  const Value tap = lb_->Load(entry_taps_, {&entry, 1});
  for (size_t t = 0; t < phase.taps.size(); ++t) {
    std::vector<Value> x;
    for (int64_t v = 0; v < vectors; ++v) {
      const Value at[] = {row, Plus(first, front_ + phase.shifts[t] + v * lanes_)};
      x.push_back(lb_->Load(copy_, at, lanes_));
    }
    const Value k = lb_->Index(kD0 * kernel_.back() + phase.taps[t], tap);
    for (int64_t f = 0; f < filters.count; ++f) {
      const Value weight = Weight(channel, filters, f, k);
      for (int64_t v = 0; v < vectors; ++v) {
        Value& sum = sums[static_cast<size_t>(f * vectors + v)];
        sum = MulAdd(*lb_, machine_, x[static_cast<size_t>(v)], weight, sum);
      }
    }
  }
}

Value TransposedConv::Weight(Value channel, const Filters& filters, int64_t filter, Value tap) {
  const Value both[] = {g_, channel};
  const Value c = lb_->Index(kD0 * channels_ + kD1, both);
  if (packed_) {
    const Value tile = lb_->Index(FloorDiv(kD0, tile_filters_), filters.first);
    return lb_->Load(weights_, std::vector<Value>{tile, tap, c, lb_->Int(filter)});
  }
  return lb_->Load(weights_, std::vector<Value>{c, Plus(filters.first, filter), tap});
}

// Sums of a phase lie apart in the row: they are put together before what follows is computed.
void TransposedConv::StoreVector(const Filters& filters, int64_t filter, const Phase& phase,
                                 Value first, int64_t live, Value sum) {
  if (phases_.size() == 1) return Finish(Plus(filters.first, filter), first, lanes_, live, sum);
  outputs_->Store(lb_->Int(filter), lb_->Int(phase.first), first, sum);
}

void TransposedConv::FinishRow(const Filters& filters) {
  const int64_t lanes = outputs_->lanes();
  for (int64_t f = 0; f < filters.count; ++f) {
    const auto piece = [&](Value i, int64_t live) {
      Finish(Plus(filters.first, f), lb_->Index(kD0 * lanes, i), lanes, live,
             outputs_->Load(lb_->Int(f), i));
    };
    const int64_t full = out_.back() / lanes, rest = out_.back() % lanes;
    lb_->For(full, false, [&](Value i) { piece(i, lanes); });
    if (rest > 0) piece(lb_->Int(full), rest);
  }
}

void TransposedConv::Finish(Value filter, Value column, int64_t lanes, int64_t live, Value value) {
  const Value both[] = {g_, filter};
  std::vector<Value> at{n_, lb_->Index(kD0 * filters_ + kD1, both)};
  at.insert(at.end(), at_.begin(), at_.end());
  at.push_back(column);
  after_->Store(*lb_, at, lanes, live < lanes ? lb_->Int(live) : Value(), value);
}

}  // namespace

bool LowerConvTranspose(Lowering& l) { return WriteUnlessRefused<TransposedConv>(l); }

}  // namespace lathe::lower
