#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lathe/support/dim.h"
#include "lathe/support/tensor.h"

/// Moving elements without looking at them: one path for every element type, packed sub-byte types
/// and strings included. Offsets, strides and counts are in elements and are the caller's to check.
namespace lathe::eval {

/// Copies runs of elements between two tensors of one element type. Both outlive it; `to` must not
/// be copied or moved meanwhile.
class ElementMover {
 public:
  ElementMover(const Tensor& from, Tensor& to);
  void Copy(int64_t to, int64_t from, int64_t count = 1) const;
  /// Elements that lie apart, by `to_stride` and `from_stride`.
  void CopyApart(int64_t to, int64_t to_stride, int64_t from, int64_t from_stride,
                 int64_t count) const;
  /// A matrix: element (i, k) from i + k * from_stride to i * to_stride + k. In tiles, so that both
  /// sides use whole cache lines.
  void CopyTransposed(int64_t to, int64_t to_stride, int64_t from, int64_t from_stride,
                      int64_t rows, int64_t columns) const;

 private:
  template <class Fn>
  bool WithSize(const Fn& fn) const;
  void CopyPacked(int64_t to, int64_t from) const;

  size_t bytes_ = 0;   // per element; 0 for packed types and strings
  unsigned bits_ = 0;  // per element of packed types
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
  const std::string* from_strings_ = nullptr;
  std::string* to_strings_ = nullptr;
};

/// Where element (i0, i1, ...) lies: offset + i0 * strides[0] + i1 * strides[1] + ...
struct View {
  int64_t offset = 0;
  std::vector<int64_t> strides;

  /// All of a contiguous tensor.
  static View Of(const Tensor& tensor);
  /// Moves on by `count` places along an axis. Wraps around in tensors without elements, whose
  /// other extents may be absurd.
  void Advance(size_t axis, int64_t count);
};

/// to[i] = from[i] for every index i of `extents`.
void CopyView(const Tensor& from, const View& from_view, Tensor& to, const View& to_view,
              std::span<const int64_t> extents);
/// A new tensor with the elements of `from` under a view.
[[nodiscard]] Tensor Materialize(const Tensor& from, const View& view, Shape shape);

/// Axis i of the result is axis perm[i] of the tensor.
[[nodiscard]] Tensor Permute(const Tensor& tensor, std::span<const size_t> perm);

/// Sets every element to the first of `value`, which has the same type.
void Fill(Tensor& to, const Tensor& value);
[[nodiscard]] Tensor Filled(Shape shape, const Tensor& value);

/// Joins tensors of one type that agree but for `axis`; at least one.
[[nodiscard]] Tensor Concatenate(std::span<const Tensor> tensors, size_t axis);
/// Elements [begin, begin + extent) along `axis`.
[[nodiscard]] Tensor Narrow(const Tensor& tensor, size_t axis, int64_t begin, int64_t extent);
/// The slices at `indices` (in range) along `axis`.
[[nodiscard]] Tensor Take(const Tensor& tensor, size_t axis, std::span<const int64_t> indices);

/// Throws limit/memory if a tensor of that type and shape is larger than the allocation cap. For
/// ops that need lists as long as their result before they make it.
void CheckSize(ElementType type, const Shape& shape);

/// The numbers of a shape that is known at run time. Throws shape/negative-dim, and limit/size
/// where the rule overflowed.
[[nodiscard]] Shape Concrete(const SymShape& shape);
/// `index` counted from the back when negative; throws run/index unless 0 <= result < extent.
[[nodiscard]] int64_t CheckIndex(int64_t index, int64_t extent, const char* what);
/// The only element of an integer tensor; throws shape/scalar when there are more or none.
[[nodiscard]] int64_t ScalarInt(const Tensor& tensor, const char* what);

}  // namespace lathe::eval
