#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lathe/support/buffer.h"
#include "lathe/support/element_type.h"
#include "lathe/support/float_types.h"

namespace lathe {

using Shape = std::vector<int64_t>;

template <>
inline constexpr ElementType ElementTypeOf<std::string> = ElementType::kString;

// The product of the dims. Throws shape/negative-dim, or limit/size when it exceeds int64.
[[nodiscard]] int64_t NumElements(std::span<const int64_t> dims);
// "[2,3]"; "[]" for a scalar.
[[nodiscard]] std::string ShapeToString(std::span<const int64_t> dims);

// A contiguous row-major array of one element type. A value handle: copying shares the bytes,
// writing through mutable_* copies first when they are shared or read-only. The default tensor has
// type kUndefined and nothing else. Reading from several threads is safe.
//
// Sub-byte types are stored packed as in ONNX raw_data and DLPack: element 0 in the low bits of
// byte 0; the unused high bits of the last byte mean nothing. Strings are std::string objects.
class Tensor {
 public:
  Tensor() = default;
  // Zeroed (empty strings). Throws like NumElements and Buffer::Allocate.
  Tensor(ElementType type, Shape shape);

  // `offset` in bytes. Throws limit/bounds when the buffer is too small; copies when the data is
  // not aligned for the type. Not for strings.
  [[nodiscard]] static Tensor FromBuffer(ElementType type, Shape shape,
                                         std::shared_ptr<Buffer> buffer, size_t offset = 0);
  // A copy of `bytes`, which must have exactly the right size, else throws shape/bytes.
  [[nodiscard]] static Tensor FromBytes(ElementType type, Shape shape,
                                        std::span<const std::byte> bytes);

  // From C++ values; packs sub-byte types; T as in ElementTypeOf. `values` must have NumElements
  // entries, else throws shape/elements.
  template <class T>
  [[nodiscard]] static Tensor Of(Shape shape, std::span<const T> values);
  template <class T>
  [[nodiscard]] static Tensor Of(Shape shape, const std::vector<T>& values);
  template <class T>
  [[nodiscard]] static Tensor Of(Shape shape, std::initializer_list<T> values) {
    return Of<T>(std::move(shape), std::span<const T>(values.begin(), values.size()));
  }
  template <class T>
  [[nodiscard]] static Tensor Scalar(T value) {
    return Of<T>(Shape{}, std::span<const T>(&value, 1));
  }

  [[nodiscard]] bool is_defined() const { return type_ != ElementType::kUndefined; }
  explicit operator bool() const { return is_defined(); }
  [[nodiscard]] ElementType element_type() const { return type_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] int64_t rank() const { return static_cast<int64_t>(shape_.size()); }
  // Negative i counts from the back. Throws shape/axis when out of range.
  [[nodiscard]] int64_t dim(int64_t i) const;
  [[nodiscard]] int64_t num_elements() const { return num_elements_; }
  // Bytes of raw(); 0 for strings.
  [[nodiscard]] size_t byte_size() const { return byte_size_; }
  // The text form of the type: "f32[2,3]".
  [[nodiscard]] std::string TypeString() const;

  // The stored bytes; never null unless byte_size() is 0. Null for strings.
  [[nodiscard]] const std::byte* raw() const { return raw_; }
  [[nodiscard]] std::byte* mutable_raw();
  [[nodiscard]] std::span<const std::byte> bytes() const { return {raw_, byte_size_}; }

  // The elements, num_elements() of them. Throws type/element when T is not the storage type (index
  // is int64_t) or the type is packed (see Elements).
  template <class T>
  [[nodiscard]] std::span<const T> data() const {
    CheckType(ElementTypeOf<T>);
    return {static_cast<const T*>(RawElements()), static_cast<size_t>(num_elements_)};
  }
  template <class T>
  [[nodiscard]] std::span<T> mutable_data() {
    CheckType(ElementTypeOf<T>);
    return {static_cast<T*>(MutableRawElements()), static_cast<size_t>(num_elements_)};
  }

  // The same elements under another shape of the same size (shared), else throws shape/reshape.
  [[nodiscard]] Tensor Reshaped(Shape shape) const;
  // The same bytes as another type of the same width (index and i64, for instance).
  [[nodiscard]] Tensor Reinterpreted(ElementType type) const;
  // Bytes of its own.
  [[nodiscard]] Tensor Clone() const;
  [[nodiscard]] bool SharesStorageWith(const Tensor& other) const;
  // The owner of the bytes, null for strings and undefined tensors.
  [[nodiscard]] const std::shared_ptr<Buffer>& buffer() const { return buffer_; }

  // Type, shape and bytes: NaN equals the same NaN, 0.0 differs from -0.0.
  friend bool operator==(const Tensor& a, const Tensor& b);

  // The first `limit` elements for a person: "[[1, 2], [3, ...]]".
  [[nodiscard]] std::string ToString(int64_t limit = 100) const;

 private:
  void CheckType(ElementType requested) const;
  [[nodiscard]] const void* RawElements() const;
  [[nodiscard]] void* MutableRawElements();
  void EnsureUnique();

  ElementType type_ = ElementType::kUndefined;
  Shape shape_;
  int64_t num_elements_ = 0;
  size_t byte_size_ = 0;
  const std::byte* raw_ = nullptr;
  std::shared_ptr<Buffer> buffer_;
  std::shared_ptr<std::vector<std::string>> strings_;
};

namespace internal {
// Between packed storage and one byte per element (sign-extended for signed types).
void UnpackBits(ElementType type, const std::byte* packed, int64_t count, void* unpacked);
void PackBits(ElementType type, const void* unpacked, int64_t count, std::byte* packed);
[[noreturn]] void BadElementCount(const Shape& shape, size_t given);
}  // namespace internal

// True for the C++ types whose tensors are packed.
template <class T>
inline constexpr bool kIsPacked =
    std::is_same_v<T, Int4> || std::is_same_v<T, UInt4> || std::is_same_v<T, Int2> ||
    std::is_same_v<T, UInt2> || std::is_same_v<T, F4E2M1>;

// Read access to the elements of any tensor as T: the tensor's own memory, or an unpacked copy for
// the sub-byte types. Keeps the tensor alive.
template <class T>
class Elements {
 public:
  explicit Elements(Tensor tensor);

  [[nodiscard]] const T& operator[](int64_t i) const { return span_[static_cast<size_t>(i)]; }
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(span_.size()); }
  [[nodiscard]] std::span<const T> span() const { return span_; }
  [[nodiscard]] auto begin() const { return span_.begin(); }
  [[nodiscard]] auto end() const { return span_.end(); }

 private:
  Tensor tensor_;
  std::unique_ptr<T[]> unpacked_;
  std::span<const T> span_;
};

// An unpacked copy of a sub-byte tensor (or a copy of any other); not for bool, see Elements.
template <class T>
[[nodiscard]] std::vector<T> Unpack(const Tensor& tensor) {
  const Elements<T> elements(tensor);
  return std::vector<T>(elements.begin(), elements.end());
}
// The inverse: Tensor::Of under the name that goes with Unpack.
template <class T>
[[nodiscard]] Tensor Pack(Shape shape, std::span<const T> values) {
  return Tensor::Of<T>(std::move(shape), values);
}

// The elements of any real numeric or bool tensor. ToInt64s truncates floats and throws
// type/element for strings and complex; ToDoubles takes the nearest double.
[[nodiscard]] std::vector<int64_t> ToInt64s(const Tensor& tensor);
[[nodiscard]] std::vector<double> ToDoubles(const Tensor& tensor);

struct CastOptions {
  // Narrow floats: out of range becomes the largest value (true), or infinity, else NaN (false).
  bool saturate = true;
  PowerRounding f8e8m0_rounding = PowerRounding::kUp;
};

// ONNX Cast (https://onnx.ai/onnx/operators/onnx__Cast.html) between any two types:
//   float to integer truncates; where the result does not fit, or for NaN, it is what numpy gives
//     on x86-64: the smallest i64 or i32 (for widths up to 32), then the low bits of it
//   integer to integer keeps the low bits
//   to bool: nonzero and NaN are true; bool counts as 0 and 1
//   to string: as numpy prints it: shortest digits that read back ("1.0", "1e-05", "1e+16",
//     "True", "(1+2j)"); from string: decimal or scientific, inf, nan, True, False, blanks around;
//     throws parse/number otherwise; to integers truncates
//   complex to real drops the imaginary part
[[nodiscard]] Tensor Cast(const Tensor& tensor, ElementType type, const CastOptions& options);
[[nodiscard]] inline Tensor Cast(const Tensor& tensor, ElementType type, bool saturate = true) {
  return Cast(tensor, type, CastOptions{.saturate = saturate});
}

// Zeros of the same type and shape; of the same shape and another type.
[[nodiscard]] Tensor ZeroLike(const Tensor& tensor);
[[nodiscard]] Tensor ZeroLike(const Tensor& tensor, ElementType type);

// Whether |a - b| <= atol + rtol * |b| for all elements (NaN equals NaN, infinities by sign); type
// and shape must agree too; strings and bools must be equal.
struct Closeness {
  bool close = true;
  int64_t mismatches = 0;
  double max_abs_error = 0;
  double max_rel_error = 0;
  // Empty when close, else the reason with the worst element: "3 of 6 differ; worst at [1,2]: ...".
  std::string description;

  explicit operator bool() const { return close; }
};
[[nodiscard]] Closeness AllClose(const Tensor& a, const Tensor& b, double rtol = 1e-5,
                                 double atol = 1e-8);

template <class T>
Tensor Tensor::Of(Shape shape, std::span<const T> values) {
  static_assert(ElementTypeOf<T> != ElementType::kUndefined, "not a tensor element type");
  Tensor result(ElementTypeOf<T>, std::move(shape));
  if (static_cast<size_t>(result.num_elements_) != values.size()) {
    internal::BadElementCount(result.shape_, values.size());
  }
  if constexpr (kIsPacked<T>) {
    internal::PackBits(result.type_, values.data(), result.num_elements_, result.mutable_raw());
  } else {
    T* out = result.mutable_data<T>().data();
    for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
  }
  return result;
}

template <class T>
Tensor Tensor::Of(Shape shape, const std::vector<T>& values) {
  if constexpr (std::is_same_v<T, bool>) {
    auto plain = std::make_unique<bool[]>(values.size());
    for (size_t i = 0; i < values.size(); ++i) plain[i] = values[i];
    return Of<bool>(std::move(shape), std::span<const bool>(plain.get(), values.size()));
  } else {
    return Of<T>(std::move(shape), std::span<const T>(values));
  }
}

template <class T>
Elements<T>::Elements(Tensor tensor) : tensor_(std::move(tensor)) {
  if constexpr (kIsPacked<T>) {
    const auto count = static_cast<size_t>(tensor_.num_elements());
    unpacked_ = std::make_unique<T[]>(count);
    span_ = {unpacked_.get(), count};
    internal::UnpackBits(ElementTypeOf<T>, tensor_.raw(), tensor_.num_elements(), unpacked_.get());
  } else {
    span_ = tensor_.template data<T>();
  }
}

}  // namespace lathe
