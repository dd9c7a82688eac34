#include "src/transform/scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lathe/ir/type.h"

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

Along::Along(const Tensor& t, int64_t axis) : extent(static_cast<size_t>(t.dim(axis))) {
  for (int64_t i = axis + 1; i < t.rank(); ++i) inner *= static_cast<size_t>(t.dim(i));
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

bool F32Range::fits() const { return finite_ && tiny_ <= largest_ * kNegligible; }

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

std::optional<Tensor> ScaledAlong(const Tensor& t, const Scale& scale, int64_t axis) {
  const Along along(t, axis);
  return Scaled(t, scale, along, along.inner);
}

std::optional<Tensor> ScaledAddend(const Tensor& c, const Scale& scale, int64_t rank) {
  if (!IsFloat(c.element_type()) || c.num_elements() == 0) return std::nullopt;
  if (scale.is_scalar()) return Scaled(c, scale, [](size_t) { return size_t{0}; });
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

}  // namespace lathe
