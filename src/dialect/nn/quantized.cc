#include "src/dialect/nn/quantized.h"

#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"

namespace lathe::nn {
namespace {

Tensor Doubles(const Tensor& tensor) { return Cast(tensor, ElementType::kF64); }

template <class F>
Tensor Combine(const Tensor& values, const Tensor& other, const F& f) {
  const Tensor wide = eval::BroadcastTo(other, values.shape());
  return eval::MapBinary<eval::TypeList<double>>(Doubles(values), wide, f);
}

}  // namespace

void CheckPerChannel(const SymShape& shape, const Dim& channels, const std::string& what) {
  if (!shape.ranked) return;
  const bool is_list = shape.rank() == 1;
  const Dim count = is_list ? shape.dims[0] : shape.NumElements();
  Assume(is_list ? SizeCondition::BroadcastTo(count, channels) : SizeCondition::Equal(count, 1),
         "shape/quantization", [&] {
           return StrCat(what, " has shape ", shape.ToString(), ", [] or [", channels.ToString(),
                         "] is expected");
         });
}

Tensor AlongAxis(const Tensor& value, const Shape& shape, size_t axis, const std::string& what) {
  CheckPerChannel(SymShape::FromConstants(value.shape()), shape[axis], what);
  if (value.num_elements() == 1) return Doubles(value.Reshaped({}));
  Shape along(shape.size() - axis, 1);
  along[0] = shape[axis];
  return Doubles(value.Reshaped(along));
}

double ScalarOf(const Tensor& value, const std::string& what) {
  if (value.num_elements() != 1) {
    eval::FailShape("shape/scalar", StrCat(what, " is ", value.TypeString(), ", not one element"));
  }
  return ToDoubles(value)[0];
}

Tensor Centered(const Tensor& values, const Tensor& zero_point) {
  return Combine(values, zero_point, [](double a, double b) { return a - b; });
}

Tensor Scaled(const Tensor& values, const Tensor& factor) {
  return Combine(values, factor, [](double a, double b) { return a * b; });
}

Tensor Requantize(const Tensor& values, double scale, double zero_point, ElementType type) {
  const bool to_float = IsFloat(type);
  const auto quantize = [=](double x) {
    const double y = static_cast<double>(static_cast<float>(x / scale));
    if (to_float) return y + zero_point;
    return eval::Saturated(std::nearbyint(y) + zero_point, LimitsOf(type));
  };
  const Tensor y = eval::MapUnary<eval::TypeList<double>>(values, quantize);
  if (to_float) return Cast(y, type, true);
  return eval::FromDoubles(type, y.shape(), y.data<double>());
}

}  // namespace lathe::nn
