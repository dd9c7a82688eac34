#include "src/dialect/move.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/buffer.h"
#include "lathe/support/error.h"

namespace lathe::eval {

ElementMover::ElementMover(const Tensor& from, Tensor& to) {
  LATHE_CHECK(from.element_type() == to.element_type());
  if (from.element_type() == ElementType::kString) {
    to_strings_ = to.mutable_data<std::string>().data();
    from_strings_ = from.data<std::string>().data();
    return;
  }
  to_ = to.mutable_raw();
  from_ = from.raw();
  const auto bits = static_cast<unsigned>(BitWidth(from.element_type()));
  if (IsSubByte(from.element_type())) {
    bits_ = bits;
  } else {
    bytes_ = bits / 8;
  }
}

void ElementMover::Copy(int64_t to, int64_t from, int64_t count) const {
  const auto n = static_cast<size_t>(count);
  if (bytes_ != 0) {
    std::memcpy(to_ + static_cast<size_t>(to) * bytes_, from_ + static_cast<size_t>(from) * bytes_,
                n * bytes_);
  } else if (bits_ != 0) {
    for (int64_t i = 0; i < count; ++i) CopyPacked(to + i, from + i);
  } else {
    std::copy_n(from_strings_ + from, n, to_strings_ + to);
  }
}

/// Calls fn(copy), where copy(to, from) moves one element of a size known at compile time; false
/// if elements have no such size.
template <class Fn>
bool ElementMover::WithSize(const Fn& fn) const {
  const auto call = [&]<size_t kSize>(std::integral_constant<size_t, kSize>) {
    fn([out = to_, in = from_](int64_t to, int64_t from) {
      std::memcpy(out + static_cast<size_t>(to) * kSize, in + static_cast<size_t>(from) * kSize,
                  kSize);
    });
    return true;
  };
  switch (bytes_) {
    case 1:
      return call(std::integral_constant<size_t, 1>());
    case 2:
      return call(std::integral_constant<size_t, 2>());
    case 4:
      return call(std::integral_constant<size_t, 4>());
    case 8:
      return call(std::integral_constant<size_t, 8>());
    default:
      return false;
  }
}

void ElementMover::CopyApart(int64_t to, int64_t to_stride, int64_t from, int64_t from_stride,
                             int64_t count) const {
  const bool done = WithSize([&](const auto& copy) {
    for (int64_t i = 0; i < count; ++i) copy(to + i * to_stride, from + i * from_stride);
  });
  for (int64_t i = 0; !done && i < count; ++i) Copy(to + i * to_stride, from + i * from_stride);
}

namespace {

// Four by four elements of four bytes: element (i, k) from from[i + k * from_stride] to
// to[i * to_stride + k].
void TransposeFour(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride) {
  using Four = uint32_t __attribute__((vector_size(16)));
  Four in[4], out[4];
  for (int64_t k = 0; k < 4; ++k) std::memcpy(&in[k], from + k * from_stride * 4, sizeof(Four));
  const Four low01 = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
  const Four low23 = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
  const Four high01 = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
  const Four high23 = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
  out[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  out[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  out[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  out[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
  for (int64_t i = 0; i < 4; ++i) std::memcpy(to + i * to_stride * 4, &out[i], sizeof(Four));
}

}  // namespace

void ElementMover::CopyTransposed(int64_t to, int64_t to_stride, int64_t from, int64_t from_stride,
                                  int64_t rows, int64_t columns) const {
  constexpr int64_t kTile = 16;
  const auto tile = [&](int64_t i0, int64_t k0) {
    const int64_t i1 = std::min(rows, i0 + kTile), k1 = std::min(columns, k0 + kTile);
    int64_t i = i0;
    for (; bytes_ == 4 && i + 4 <= i1; i += 4) {
      int64_t k = k0;
      for (; k + 4 <= k1; k += 4) {
        TransposeFour(to_ + (to + i * to_stride + k) * 4, to_stride,
                      from_ + (from + i + k * from_stride) * 4, from_stride);
      }
      for (int64_t row = i; row < i + 4 && k < k1; ++row) {
        CopyApart(to + row * to_stride + k, 1, from + row + k * from_stride, from_stride, k1 - k);
      }
    }
    for (; i < i1; ++i) {
      CopyApart(to + i * to_stride + k0, 1, from + i + k0 * from_stride, from_stride, k1 - k0);
    }
  };
  for (int64_t i = 0; i < rows; i += kTile) {
    for (int64_t k = 0; k < columns; k += kTile) tile(i, k);
  }
}

void ElementMover::CopyPacked(int64_t to, int64_t from) const {
  const size_t to_bit = static_cast<size_t>(to) * bits_;
  const size_t from_bit = static_cast<size_t>(from) * bits_;
  const unsigned mask = (1U << bits_) - 1;
  const unsigned value = (std::to_integer<unsigned>(from_[from_bit / 8]) >> (from_bit % 8)) & mask;
  const unsigned kept = std::to_integer<unsigned>(to_[to_bit / 8]) & ~(mask << (to_bit % 8));
  to_[to_bit / 8] = static_cast<std::byte>(kept | (value << (to_bit % 8)));
}

View View::Of(const Tensor& tensor) { return {0, RowMajorStrides(tensor.shape())}; }

void View::Advance(size_t axis, int64_t count) {
  offset = WrapAdd(offset, WrapMul(count, strides[axis]));
}

namespace {

// A loop nest over two views, neighboring loops merged where both views allow it.
struct LoopNest {
  std::vector<int64_t> extents, from, to;

  void Add(int64_t extent, int64_t from_stride, int64_t to_stride) {
    if (extent == 1) return;
    if (!extents.empty() && from.back() == from_stride * extent &&
        to.back() == to_stride * extent) {
      extents.back() *= extent;
      from.back() = from_stride;
      to.back() = to_stride;
      return;
    }
    extents.push_back(extent);
    from.push_back(from_stride);
    to.push_back(to_stride);
  }
};

void CopyRow(const ElementMover& mover, int64_t to, int64_t from, const LoopNest& nest) {
  const int64_t count = nest.extents.back();
  const int64_t from_stride = nest.from.back();
  const int64_t to_stride = nest.to.back();
  if (from_stride == 1 && to_stride == 1) return mover.Copy(to, from, count);
  mover.CopyApart(to, to_stride, from, from_stride, count);
}

/// The last loop writes neighbors, and another one reads neighbors: which, or npos.
size_t TransposedLoop(const LoopNest& nest) {
  if (nest.to.back() != 1 || nest.from.back() == 1) return std::string::npos;
  const auto at = std::find(nest.from.begin(), nest.from.end(), 1);
  return at == nest.from.end() ? std::string::npos : static_cast<size_t>(at - nest.from.begin());
}

LoopNest Without(LoopNest nest, size_t loop) {
  const auto at = static_cast<std::ptrdiff_t>(loop);
  nest.extents.erase(nest.extents.begin() + at);
  nest.from.erase(nest.from.begin() + at);
  nest.to.erase(nest.to.begin() + at);
  return nest;
}

int64_t Offset(std::span<const int64_t> index, std::span<const int64_t> strides) {
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i];
  return offset;
}

}  // namespace

void CopyView(const Tensor& from, const View& from_view, Tensor& to, const View& to_view,
              std::span<const int64_t> extents) {
  if (std::find(extents.begin(), extents.end(), 0) != extents.end()) return;
  LoopNest nest;
  for (size_t i = 0; i < extents.size(); ++i) {
    nest.Add(extents[i], from_view.strides[i], to_view.strides[i]);
  }
  if (nest.extents.empty()) {  // a single element
    nest.extents.push_back(1);
    nest.from.push_back(1);
    nest.to.push_back(1);
  }
  const ElementMover mover(from, to);
  const size_t turned = TransposedLoop(nest);
  const LoopNest loops = turned == std::string::npos ? nest : Without(nest, turned);
  const std::span<const int64_t> outer(loops.extents.data(), loops.extents.size() - 1);
  std::vector<int64_t> index(outer.size(), 0);
  do {
    const int64_t to_at = to_view.offset + Offset(index, loops.to);
    const int64_t from_at = from_view.offset + Offset(index, loops.from);
    if (turned == std::string::npos) {
      CopyRow(mover, to_at, from_at, loops);
    } else {
      mover.CopyTransposed(to_at, nest.to[turned], from_at, nest.from.back(), nest.extents[turned],
                           nest.extents.back());
    }
  } while (NextIndex(outer, index));
}

Tensor Materialize(const Tensor& from, const View& view, Shape shape) {
  Tensor result(from.element_type(), std::move(shape));
  CopyView(from, view, result, View::Of(result), result.shape());
  return result;
}

Tensor Permute(const Tensor& tensor, std::span<const size_t> perm) {
  const auto strides = RowMajorStrides(tensor.shape());
  View view;
  Shape shape;
  for (const size_t axis : perm) {
    view.strides.push_back(strides[axis]);
    shape.push_back(tensor.shape()[axis]);
  }
  return Materialize(tensor, view, std::move(shape));
}

void Fill(Tensor& to, const Tensor& value) {
  const int64_t total = to.num_elements();
  if (total == 0) return;
  const ElementMover first(value, to);
  if (to.element_type() == ElementType::kString || IsSubByte(to.element_type())) {
    for (int64_t i = 0; i < total; ++i) first.Copy(i, 0);
    return;
  }
  first.Copy(0, 0);
  const size_t bytes = to.byte_size();
  std::byte* raw = to.mutable_raw();
  for (size_t done = bytes / static_cast<size_t>(total); done < bytes; done *= 2) {
    std::memcpy(raw + done, raw, std::min(done, bytes - done));
  }
}

Tensor Filled(Shape shape, const Tensor& value) {
  Tensor result(value.element_type(), std::move(shape));
  Fill(result, value);
  return result;
}

Tensor Concatenate(std::span<const Tensor> tensors, size_t axis) {
  Shape shape = tensors[0].shape();
  Dim total = 0;
  for (const Tensor& t : tensors) total += t.shape()[axis];
  shape[axis] = Concrete({total})[0];
  Tensor result(tensors[0].element_type(), std::move(shape));
  View to = View::Of(result);
  for (const Tensor& t : tensors) {
    CopyView(t, View::Of(t), result, to, t.shape());
    to.Advance(axis, t.shape()[axis]);
  }
  return result;
}

Tensor Narrow(const Tensor& tensor, size_t axis, int64_t begin, int64_t extent) {
  View view = View::Of(tensor);
  view.Advance(axis, begin);
  Shape shape = tensor.shape();
  shape[axis] = extent;
  return Materialize(tensor, view, std::move(shape));
}

Tensor Take(const Tensor& tensor, size_t axis, std::span<const int64_t> indices) {
  Shape shape = tensor.shape();
  const int64_t extent = shape[axis];
  const int64_t outer = Product(shape, 0, axis);
  const int64_t inner = Product(shape, axis + 1, shape.size());
  shape[axis] = static_cast<int64_t>(indices.size());
  Tensor result(tensor.element_type(), std::move(shape));
  if (result.num_elements() == 0) return result;
  const ElementMover mover(tensor, result);
  int64_t to = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (const int64_t index : indices) {
      mover.Copy(to, (o * extent + index) * inner, inner);
      to += inner;
    }
  }
  return result;
}

void CheckSize(ElementType type, const Shape& shape) {
  const auto count = static_cast<uint64_t>(NumElements(shape));
  const size_t cap = Buffer::AllocationCap();
  if (count <= cap && StorageBytes(type, count) <= cap) return;
  throw Error(ErrorCode::kLimit, "limit/memory",
              StrCat("a result of shape ", ShapeToString(shape), " exceeds the limit of ",
                     HumanBytes(cap)));
}

Shape Concrete(const SymShape& shape) {
  Shape result;
  for (const Dim& dim : shape.dims) {
    if (!dim.is_constant()) {
      throw Error(ErrorCode::kLimit, "limit/size", "an extent of the result exceeds 2^63 - 1");
    }
    if (dim.value() < 0) {
      FailShape("shape/negative-dim", StrCat("an extent of the result would be ", dim.value()));
    }
    result.push_back(dim.value());
  }
  return result;
}

int64_t CheckIndex(int64_t index, int64_t extent, const char* what) {
  if (index >= -extent && index < extent) return index < 0 ? index + extent : index;
  throw Error(ErrorCode::kInvalidArgument, "run/index",
              StrCat(what, " ", index, " is out of range: there are ", extent))
      .Hint(StrCat("valid are ", -extent, " to ", extent - 1));
}

int64_t ScalarInt(const Tensor& tensor, const char* what) {
  if (tensor.num_elements() == 1) return ToInt64s(tensor)[0];
  FailShape("shape/scalar", StrCat(what, " must be a single number, not ", tensor.TypeString()));
}

}  // namespace lathe::eval
