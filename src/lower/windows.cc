#include "src/lower/windows.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "lathe/dialect/nn/movement.h"
#include "lathe/support/divide.h"
#include "lathe/support/error.h"

namespace lathe::lower {
namespace {

constexpr int64_t kUnrolledVectors = 8;  // of a row that is copied
constexpr int64_t kMostPlanes = 16;

const Dim kD0 = LoopBuilder::D0(), kD1 = LoopBuilder::D1();

// Elements `stride` apart, of which `live` are there.
Value LoadRow(LoopBuilder& lb, Value memory, std::span<const Value> at, int64_t lanes,
              int64_t stride, int64_t live) {
  const Value count = live < lanes ? lb.Int(live) : Value();
  if (stride == 1) return lb.Load(memory, at, lanes, count);
  return lb.LoadApart(memory, at, lanes, -1, stride, count);
}

// Lane by lane, whether it is one of the first `count`.
Value FirstLanes(LoopBuilder& lb, int64_t count, int64_t lanes) {
  std::vector<double> mask(static_cast<size_t>(lanes), 0);
  std::fill_n(mask.begin(), count, 1);
  return lb.Constant(Cast(Tensor::Of<double>({lanes}, mask), ElementType::kBool));
}

}  // namespace

int64_t ProductOf(std::span<const int64_t> values) {
  return std::accumulate(values.begin(), values.end(), int64_t{1}, std::multiplies<>());
}

// Vectors of padding go first: they may reach into what is written after them.
void CopyPaddedRow(LoopBuilder& lb, const PaddedRow& row, Value tensor, std::vector<Value> from,
                   Value scratch, Value to, Value padding) {
  const int64_t lanes = padding.type().cast<AnyTensorType>().dims()[0].value();
  const int64_t full = row.count / lanes, rest = row.count % lanes;
  const auto pad = [&](int64_t at) {
    const Value index[] = {to, lb.Int(at)};
    lb.Store(scratch, padding, index);
  };
  for (int64_t at = 0; at < row.front; at += lanes) pad(at);
  for (int64_t at = row.front + (full + (rest > 0)) * lanes; at < row.columns; at += lanes) pad(at);
  from.emplace_back();
  const auto copy = [&](Value vector, int64_t live) {
    from.back() = lb.Index(kD0 * (lanes * row.stride) + row.first, vector);
    const Value index[] = {to, lb.Index(kD0 * lanes + row.front, vector)};
    Value value = LoadRow(lb, tensor, from, lanes, row.stride, live);
    if (live < lanes) {
      value = nn::WhereOp::Create(lb.b(), FirstLanes(lb, live, lanes), value, padding).output();
    }
    lb.Store(scratch, value, index);
  };
  if (full <= kUnrolledVectors) {
    for (int64_t v = 0; v < full; ++v) copy(lb.Int(v), lanes);
  } else {
    lb.For(full, false, [&](Value v) { copy(v, lanes); });
  }
  if (rest > 0) copy(lb.Int(full), rest);
}

nn::Window WithRows(nn::Window w) {
  if (w.rank() != 1) return w;
  for (auto* ones : {&w.in, &w.kernel, &w.strides, &w.dilations, &w.out}) {
    ones->insert(ones->begin(), 1);
  }
  for (auto* zeros : {&w.begins, &w.ends}) zeros->insert(zeros->begin(), 0);
  return w;
}

int64_t LanesFor(int64_t outputs, int64_t most) {
  int64_t lanes = most;
  while (lanes > 4 && lanes / 2 >= outputs) lanes /= 2;
  return lanes;
}

// Few tiles, of about equal size.
int64_t TileRowsFor(int64_t outputs, int64_t most) {
  int64_t best = 1;
  for (int64_t rows = 1; rows <= std::min(outputs, most); ++rows) {
    const auto tiles = [&](int64_t r) { return CeilDiv(outputs, r); };
    if (tiles(rows) < tiles(best)) best = rows;
  }
  return best;
}

int64_t PlanesTogether(const nn::Window& window, const WindowReader::Options& options,
                       const Dim& planes) {
  const WindowReader one(window, options);
  if (!planes.is_constant() || one.scratch_bytes() == 0 || one.bands() > 1) return 1;
  const int64_t room = options.cache_bytes / one.scratch_bytes();
  int64_t best = 1;
  for (int64_t count = 2; count <= std::min(room, kMostPlanes); ++count) {
    if (planes.value() % count == 0) best = count;
  }
  return best;
}

// ---- WindowReader ----

WindowReader::WindowReader(const nn::Window& window, const Options& options)
    : window_(window), options_(options), direct_(IsDirect()) {
  LATHE_CHECK(window_.rank() >= 2, "windows without rows");
  LayOut();
}

// Elements of the input that neighboring outputs see along an axis.
int64_t WindowReader::Reach(size_t axis, int64_t outputs) const {
  return (outputs - 1) * window_.strides[axis] +
         (window_.kernel[axis] - 1) * window_.dilations[axis] + 1;
}

int64_t WindowReader::Positions(size_t axis) const {
  return Reach(axis, axis == 0 ? band_ : window_.out[axis]);
}

bool WindowReader::IsDirect() const {
  for (size_t a = 0; a < window_.rank(); ++a) {
    if (window_.begins[a] != 0 || Reach(a, window_.out[a]) > window_.in[a]) return false;
  }
  return true;
}

void WindowReader::LayOut() {
  if (direct_) {
    band_ = window_.out[0];
    return;
  }
  const int64_t stride = window_.strides[last()], dilation = window_.dilations[last()];
  int64_t shift = 0;
  for (int64_t k = 0; k < window_.kernel[last()]; ++k) {
    const int64_t phase = k * dilation % stride;
    if (std::ranges::find(phases_, phase) == phases_.end()) phases_.push_back(phase);
    shift = k * dilation / stride;
  }
  const int64_t lanes = options_.lanes;
  // Lanes that are no outputs must not compute with what happens to be there: denormal numbers are
  // slow.
  const int64_t outputs = window_.out[last()];
  columns_ = (options_.masks ? outputs : RoundUp(outputs, lanes)) + shift;
  const int64_t begin = CeilDiv(window_.begins[last()], stride);
  pitch_ = (CeilDiv(window_.out[last()], lanes) + CeilDiv(shift + begin, lanes) + 1) * lanes;
  rows_per_step_.assign(last(), static_cast<int64_t>(phases_.size()));
  const int64_t whole = window_.out[0], tile = last() == 1 ? options_.tile_rows : 1;
  for (int64_t bands = 1;; ++bands) {
    band_ = RoundUp(CeilDiv(whole, bands), tile);
    for (size_t a = last() - 1; a-- > 0;) {
      rows_per_step_[a] = rows_per_step_[a + 1] * Positions(a + 1);
    }
    plane_rows_ = rows_per_step_[0] * Positions(0);
    if (band_ == tile || scratch_bytes() <= options_.cache_bytes) return;
  }
}

int64_t WindowReader::scratch_bytes() const {
  return direct_ ? 0 : options_.planes * plane_rows_ * pitch_ * BitWidth(options_.element) / 8;
}

size_t WindowReader::SlotOf(int64_t k) const {
  const int64_t phase = k * window_.dilations[last()] % window_.strides[last()];
  return static_cast<size_t>(std::ranges::find(phases_, phase) - phases_.begin());
}

Value WindowReader::Plus(Value v, int64_t offset) const { return lb_->Index(kD0 + offset, v); }

void WindowReader::Allocate(LoopBuilder& lb, Value memory) {
  lb_ = &lb;
  memory_ = memory;
  if (direct_) return;
  padding_ = lb.Splat(options_.element, options_.padding, options_.lanes);
  const SymShape shape({Dim(options_.planes * plane_rows_), Dim(pitch_)});
  scratch_ = lb.Alloc(VTensorType::Get(lb.context(), shape, options_.element));
}

void WindowReader::Open(Value plane, Value band) {
  plane_ = plane;
  first_ = band_ == window_.out[0] ? Value() : lb_->Index(kD0 * band_, band);
  if (direct_) return;
  lb_->For(options_.planes, false, [&](Value p) {
    const Value both[] = {plane, p};
    CopyAxis(0, {lb_->Index(kD0 + kD1, both)}, lb_->Index(kD0 * plane_rows_, p), first_);
  });
}

// Rows of padding, rows of the input, rows of padding. `input`: the indices of the axes before;
// `band`: the first output, if that is not 0.
void WindowReader::CopyAxis(size_t axis, std::vector<Value> input, Value row, Value band) {
  if (axis == last()) return CopyRow(input, row);
  const int64_t rows = Positions(axis), step = rows_per_step_[axis];
  const int64_t begin = window_.begins[axis], end = begin + window_.in[axis];
  const Value start = band ? lb_->Index(kD0 * window_.strides[axis], band) : lb_->Int(0);
  const auto clamped = [&](int64_t edge) { return Max(Min(edge - kD0, rows), 0); };
  const auto repeat = [&](const Dim& count, const LoopBuilder::Body& body) {
    if (band) return lb_->For(lb_->Index(count, start), false, body);
    lb_->For(count.Substitute([](std::string_view) { return Dim(0); }), false, body);
  };
  const Dim above = clamped(begin), inside = clamped(end) - above, below = rows - clamped(end);
  repeat(above * step, [&](Value i) {
    const Value both[] = {row, i};
    Fill(lb_->Index(kD0 + kD1, both));
  });
  repeat(inside, [&](Value i) {
    const Value all[] = {start, i, row};
    input.push_back(lb_->Index(Max(kD0 - begin, 0) + kD1, all));
    CopyAxis(axis + 1, input, lb_->Index((above + kD1) * step + Dim::Symbol("d2"), all), {});
    input.pop_back();
  });
  repeat(below * step, [&](Value i) {
    const Value all[] = {start, i, row};
    Fill(lb_->Index(clamped(end) * step + kD1 + Dim::Symbol("d2"), all));
  });
}

// A row of padding.
void WindowReader::Fill(Value row) {
  lb_->For(CeilDiv(columns_, options_.lanes), false, [&](Value v) {
    const Value at[] = {row, lb_->Index(kD0 * options_.lanes, v)};
    lb_->Store(scratch_, padding_, at);
  });
}

void WindowReader::CopyRow(const std::vector<Value>& input, Value row) {
  for (size_t slot = 0; slot < phases_.size(); ++slot) {
    CopySlot(input, Plus(row, static_cast<int64_t>(slot)), phases_[slot]);
  }
}

// Each stride-th element from `phase` on.
void WindowReader::CopySlot(const std::vector<Value>& input, Value row, int64_t phase) {
  const int64_t stride = window_.strides[last()], begin = window_.begins[last()];
  PaddedRow padded{.columns = columns_, .stride = stride};
  padded.front = std::min(std::max<int64_t>(CeilDiv(begin - phase, stride), 0), columns_);
  const int64_t behind = CeilDiv(window_.in[last()] + begin - phase, stride);
  padded.count = std::clamp<int64_t>(behind - padded.front, 0, columns_ - padded.front);
  padded.first = padded.front * stride + phase - begin;
  CopyPaddedRow(*lb_, padded, memory_, input, scratch_, row, padding_);
}

WindowReader::Place WindowReader::At(std::span<const Value> outputs) {
  if (!direct_) {
    Dim row = 0;
    for (size_t a = 0; a < last(); ++a) {
      row += Dim::Symbol(StrCat("d", a)) * (window_.strides[a] * rows_per_step_[a]);
    }
    Place place{{lb_->Index(row, outputs.first(last())), outputs[last()]}};
    return selected_ ? OfPlane(place, selected_) : place;
  }
  Place place{{plane_}};
  for (size_t a = 0; a < window_.rank(); ++a) {
    place.index.push_back(lb_->Index(kD0 * window_.strides[a], outputs[a]));
  }
  return selected_ ? OfPlane(place, selected_) : place;
}

WindowReader::Place WindowReader::OfPlane(const Place& place, Value plane) {
  Place moved = place;
  const Value both[] = {place.index[0], plane};
  moved.index[0] = lb_->Index(kD0 + kD1 * (direct_ ? 1 : plane_rows_), both);
  return moved;
}

WindowReader::Place WindowReader::Moved(const Place& place, size_t axis, Value elements) {
  Place moved = place;
  Value& at = moved.index[direct_ ? axis + 1 : 0];
  const Value both[] = {at, elements};
  at = lb_->Index(kD0 + kD1 * (direct_ ? 1 : rows_per_step_[axis]), both);
  return moved;
}

Value WindowReader::Load(const Place& place, std::span<const int64_t> offsets, int64_t k,
                         OutputVector vector) {
  const int64_t stride = window_.strides[last()], dilation = window_.dilations[last()];
  if (!direct_) {
    int64_t row = static_cast<int64_t>(SlotOf(k));
    for (size_t a = 0; a < last(); ++a) row += offsets[a] * rows_per_step_[a];
    const Value at[] = {Plus(place.index[0], row),
                        Plus(place.index[1], vector.offset + k * dilation / stride)};
    const bool mask = options_.masks && vector.live < options_.lanes;
    return lb_->Load(scratch_, at, options_.lanes, mask ? lb_->Int(vector.live) : Value());
  }
  std::vector<Value> at{place.index[0]};
  for (size_t a = 0; a < last(); ++a) at.push_back(Plus(place.index[a + 1], offsets[a]));
  at.push_back(Plus(place.index.back(), vector.offset * stride + k * dilation));
  return LoadRow(*lb_, memory_, at, options_.lanes, stride, vector.live);
}

// ---- WindowTiles ----

void WindowTiles::Write(LoopBuilder& lb, WindowReader& reader,
                        const std::function<void(Value band)>& open, const Body& body) {
  lb_ = &lb;
  reader_ = &reader;
  body_ = &body;
  const int64_t outputs = window_.out[0], band = reader.band(), bands = reader.bands();
  const bool rows_first = window_.rank() == 2;
  const int64_t step = rows_first ? rows_ : 1;
  lb.For(bands, false, [&](Value b) {
    open(b);
    const Value base = lb.Index(kD0 * band, b);
    const auto each = [&](Value i) {
      const Value row = lb.Index(kD0 * step, i);
      if (rows_first) return RowTile({}, row, base, rows_);
      Rows({row}, base);
    };
    if (bands == 1) return lb.For(outputs / step, false, each);
    lb.For(lb.Index(FloorDiv(Min(outputs - kD0, band), step), base), false, each);
  });
  if (outputs % step == 0) return;
  const int64_t base = (bands - 1) * band;
  RowTile({}, lb.Int(outputs / step * step - base), lb.Int(base), outputs % step);
}

// All outputs of the axes after those given.
void WindowTiles::Rows(std::vector<Value> outputs, Value base) {
  const int64_t extent = window_.out[outputs.size()];
  if (outputs.size() + 2 < window_.rank()) {
    return lb_->For(extent, false, [&](Value o) {
      outputs.push_back(o);
      Rows(outputs, base);
      outputs.pop_back();
    });
  }
  lb_->For(extent / rows_, false,
           [&](Value t) { RowTile(outputs, lb_->Index(kD0 * rows_, t), base, rows_); });
  if (extent % rows_ != 0) {
    RowTile(outputs, lb_->Int(extent / rows_ * rows_), base, extent % rows_);
  }
}

void WindowTiles::RowTile(std::vector<Value> outputs, Value row, Value base, int64_t rows) {
  outputs.push_back(row);
  const int64_t full = window_.out.back() / lanes_, wide = full / vectors_;
  const auto tile = [&](Value first, int64_t count) {
    Tile t{outputs, {}, rows, {}};
    t.outputs.push_back(first);
    t.place = reader_->At(t.outputs);
    const Value both[] = {base, outputs[0]};
    t.outputs[0] = lb_->Index(kD0 + kD1, both);
    for (int64_t left = count, v = 0; left > 0; ++v, left -= lanes_) {
      t.vectors.push_back({v * lanes_, std::min(left, lanes_)});
    }
    (*body_)(t);
  };
  lb_->For(wide, false,
           [&](Value i) { tile(lb_->Index(kD0 * (vectors_ * lanes_), i), vectors_ * lanes_); });
  const int64_t done = wide * vectors_ * lanes_;
  if (window_.out.back() > done) tile(lb_->Int(done), window_.out.back() - done);
}

}  // namespace lathe::lower
