#include "lathe/support/dlpack.h"

#include <dlpack/dlpack.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "lathe/support/error.h"

namespace lathe {
namespace {

// DLPack 1.1 codes; older headers lack the names, the numbers are the contract.
struct TypeRow {
  ElementType type;
  uint8_t code;
  uint8_t bits;
};
constexpr uint8_t kInt = 0, kUInt = 1, kFloat = 2, kBFloat = 4, kComplex = 5, kBool = 6;
constexpr std::array<TypeRow, 25> kTypes = {{
    {ElementType::kBool, kBool, 8},    {ElementType::kI2, kInt, 2},
    {ElementType::kI4, kInt, 4},       {ElementType::kI8, kInt, 8},
    {ElementType::kI16, kInt, 16},     {ElementType::kI32, kInt, 32},
    {ElementType::kI64, kInt, 64},     {ElementType::kIndex, kInt, 64},
    {ElementType::kU2, kUInt, 2},      {ElementType::kU4, kUInt, 4},
    {ElementType::kU8, kUInt, 8},      {ElementType::kU16, kUInt, 16},
    {ElementType::kU32, kUInt, 32},    {ElementType::kU64, kUInt, 64},
    {ElementType::kF16, kFloat, 16},   {ElementType::kF32, kFloat, 32},
    {ElementType::kF64, kFloat, 64},   {ElementType::kBF16, kBFloat, 16},
    {ElementType::kC64, kComplex, 64}, {ElementType::kC128, kComplex, 128},
    {ElementType::kF8E4M3FN, 10, 8},   {ElementType::kF8E4M3FNUZ, 11, 8},
    {ElementType::kF8E5M2, 12, 8},     {ElementType::kF8E5M2FNUZ, 13, 8},
    {ElementType::kF8E8M0, 14, 8},
}};
constexpr TypeRow kF4 = {ElementType::kF4E2M1, 17, 4};

Error Unsupported(std::string message) {
  return {ErrorCode::kUnsupported, "unsupported/dlpack", std::move(message)};
}

Error Nonsense(std::string_view what) {
  return {ErrorCode::kInvalidArgument, "invalid-argument/dlpack",
          StrCat("malformed DLPack tensor: ", what)};
}

TypeRow RowOf(ElementType type) {
  if (type == kF4.type) return kF4;
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row;
  }
  throw Unsupported(StrCat("DLPack cannot carry tensors of type ", Name(type)));
}

ElementType TypeOf(const DLDataType& type) {
  if (type.lanes == 1) {
    if (type.code == kF4.code && type.bits == kF4.bits) return kF4.type;
    for (const TypeRow& row : kTypes) {
      if (row.code == type.code && row.bits == type.bits) return row.type;
    }
  }
  throw Unsupported(StrCat("DLPack type code ", int{type.code}, " of ", int{type.bits},
                           " bits and ", int{type.lanes}, " lanes is not supported"));
}

// What lives as long as an exported tensor.
struct Exported {
  DLManagedTensor managed = {};
  Tensor tensor;
  std::vector<int64_t> strides;
};

std::vector<int64_t> RowMajorStrides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  return strides;
}

Shape ShapeOf(const DLTensor& tensor) {
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr)) {
    throw Nonsense("no shape");
  }
  return {tensor.shape, tensor.shape + tensor.ndim};
}

bool IsRowMajor(const DLTensor& tensor, const Shape& shape) {
  if (tensor.strides == nullptr || NumElements(shape) <= 1) return true;
  const std::vector<int64_t> strides = RowMajorStrides(shape);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1 && tensor.strides[i] != strides[i]) return false;
  }
  return true;
}

Tensor CopyStrided(ElementType type, const Shape& shape, const std::byte* data,
                   const int64_t* strides) {
  if (IsSubByte(type)) throw Unsupported("DLPack tensors of packed types must be contiguous");
  Tensor result(type, shape);
  const size_t width = StorageBytes(type, 1);
  std::byte* out = result.mutable_raw();
  std::vector<int64_t> index(shape.size(), 0);
  int64_t at = 0;
  for (int64_t i = 0; i < result.num_elements(); ++i) {
    std::memcpy(out + static_cast<size_t>(i) * width, data + at * static_cast<int64_t>(width),
                width);
    for (size_t axis = shape.size(); axis-- > 0;) {
      at += strides[axis];
      if (++index[axis] < shape[axis]) break;
      at -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
  return result;
}

}  // namespace

DLManagedTensor* ToDlpack(const Tensor& tensor) {
  const TypeRow row = RowOf(tensor.element_type());
  auto exported = std::make_unique<Exported>();
  exported->tensor = tensor;
  exported->strides = RowMajorStrides(tensor.shape());
  DLTensor& out = exported->managed.dl_tensor;
  out.data = const_cast<std::byte*>(tensor.raw());
  out.device = {kDLCPU, 0};
  out.ndim = static_cast<int32_t>(tensor.rank());
  out.dtype = {row.code, row.bits, 1};
  out.shape = const_cast<int64_t*>(exported->tensor.shape().data());
  out.strides = exported->strides.data();
  out.byte_offset = 0;
  exported->managed.manager_ctx = exported.get();
  exported->managed.deleter = [](DLManagedTensor* self) {
    delete static_cast<Exported*>(self->manager_ctx);
  };
  return &exported.release()->managed;
}

Tensor FromDlpack(DLManagedTensor* managed) {
  LATHE_CHECK(managed != nullptr);
  const std::shared_ptr<DLManagedTensor> owner(managed, [](DLManagedTensor* self) {
    if (self->deleter != nullptr) self->deleter(self);
  });
  const DLTensor& in = managed->dl_tensor;
  if (in.device.device_type != kDLCPU) {
    throw Unsupported(StrCat("DLPack tensor on device type ",
                             static_cast<int>(in.device.device_type), "; only CPU memory is read"))
        .Hint("copy it to the CPU first");
  }
  const ElementType type = TypeOf(in.dtype);
  const Shape shape = ShapeOf(in);
  const int64_t count = NumElements(shape);
  if (count == 0) return {type, shape};
  if (in.data == nullptr) throw Nonsense("no data");
  const auto* data = static_cast<const std::byte*>(in.data) + in.byte_offset;
  if (!IsRowMajor(in, shape)) return CopyStrided(type, shape, data, in.strides);
  const size_t bytes = StorageBytes(type, static_cast<size_t>(count));
  return Tensor::FromBuffer(type, shape, Buffer::Wrap(data, bytes, owner));
}

}  // namespace lathe
