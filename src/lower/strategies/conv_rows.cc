#include "src/lower/strategies/conv_rows.h"

#include <algorithm>
#include <numeric>

#include "lathe/dialect/loop.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/movement.h"

namespace lathe::lower {

ConvRows::ConvRows(LoopBuilder& lb, IndexMath& math, const ConvGeometry& geometry, int64_t lanes,
                   int64_t block_rows, int64_t block_columns, double fill)
    : lb_(lb),
      math_(math),
      g_(geometry),
      lanes_(lanes),
      fill_(fill),
      has_rows_(geometry.rank() > 1) {
  const size_t last = g_.rank() - 1;
  if (has_rows_) {
    row_stride_ = g_.strides[last - 1];
    row_dilation_ = g_.dilations[last - 1];
    rows_ = Reach(last - 1, block_rows).value();
  }
  columns_ = Reach(last, block_columns).value();
  for (size_t a = 0; a < g_.rank(); ++a) {
    const Dim beyond = Reach(a, g_.out[a]) - g_.begins[a] - g_.in[a];
    has_padding_ |= g_.most_begin(a) > 0 || beyond.UpperBound().value_or(1) > 0;
  }
  front_ = std::min(g_.most_begin(last), columns_);
  pitch_ = (front_ + columns_ + 2 * lanes_ - 1) / lanes_ * lanes_;
}

// Elements of the input from the first to the last that so many positions read.
Dim ConvRows::Reach(size_t axis, const Dim& count) const {
  return (count - 1) * g_.strides[axis] + (g_.kernel[axis] - 1) * g_.dilations[axis] + 1;
}

Value ConvRows::Memory(int64_t channels) {
  const SymShape shape({Dim(channels * g_.outer_places() * rows_), Dim(pitch_ * group_)});
  return lb_.Alloc(VTensorType::Get(lb_.context(), shape, g_.element));
}

Value ConvRows::Read(Value memory, const Dim& channel, const Dim& outer, const Dim& row_of_kernel,
                     const Dim& column_of_kernel, const Dim& row, const Dim& column) {
  const size_t last = g_.rank() - 1;
  const Dim from = (channel * g_.outer_places() + outer) * rows_ + row * row_stride_ +
                   row_of_kernel * row_dilation_;
  const Dim at = column * g_.strides[last] + column_of_kernel * g_.dilations[last];
  if (group_ == 1) return lb_.Load(memory, math_.At({from, at}));
  return lb_.Load(memory, math_.At({from, at * group_}), group_);
}

Value ConvRows::ReadApart(Value memory, const Dim& channel, const Dim& row, const Dim& column,
                          int64_t lanes, int64_t stride) {
  const Dim from = channel * g_.outer_places() * rows_ + row;
  return lb_.LoadApart(memory, math_.At({from, column}), lanes, -1, stride);
}

Value ConvRows::ReadVector(Value memory, const Dim& channel, const Dim& outer, int64_t below,
                           int64_t column_of_kernel, const Dim& row, const Dim& column) {
  const size_t last = g_.rank() - 1;
  const Dim from = (channel * g_.outer_places() + outer) * rows_ + row * row_stride_ + below;
  const Dim at = column * g_.strides[last] + column_of_kernel * g_.dilations[last];
  if (g_.strides[last] == 1) return lb_.Load(memory, math_.At({from, at}), lanes_);
  return lb_.LoadApart(memory, math_.At({from, at}), lanes_, -1, g_.strides[last]);
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
    row.to = place * rows_;
    return body(row);
  }
  const bool outer = a + 2 < g_.rank();
  const Dim rows = g_.is_static() || outer ? Dim(rows_) : math_.Name(Reach(a, block.rows));
  math_.For(outer ? Dim(g_.kernel[a]) : rows, false, [&](const Dim& k) {
    Row inner = row;
    const Dim reach =
        outer ? block.outer[a] * g_.strides[a] + k * g_.dilations[a] : block.row * row_stride_ + k;
    inner.inside = math_.Name(row.inside * Inside(a, reach));
    inner.at.push_back(math_.Name(Min(Max(reach - g_.begins[a], 0), g_.in[a] - 1)));
    if (outer) return WriteOuter(block, std::move(inner), place * g_.kernel[a] + k, body);
    inner.to = place * rows_ + k;
    body(inner);
  });
}

void ConvRows::WriteVectors(const ConvInput& input, const Dim& image, const Dim& first_channel,
                            const Dim& channels, const ConvBlock& block, const Row& row,
                            Value memory) {
  const size_t last = g_.rank() - 1;
  const Dim before = block.column * g_.strides[last];  // from the beginning of the padding
  const Dim skipped = math_.Name(Min(Max(g_.begins[last] - before, 0), columns_));
  const Dim from = math_.Name(Max(before - g_.begins[last], 0));
  const Dim count = math_.Name(row.inside * Max(g_.in[last] - from, 0));
  const auto each_channel = [&](const std::function<void(const Dim& c, const Dim& to)>& body) {
    math_.For(channels, false,
              [&](const Dim& c) { body(c, c * (g_.outer_places() * rows_) + row.to); });
  };
  for (int64_t j = 0; j < front_; j += lanes_) {
    each_channel([&](const Dim&, const Dim& to) {
      lb_.Store(memory, Padding(lanes_ * group_), math_.At({to, Dim(j * group_)}));
    });
  }
  const Dim columns = g_.is_static() ? Dim(columns_) : Reach(last, block.columns);
  math_.For(CeilDiv(columns, lanes_), false, [&](const Dim& j) {
    const Value live = math_.At(Max(Min(count - j * lanes_, lanes_), 0));
    std::vector<Value> at = math_.At({image, Dim(0)});
    for (const Dim& index : row.at) at.push_back(math_.At(index));
    at.push_back(math_.At(from + j * lanes_));
    const Dim column = math_.Name(skipped + j * lanes_);
    const Dim inside = group_ == 1 ? Dim(0) : math_.Of(live);
    each_channel([&](const Dim& c, const Dim& to) {
      const std::vector<Value> to_at = math_.At({to, column * group_});
      if (group_ > 1)
        return CopyGroup(input, at, first_channel + c * group_, inside, memory, to_at);
      at[1] = math_.At(first_channel + c);
      if (has_padding_) return input.Copy(at, lanes_, live, 1, memory, to_at, fill_);
      lb_.Store(memory, input.Load(at, lanes_, live), to_at);
    });
  });
}

void ConvRows::GroupBytes(Value padding) {
  padding_ = padding;
  group_ = loop::kDotGroup;
}

Value ConvRows::Padding(int64_t lanes) {
  return padding_ ? lb_.Widen(padding_, lanes) : lb_.Splat(g_.element, fill_, lanes);
}

// Where there are fewer channels than a group has, weights of zero are multiplied by any others.
// Groups never end behind the last channel where all of them are full.
void ConvRows::CopyGroup(const ConvInput& input, std::vector<Value> at, const Dim& first,
                         const Dim& live, Value memory, const std::vector<Value>& to) {
  Value is_inside;
  if (has_padding_) {
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
    Value part = input.Load(at, lanes_, math_.At(live));
    if (is_inside) {
      part = nn::WhereOp::Create(lb_.b(), is_inside, part, Padding(lanes_)).output();
    }
    parts.push_back(part);
  }
  lb_.Store(memory, lb_.Interleave(parts), to);
}

}  // namespace lathe::lower
