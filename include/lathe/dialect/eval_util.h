#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lathe/support/budget.h"
#include "lathe/support/element_type.h"
#include "lathe/support/tensor.h"

// What the reference evaluations of ops share: errors, axes, strides, and elementwise application
// with broadcasting. Nothing here knows an op.
//
// Elements are computed in one of four types: f32 and everything narrower that is a float in
// `float`, f64 in `double`, signed integers in `int64_t`, unsigned integers and bool in `uint64_t`.
// Results are rounded once (narrow floats) or cut to their low bits (integers) when stored; so
// integer arithmetic that wraps in 64 bits wraps in the type of the tensor.
namespace lathe::eval {

// Throws Error kShape; where it happened is added by whoever runs the op.
[[noreturn]] void FailShape(std::string id, std::string message, std::string hint = "");
// Throws Error kInvalidArgument.
[[noreturn]] void FailArgument(std::string id, std::string message, std::string hint = "");

// `axis` counted from the back when negative; throws shape/axis unless 0 <= result < rank.
[[nodiscard]] int64_t NormalizeAxis(int64_t axis, int64_t rank);
// Each of them, in the given order; throws shape/axis also when one occurs twice.
[[nodiscard]] std::vector<int64_t> NormalizeAxes(std::span<const int64_t> axes, int64_t rank);

// Distance in elements between neighbors along each dim of a contiguous row-major array.
[[nodiscard]] std::vector<int64_t> RowMajorStrides(std::span<const int64_t> shape);
// The product of dims [begin, end). Both wrap around where a tensor without elements has extents
// that large; ops return early for such.
[[nodiscard]] int64_t Product(std::span<const int64_t> dims, size_t begin, size_t end);
// The next index of `shape` in row-major order; false after the last one (all zero again).
[[nodiscard]] bool NextIndex(std::span<const int64_t> shape, std::span<int64_t> index);

// numpy's rule over all shapes; throws shape/broadcast.
[[nodiscard]] Shape BroadcastShapes(std::span<const Shape> shapes);

// A copy of `tensor` under the shape that it broadcasts to; throws shape/broadcast.
[[nodiscard]] Tensor BroadcastTo(const Tensor& tensor, const Shape& shape);

// Walks the elements of an output in rows along which every input is contiguous or constant.
class Broadcaster {
 public:
  // Throws shape/broadcast when an input cannot be broadcast to `output`.
  Broadcaster(std::span<const Shape> inputs, const Shape& output);

  [[nodiscard]] int64_t row_length() const { return row_length_; }
  // Distance in elements of neighbors in a row of input `i`: 0 or 1.
  [[nodiscard]] int64_t stride(size_t i) const { return inner_strides_[i]; }

  // Calls f(output_offset, offsets) for each row: where it starts in the output and each input.
  template <class F>
  void ForEachRow(F&& f) const {
    if (rows_ == 0) return;
    std::vector<int64_t> index(outer_.size(), 0);
    std::vector<int64_t> offsets(inner_strides_.size(), 0);
    BudgetTicker ticker;
    for (int64_t row = 0; row < rows_; ++row) {
      ticker.Tick();
      f(row * row_length_, std::span<const int64_t>(offsets));
      Advance(index, offsets);
    }
  }

 private:
  void Advance(std::vector<int64_t>& index, std::vector<int64_t>& offsets) const;
  void AddDim(int64_t extent, std::span<const int64_t> strides);

  std::vector<int64_t> outer_;                       // extents, outermost first
  std::vector<std::vector<int64_t>> outer_strides_;  // per outer dim, per input
  std::vector<int64_t> inner_strides_;
  int64_t row_length_ = 1;
  int64_t rows_ = 1;
};

// Elements [offset, offset + count) of an array of `type` as C, one of the four computing types.
// For bool, 8 to 64-bit integers, f8 (all five), f16, bf16, f32, f64; others throw type/element.
template <class C>
void Load(ElementType type, const void* data, int64_t offset, int64_t count, C* out);
// The inverse. Floats to integers: truncated and clamped to the range, NaN becomes 0.
template <class C>
void Store(ElementType type, void* data, int64_t offset, int64_t count, const C* in);

// `value` rounded to a float `type`, as a tensor of that type would hold it.
[[nodiscard]] double RoundedTo(ElementType type, double value);

// All elements, and a tensor of them.
template <class C>
[[nodiscard]] std::vector<C> LoadAll(const Tensor& tensor) {
  std::vector<C> values(static_cast<size_t>(tensor.num_elements()));
  Load<C>(tensor.element_type(), tensor.raw(), 0, tensor.num_elements(), values.data());
  return values;
}
template <class C>
[[nodiscard]] Tensor MakeTensor(ElementType type, Shape shape, std::span<const C> values) {
  Tensor result(type, std::move(shape));
  Store<C>(type, result.mutable_raw(), 0, result.num_elements(), values.data());
  return result;
}
// In the range of an integer type; NaN goes to the lowest value.
[[nodiscard]] inline double Saturated(double value, const IntegerLimits& limits) {
  return value > limits.low ? std::min(value, limits.high) : limits.low;
}
// With one rounding from double.
[[nodiscard]] inline Tensor FromDoubles(ElementType type, Shape shape,
                                        std::span<const double> values) {
  return MakeTensor<double>(type, std::move(shape), values);
}

// out[i] = op(in[0][i], in[1][i], ...) for i < n.
template <class C>
using RowKernel = void (*)(const void* op, std::span<const C* const> in, C* out, int64_t n);

// An elementwise op in each computing type that it allows; null for the others. Without `f32` all
// floats are computed in double.
struct RowKernels {
  const void* op = nullptr;
  RowKernel<float> f32 = nullptr;
  RowKernel<double> f64 = nullptr;
  RowKernel<int64_t> i64 = nullptr;
  RowKernel<uint64_t> u64 = nullptr;
};

// Applies the kernel that goes with the type of the first input to the broadcast inputs. Throws
// shape/broadcast, and type/element when there is no such kernel.
[[nodiscard]] Tensor Elementwise(std::span<const Tensor> inputs, ElementType result,
                                 const RowKernels& kernels);

template <class... Cs>
struct TypeList {
  template <class C>
  static constexpr bool kHas = (std::is_same_v<C, Cs> || ...);
};
using Floats = TypeList<float, double>;
using Doubles =
    TypeList<double>;  // functions whose float versions cancel or err by more than an ulp
using Integers = TypeList<int64_t, uint64_t>;
using Signed = TypeList<float, double, int64_t>;
using Numeric = TypeList<float, double, int64_t, uint64_t>;

namespace internal {
template <class F>
struct UnaryRow {
  template <class C>
  static void Run(const void* op, std::span<const C* const> in, C* out, int64_t n) {
    const F& f = *static_cast<const F*>(op);
    const C* x = in[0];
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<C>(f(x[i]));
  }
};
template <class F>
struct BinaryRow {
  template <class C>
  static void Run(const void* op, std::span<const C* const> in, C* out, int64_t n) {
    const F& f = *static_cast<const F*>(op);
    const C* a = in[0];
    const C* b = in[1];
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<C>(f(a[i], b[i]));
  }
};
template <class F>
struct FoldRow {
  template <class C>
  static void Run(const void* op, std::span<const C* const> in, C* out, int64_t n) {
    const F& f = *static_cast<const F*>(op);
    for (int64_t i = 0; i < n; ++i) {
      C value = in[0][i];
      for (size_t k = 1; k < in.size(); ++k) value = static_cast<C>(f(value, in[k][i]));
      out[i] = value;
    }
  }
};
template <class Types, class Row>
RowKernels MakeKernels(const void* op) {
  RowKernels kernels;
  kernels.op = op;
  if constexpr (Types::template kHas<float>) kernels.f32 = &Row::template Run<float>;
  if constexpr (Types::template kHas<double>) kernels.f64 = &Row::template Run<double>;
  if constexpr (Types::template kHas<int64_t>) kernels.i64 = &Row::template Run<int64_t>;
  if constexpr (Types::template kHas<uint64_t>) kernels.u64 = &Row::template Run<uint64_t>;
  return kernels;
}
}  // namespace internal

// f(x) for each element; `Types` are the computing types to compile. The second form stores the
// result as another type (bool for a predicate).
template <class Types, class F>
[[nodiscard]] Tensor MapUnary(const Tensor& x, ElementType result, const F& f) {
  return Elementwise({&x, 1}, result, internal::MakeKernels<Types, internal::UnaryRow<F>>(&f));
}
template <class Types, class F>
[[nodiscard]] Tensor MapUnary(const Tensor& x, const F& f) {
  return MapUnary<Types>(x, x.element_type(), f);
}

// f(a, b) for each pair of broadcast elements; a and b have the same element type.
template <class Types, class F>
[[nodiscard]] Tensor MapBinary(const Tensor& a, const Tensor& b, ElementType result, const F& f) {
  const Tensor inputs[] = {a, b};
  return Elementwise(inputs, result, internal::MakeKernels<Types, internal::BinaryRow<F>>(&f));
}
template <class Types, class F>
[[nodiscard]] Tensor MapBinary(const Tensor& a, const Tensor& b, const F& f) {
  return MapBinary<Types>(a, b, a.element_type(), f);
}

// f(...f(f(x0, x1), x2)..., xn) over the broadcast elements; intermediate values are not rounded.
template <class Types, class F>
[[nodiscard]] Tensor MapFold(std::span<const Tensor> inputs, const F& f) {
  return Elementwise(inputs, inputs[0].element_type(),
                     internal::MakeKernels<Types, internal::FoldRow<F>>(&f));
}

// Wrap-around arithmetic: unsigned for integers, plain for floats.
template <class C>
[[nodiscard]] C WrapAdd(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}
template <class C>
[[nodiscard]] C WrapSub(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
  } else {
    return a - b;
  }
}
template <class C>
[[nodiscard]] C WrapMul(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

// The greater (lesser) one; NaN if either is NaN.
template <class C>
[[nodiscard]] C NanMax(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return a < b ? b : a;
}
template <class C>
[[nodiscard]] C NanMin(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return b < a ? b : a;
}

}  // namespace lathe::eval
