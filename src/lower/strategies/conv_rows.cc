#include "src/lower/strategies/conv_rows.h"

#include <algorithm>
#include <numeric>

#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/support/divide.h"

namespace lathe::lower {

ConvRows::ConvRows(LoopBuilder& lb, IndexMath& math, const ConvGeometry& geometry, int64_t lanes,
                   int64_t block_rows, int64_t block_columns, double fill)
    : lb_(lb),
      math_(math),
      g_(geometry),
      lanes_(lanes),
      fill_(fill),
      element_(geometry.element),
      has_rows_(geometry.rank() > 1),
      block_rows_(block_rows) {
  const size_t last = g_.rank() - 1;
  if (has_rows_) {
    row_stride_ = g_.strides[last - 1];
    row_dilation_ = g_.dilations[last - 1];
    rows_ = g_.Reach(last - 1, block_rows).value();
  }
  columns_ = g_.Reach(last, block_columns).value();
  for (size_t a = 0; a < g_.rank(); ++a) {
    const Dim beyond = g_.Reach(a, g_.out[a]) - g_.begins[a] - g_.in[a];
    has_padding_ |= g_.most_begin(a) > 0 || beyond.UpperBound().value_or(1) > 0;
  }
  channel_rows_ = rows_;
  front_ = std::min(g_.most_begin(last), columns_);
  pitch_ = RoundUp(front_ + columns_ + lanes_, lanes_);
}

void ConvRows::SkipRows() {
  if (!has_rows_) return;
  const size_t a = g_.rank() - 2;
  skips_rows_ = g_.Seen(a, block_rows_) < rows_;
  if (skips_rows_) channel_rows_ = rows_ = block_rows_ * g_.kernel[a];
}

void ConvRows::LeaveOut(int64_t columns) {
  const size_t last = g_.rank() - 1;
  if (g_.reaches_far(last)) near_ = (columns - 1) * g_.strides[last];
  leaves_out_rows_ = g_.rank() == 2 && g_.reaches_far(last - 1);
}

void ConvRows::SplitColumns() {
  phases_ = g_.strides.back();
  front_ = CeilDiv(front_, phases_);
  pitch_ = RoundUp(front_ + CeilDiv(columns_, phases_) + lanes_, lanes_);
}

void ConvRows::Fit(const Dim& rows, const Dim& columns) {
  constexpr int64_t kAligned = 4;
  const Dim of_phase = CeilDiv(g_.Reach(g_.rank() - 1, columns), phases_);
  channel_rows_ = rows;
  pitch_ = math_.Name(CeilDiv(CeilDiv(of_phase, lanes_) * lanes_ + front_, kAligned) * kAligned);
  is_flat_ = true;
}

Dim ConvRows::elements() const {
  return channel_rows_ * g_.outer_places() * phases_ * pitch_ * group_;
}

Value ConvRows::Memory(int64_t channels) {
  const SymShape shape({channels * g_.outer_places() * channel_rows_, phases_ * pitch_ * group_});
  return lb_.Alloc(VTensorType::Get(lb_.context(), shape, element_));
}

std::vector<Value> ConvRows::At(const Dim& row, const Dim& column) {
  if (!is_flat_) return math_.At({row, column});
  return math_.At({row * (phases_ * pitch_ * group_) + column});
}

Value ConvRows::Read(Value memory, const Dim& channel, const Dim& outer, const Dim& row_of_kernel,
                     const Dim& column_of_kernel, const Dim& row, const Dim& column) {
  const size_t last = g_.rank() - 1;
  const Dim seen = skips_rows_ ? row * g_.kernel[last - 1] + row_of_kernel
                               : row * row_stride_ + row_of_kernel * row_dilation_;
  const Dim from = (channel * g_.outer_places() + outer) * channel_rows_ + seen;
  const Dim at = column * g_.strides[last] + column_of_kernel * g_.dilations[last];
  if (group_ == 1) return lb_.Load(memory, At(from, at));
  return lb_.Load(memory, At(from, at * group_), group_);
}

Value ConvRows::ReadApart(Value memory, const Dim& channel, const Dim& row, const Dim& column,
                          int64_t lanes, int64_t stride) {
  const Dim from = channel * g_.outer_places() * channel_rows_ + row;
  return lb_.LoadApart(memory, At(from, column), lanes, -1, stride);
}

Value ConvRows::ReadVector(Value memory, const Dim& channel, const Dim& outer, const Dim& below,
                           const Dim& column_of_kernel, const Dim& row, const Dim& column) {
  const int64_t stride = g_.strides.back();
  const Dim from =
      (channel * g_.outer_places() + outer) * channel_rows_ + row * row_stride_ + below;
  const Dim reach = column_of_kernel * g_.dilations.back();
  if (phases_ == stride) {
    const Dim at = Mod(reach, stride) * pitch_ + FloorDiv(reach, stride) + column;
    return lb_.Load(memory, At(from, at), lanes_);
  }
  return lb_.LoadApart(memory, At(from, column * stride + reach), lanes_, -1, stride);
}

// 1 if the input has an element that lies `reach` from the beginning of the padding, else 0.
Dim ConvRows::Inside(size_t axis, const Dim& reach) const {
  const Dim begin = g_.begins[axis];
  return Max(Min(reach - begin + 1, 1), 0) * Max(Min(begin + g_.in[axis] - reach, 1), 0);
}

void ConvRows::Write(const ConvInput& input, const Dim& image, const Dim& first_channel,
                     const Dim& channels, const ConvBlock& block, Value memory) {
  WriteOuter(block, {{}, 1, 0}, 0, [&](const Row& row) {
    WriteVectors(input, image, first_channel, channels, block, row, memory);
  });
}

// A loop over the kernel for each spatial dim before the last two, then one over the rows.
void ConvRows::WriteOuter(const ConvBlock& block, Row row, const Dim& place,
                          const std::function<void(const Row&)>& body) {
  const size_t a = row.at.size();
  if (a + 1 == g_.rank()) {
    row.to = place * channel_rows_;
    return body(row);
  }
  const Dim first = block.row * row_stride_;
  const int64_t kernel = g_.kernel[a];
  if (a + 2 < g_.rank()) {
    return math_.For(kernel, false, [&](const Dim& k) {
      const Dim reach = block.outer[a] * g_.strides[a] + k * g_.dilations[a];
      Row inner = RowAt(row, reach, 0);
      WriteOuter(block, std::move(inner), place * kernel + k, body);
    });
  }
  const bool whole = g_.is_static() && !is_flat_;
  const Dim to = place * channel_rows_;
  if (skips_rows_) {
    return math_.For(whole ? Dim(block_rows_) : block.rows, false, [&](const Dim& r) {
      math_.For(kernel, false, [&](const Dim& k) {
        body(RowAt(row, first + r * row_stride_ + k * row_dilation_, to + r * kernel + k));
      });
    });
  }
  const Dim rows = whole ? Dim(rows_) : math_.Name(g_.Reach(a, block.rows));
  math_.For(rows, false, [&](const Dim& k) { body(RowAt(row, first + k, to + k)); });
}

// One that lies `reach` from the beginning of the padding.
ConvRows::Row ConvRows::RowAt(Row row, const Dim& reach, const Dim& to) {
  const size_t a = row.at.size();
  row.inside = math_.Name(row.inside * Inside(a, reach));
  row.at.push_back(math_.Name(Min(Max(reach - g_.begins[a], 0), g_.in[a] - 1)));
  row.to = to;
  return row;
}

void ConvRows::WriteVectors(const ConvInput& input, const Dim& image, const Dim& first_channel,
                            const Dim& channels, const ConvBlock& block, const Row& row,
                            Value memory) {
  math_.For(leaves_out_rows_ ? row.inside : Dim(1), false, [&](const Dim&) {
    for (int64_t phase = 0; phase < phases_; ++phase) {
      if (IsRead(phase)) {
        WritePhase(input, image, first_channel, channels, block, row, phase, memory);
      }
    }
  });
}

// By a place of the kernel.
bool ConvRows::IsRead(int64_t phase) const {
  for (int64_t k = 0; k < g_.kernel.back(); ++k) {
    if (k * g_.dilations.back() % phases_ == phase) return true;
  }
  return false;
}

void ConvRows::WritePhase(const ConvInput& input, const Dim& image, const Dim& first_channel,
                          const Dim& channels, const ConvBlock& block, const Row& row,
                          int64_t phase, Value memory) {
  const size_t last = g_.rank() - 1;
  // From the beginning of the padding.
  const Dim before = block.column * g_.strides[last] + phase;
  const Dim skipped = math_.Name(
      Min(CeilDiv(Max(g_.begins[last] - before, 0), phases_), CeilDiv(columns_, phases_)));
  const Dim from = math_.Name(Max(before + skipped * phases_ - g_.begins[last], 0));
  const Dim in_row = math_.Name(CeilDiv(Max(g_.in[last] - from, 0), phases_));
  const Dim count = math_.Name(row.inside * in_row);
  const bool whole = g_.is_static() && !is_flat_;
  const Dim all = whole ? Dim(columns_) : g_.Reach(last, block.columns);
  const Dim columns = near_ ? Min(all, in_row + *near_) : all;
  const Dim vectors = math_.Name(CeilDiv(CeilDiv(columns, phases_), lanes_));
  const Dim full = math_.Name(Min(FloorDiv(count, lanes_), vectors));
  std::vector<Value> at = math_.At({image, Dim(0)});
  for (const Dim& index : row.at) at.push_back(math_.At(index));
  at.push_back({});
  const auto each_channel = [&](const std::function<void(const Dim& c, const Dim& to)>& body) {
    math_.For(channels, false, [&](const Dim& c) {
      body(c, math_.Name(c * (g_.outer_places() * channel_rows_) + row.to));
    });
  };
  const auto copy = [&](const Dim& c, const Dim& to, const Dim& j, const Dim& live) {
    at.back() = math_.At(from + j * (lanes_ * phases_));
    const Dim column = (phase * pitch_ + skipped + j * lanes_) * group_;
    CopyVector(input, at, first_channel + c * group_, live, memory, At(to, column));
  };
  if (front_ > 0) {
    const int64_t front = near_ ? std::min(front_, RoundUp(*near_, lanes_)) : front_;
    const Dim start = front < front_ ? math_.Name(Max(skipped - front, 0)) : Dim(0);
    math_.For(Dim(1) - fronts_stay_, false, [&](const Dim&) {
      each_channel([&](const Dim&, const Dim& to) {
        WriteFront(to, phase * pitch_ + start, front, memory);
      });
    });
  }
  math_.For(Min(full, 1), false, [&](const Dim&) {
    each_channel([&](const Dim& c, const Dim& to) {
      math_.For(full, false, [&](const Dim& j) { copy(c, to, j, lanes_); });
    });
  });
  math_.For(vectors - full, false, [&](const Dim& i) {
    const Dim j = math_.Name(full + i);
    const Dim live = math_.Name(Max(Min(count - j * lanes_, lanes_), 0));
    each_channel([&](const Dim& c, const Dim& to) { copy(c, to, j, live); });
  });
}

void ConvRows::WriteFront(const Dim& to, const Dim& start, int64_t length, Value memory) {
  for (int64_t j = 0; j < length; j += lanes_) {
    const Dim column = (start + j) * group_;
    lb_.Store(memory, Padding(element_, lanes_ * group_), At(to, column));
  }
}

void ConvRows::WriteFronts(const Dim& channels, const Dim& stays, Value memory) {
  fronts_stay_ = stays;
  if (front_ == 0) return;
  const Dim rows = channels * g_.outer_places() * channel_rows_;
  math_.For(math_.Name(stays * rows), false, [&](const Dim& to) {
    for (int64_t phase = 0; phase < phases_; ++phase) {
      WriteFront(to, phase * pitch_, front_, memory);
    }
  });
}

// `live` lanes of the input, and padding.
void ConvRows::CopyVector(const ConvInput& input, std::vector<Value> at, const Dim& channel,
                          const Dim& live, Value memory, const std::vector<Value>& to) {
  if (group_ > 1) return CopyGroup(input, std::move(at), channel, live, memory, to);
  at[1] = math_.At(channel);
  const Value lanes = live.IsConstant(lanes_) ? Value() : math_.At(live);
  if (has_padding_) return input.Copy(at, lanes_, lanes, phases_, memory, to, fill_);
  lb_.Store(memory, input.Load(at, lanes_, lanes, phases_), to);
}

void ConvRows::GroupBytes(int64_t group, Value padding) {
  padding_ = padding;
  group_ = group;
  if (group == 2) element_ = ElementType::kI16;
}

void ConvRows::PairBf16() {
  element_ = ElementType::kBF16;
  group_ = 2;
}

Value ConvRows::Padding(ElementType element, int64_t lanes) {
  if (!padding_) return lb_.Splat(element, fill_, lanes);
  return lb_.As(lb_.Widen(padding_, lanes), element);
}

// Where there are fewer channels than a group has, weights of zero are multiplied by any others.
// Groups never end behind the last channel where all of them are full.
void ConvRows::CopyGroup(const ConvInput& input, std::vector<Value> at, const Dim& first,
                         const Dim& live, Value memory, const std::vector<Value>& to) {
  Value is_inside;
  if (has_padding_ && !live.IsConstant(lanes_)) {
    std::vector<double> numbers(static_cast<size_t>(lanes_));
    std::iota(numbers.begin(), numbers.end(), 0);
    const Tensor lanes = Cast(Tensor::Of<double>({lanes_}, numbers), ElementType::kI64);
    is_inside = nn::LessOp::Create(lb_.b(), lb_.Constant(lanes), math_.At(live)).c();
  }
  std::vector<Value> parts;
  const bool are_full = g_.channels % group_ == 0;
  for (int64_t i = 0; i < group_; ++i) {
    const Dim channel = first + i;
    at[1] = math_.At(are_full ? channel : Min(channel, g_.channels * g_.groups - 1));
    Value part = input.Load(at, lanes_, live.IsConstant(lanes_) ? Value() : math_.At(live));
    if (is_inside) {
      part = nn::WhereOp::Create(lb_.b(), is_inside, part, Padding(g_.element, lanes_)).output();
    }
    parts.push_back(part);
  }
  const bool narrows = element_ == ElementType::kBF16;
  lb_.Store(memory, narrows ? lb_.Narrow(parts) : lb_.As(lb_.Interleave(parts), element_), to);
}

}  // namespace lathe::lower
