#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "lathe/dialect/scale_axis_interface.h"
#include "lathe/ir/tensor_of.h"

namespace lathe {

namespace {

/// A quotient by less may swallow what is added to it.
constexpr double kLeastDivisor = 0x1p-60;

}  // namespace

Scale::Scale(std::vector<double> values, int64_t on_axis)
    : factors(std::move(values)), axis(on_axis) {
  for (const double f : factors) {
    nonnegative &= f >= 0;
    divides &= std::fabs(f) >= kLeastDivisor;
  }
}

bool Scale::IsFinite() const {
  return std::all_of(factors.begin(), factors.end(), [](double f) { return std::isfinite(f); });
}

Scale Scale::Reciprocal() const {
  std::vector<double> inverse;
  for (const double f : factors) inverse.push_back(1 / f);
  return {std::move(inverse), axis};
}

Scale Scale::Piece(int64_t begin, int64_t count) const {
  if (is_scalar()) return *this;
  return {std::vector<double>(factors.begin() + begin, factors.begin() + begin + count), axis};
}

std::optional<Scale> AsScale(const Tensor* t, AnyTensorType data) {
  if (t == nullptr || !IsFloat(t->element_type()) || !data || !data.has_rank()) return std::nullopt;
  const auto rank = static_cast<int64_t>(data.rank());
  if (t->rank() > rank || t->num_elements() == 0) return std::nullopt;
  int64_t axis = 0;
  for (int64_t i = 0; i < t->rank(); ++i) {
    if (t->dim(i) == 1) continue;
    if (t->dim(i) != t->num_elements()) return std::nullopt;  // another one varies too
    axis = i + rank - t->rank();                              // numpy aligns at the end
    if (!data.dims()[static_cast<size_t>(axis)].IsConstant(t->dim(i))) return std::nullopt;
  }
  Scale scale(ToDoubles(*t), axis);
  return scale.IsFinite() ? std::optional(scale) : std::nullopt;
}

ChannelLayout ChannelLayout::Along(const Tensor& t, int64_t axis) {
  ChannelLayout layout{.extent = static_cast<size_t>(t.dim(axis))};
  for (int64_t i = axis + 1; i < t.rank(); ++i) layout.run *= static_cast<size_t>(t.dim(i));
  return layout;
}

namespace {

/// Numbers nearer to zero than this have fewer digits.
double LeastNormal(ElementType type) {
  switch (type) {
    case ElementType::kF16:
      return 0x1p-14;
    case ElementType::kF64:
      return std::numeric_limits<double>::min();
    default:  // bf16 has the exponents of f32
      return std::numeric_limits<float>::min();
  }
}

}  // namespace

/// A share of the largest element that small has no digits that matter.
constexpr double kNegligible = 0x1p-60;

std::optional<Tensor> RoundedTo(ElementType type, const Shape& shape,
                                std::span<const double> values) {
  double largest = 0;
  for (const double v : values) largest = std::max(largest, std::fabs(v));
  const double least = LeastNormal(type);
  for (const double v : values) {
    const double size = std::fabs(v);
    if (size != 0 && size < least && size > largest * kNegligible) return std::nullopt;
  }
  Tensor rounded = Cast(Tensor::Of<double>(shape, values), type);
  for (const double v : ToDoubles(rounded)) {
    if (!std::isfinite(v)) return std::nullopt;
  }
  return rounded;
}

namespace {

// Bit 31 is set if a product that was rounded to `to` is not finite, or if it may have lost digits.
uint32_t Doubts(float from, float to) {
  const uint32_t size = std::bit_cast<uint32_t>(to) & 0x7fffffffU;
  const uint32_t from_size = std::bit_cast<uint32_t>(from) & 0x7fffffffU;
  const uint32_t infinite = size + 0x00800000U;
  const uint32_t tiny = size - 0x00800001U, not_zero = 0U - from_size;
  return infinite | (tiny & not_zero);
}

// to[i] = from[i] * factor(i) for n elements; their doubts. In blocks, which become vectors.
template <class Factor>
uint32_t Multiply(const float* __restrict from, float* __restrict to, size_t n,
                  const Factor& factor) {
  constexpr size_t kBlock = 32;
  uint32_t doubts = 0;
  const auto one = [&](size_t i) {
    to[i] = static_cast<float>(static_cast<double>(from[i]) * factor(i));
    doubts |= Doubts(from[i], to[i]);
  };
  size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    for (size_t k = 0; k < kBlock; ++k) one(i + k);
  }
  for (; i < n; ++i) one(i);
  return doubts;
}

// Factors of the elements of a row, in which a channel has few of them.
std::vector<double> RowFactors(const Scale& scale, const ChannelLayout& channels, size_t first) {
  std::vector<double> row;
  row.reserve(channels.extent * channels.run);
  for (size_t c = 0; c < channels.extent; ++c) {
    row.insert(row.end(), channels.run, scale.at(first + c));
  }
  return row;
}

// None if a product is infinite, or may have lost digits.
std::optional<Tensor> ScaledF32(const Tensor& t, const Scale& scale,
                                const ChannelLayout& channels) {
  constexpr size_t kLongRun = 64;
  Tensor scaled(ElementType::kF32, t.shape());
  const float* from = t.data<float>().data();
  float* to = scaled.mutable_data<float>().data();
  const auto total = static_cast<size_t>(t.num_elements());
  const size_t row = channels.extent * channels.run;
  uint32_t doubts = 0;
  if (scale.is_scalar()) {
    doubts = Multiply(from, to, total, [f = scale.factors[0]](size_t) { return f; });
  }
  std::vector<double> factors;
  for (size_t at = 0; at < total && !scale.is_scalar(); at += row) {
    const size_t first = channels.FirstOf(at / row);
    if (channels.run >= kLongRun) {
      for (size_t c = 0; c < channels.extent; ++c) {
        const size_t begin = at + c * channels.run;
        doubts |= Multiply(from + begin, to + begin, channels.run,
                           [f = scale.factors[first + c]](size_t) { return f; });
      }
      continue;
    }
    if (at == 0 || first != channels.FirstOf(at / row - 1)) {
      factors = RowFactors(scale, channels, first);
    }
    doubts |= Multiply(from + at, to + at, row, [f = factors.data()](size_t i) { return f[i]; });
  }
  return doubts >> 31 == 0 ? std::optional(std::move(scaled)) : std::nullopt;
}

}  // namespace

std::optional<Tensor> Scaled(const Tensor& t, const Scale& scale, const ChannelLayout& channels) {
  if (t.element_type() == ElementType::kF32) {
    if (auto scaled = ScaledF32(t, scale, channels)) return scaled;
  }
  std::vector<double> values = ToDoubles(t);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t channel = i / channels.run % channels.extent;
    values[i] *= scale.at(channels.FirstOf(i / channels.run / channels.extent) + channel);
  }
  return RoundedTo(t.element_type(), t.shape(), values);
}

std::optional<Tensor> ScaledAlong(const Tensor& t, const Scale& scale, int64_t axis) {
  return Scaled(t, scale, ChannelLayout::Along(t, axis));
}

std::optional<Tensor> ScaledAddend(const Tensor& c, const Scale& scale, int64_t rank) {
  if (!IsFloat(c.element_type()) || c.num_elements() == 0) return std::nullopt;
  if (scale.is_scalar()) return Scaled(c, scale, {});
  const int64_t axis = scale.axis - (rank - c.rank());
  if (axis >= 0 && c.dim(axis) != 1) return ScaledAlong(c, scale, axis);
  if (c.num_elements() != 1) return std::nullopt;
  Shape shape(static_cast<size_t>(rank - scale.axis), 1);
  shape[0] = static_cast<int64_t>(scale.factors.size());
  std::vector<double> values = scale.factors;
  const double addend = ToDoubles(c)[0];
  for (double& v : values) v *= addend;
  return RoundedTo(c.element_type(), shape, values);
}

const Tensor* ScaleAxisContext::Constant(size_t operand) const {
  const bool is_there = operand < op_->num_operands() && op_->operand(operand);
  return is_there ? facts_.Constant(op_->operand(operand)) : nullptr;
}

bool ScaleAxisContext::HasTypeOfResult(size_t i) const {
  const AnyTensorType from = TensorOrNull(op_->operand(i)), to = TensorOrNull(op_->result(0));
  return from && from == to && from.has_rank() &&
         std::ranges::equal(from.dims(), to.dims(), ProvablyEqual);
}

bool ScaleAxisContext::Pass(size_t operand, const Scale& scale) {
  if (!is_forward_) {
    Operand(operand, scale);
  } else if (position_ == operand) {
    Result(0, scale);
  }
  return !is_forward_ || position_ == operand;
}

bool ScaleAxisContext::Refuse(std::string why) {
  refusal_ = std::move(why);
  return false;
}

}  // namespace lathe
