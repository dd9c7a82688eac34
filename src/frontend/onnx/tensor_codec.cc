#include "src/frontend/onnx/tensor_codec.h"

#include <cstring>

#include "lathe/support/error.h"
#include "lathe/support/shared_chunks.h"
#include "lathe/support/text.h"
#include "src/frontend/onnx/op_table.h"
#include "src/frontend/onnx/wire.h"

namespace lathe::onnx {

namespace {

[[noreturn]] void Fail(const TensorMsg& t, std::string id, std::string_view what) {
  if (t.external) id = "onnx/external-data";
  throw Error(ErrorCode::kInvalidArgument, std::move(id), StrCat(Describe(t), ": ", what))
      .Hint("the model is damaged; export it again");
}

ElementType TypeOf(const TensorMsg& t) {
  if (const auto type = ElementTypeFromOnnx(t.data_type)) return *type;
  Fail(t, "onnx/tensor-type", StrCat("data type ", t.data_type, " is not known"));
}

Shape ShapeOf(const TensorMsg& t) {
  for (const int64_t dim : t.dims) {
    if (dim < 0) Fail(t, "onnx/tensor-size", StrCat("dimension ", dim, " is negative"));
  }
  return t.dims;
}

// Element count and stored bytes, neither of which may overflow.
struct Extent {
  int64_t elements;
  size_t bytes;
};

Extent ExtentOf(const TensorMsg& t, ElementType type, const Shape& shape) {
  constexpr int64_t kMaxElements = int64_t{1} << 58;
  bool empty = false;
  for (const int64_t dim : shape) empty |= dim == 0;
  int64_t elements = empty ? 0 : 1;
  for (const int64_t dim : shape) {
    if (!empty && elements > kMaxElements / dim) {
      Fail(t, "onnx/tensor-size", StrCat("shape ", ShapeToString(shape), " is too large"));
    }
    elements *= empty ? 0 : dim;
  }
  return {elements, StorageBytes(type, static_cast<size_t>(elements))};
}

void CheckBytes(const TensorMsg& t, ElementType type, const Shape& shape, size_t wanted,
                uint64_t given) {
  if (wanted == given) return;
  Fail(t, "onnx/tensor-size",
       StrCat(Name(type), ShapeToString(shape), " needs ", wanted, " bytes, there are ", given));
}

// Bits beyond the last element of a packed type are zero in memory; a file may hold anything.
Tensor Share(ElementType type, const Shape& shape, const std::shared_ptr<Buffer>& buffer,
             size_t offset, Extent extent) {
  const std::span<const std::byte> bytes(buffer->data() + offset, extent.bytes);
  if (!IsSubByte(type)) {
    Tensor tensor = Tensor::FromBuffer(type, shape, buffer, offset);
    if (tensor.buffer() != buffer) ReleaseFilePages(bytes);  // a copy, for its alignment
    return tensor;
  }
  Tensor tensor = Tensor::FromBytes(type, shape, bytes);
  const auto used = static_cast<size_t>(extent.elements) * static_cast<size_t>(BitWidth(type)) % 8;
  if (used != 0) {
    tensor.mutable_raw()[extent.bytes - 1] &= static_cast<std::byte>((1U << used) - 1);
  }
  return tensor;
}

Tensor FromRaw(const TensorMsg& t, ElementType type, const Shape& shape, const Source& source) {
  const Extent extent = ExtentOf(t, type, shape);
  CheckBytes(t, type, shape, extent.bytes, t.raw_data.size());
  const auto* data = reinterpret_cast<const std::byte*>(t.raw_data.data());
  if (source.buffer == nullptr || extent.bytes == 0) {
    return Share(type, shape, Buffer::Wrap(data, t.raw_data.size(), nullptr), 0, extent).Clone();
  }
  return Share(type, shape, source.buffer, static_cast<size_t>(data - source.buffer->data()),
               extent);
}

Tensor FromExternal(const TensorMsg& t, ElementType type, const Shape& shape,
                    const Source& source) {
  const ExternalRange range = ReadExternalRange(t.external_data);
  if (source.external == nullptr) {
    Fail(t, "onnx/external-data", "external data is not allowed here");
  }
  const Extent extent = ExtentOf(t, type, shape);
  const auto buffer = source.external->Map(range.location);
  const uint64_t size = buffer->size();
  if (range.offset > size) {
    Fail(t, "onnx/external-data",
         StrCat("offset ", range.offset, " is beyond the end of ", Quote(range.location), " (",
                size, " bytes)"));
  }
  uint64_t length = range.length;
  if (length == Buffer::kToEnd) length = std::min<uint64_t>(extent.bytes, size - range.offset);
  if (length > size - range.offset) {
    Fail(t, "onnx/external-data",
         StrCat("bytes ", range.offset, " + ", length, " are beyond the end of ",
                Quote(range.location), " (", size, " bytes)"));
  }
  CheckBytes(t, type, shape, extent.bytes, length);
  return Share(type, shape, buffer, range.offset, extent);
}

// The field that carries elements of a type when there is no raw_data.
TensorMsg::Field FieldOf(ElementType type) {
  switch (type) {
    case ElementType::kF32:
    case ElementType::kC64:
      return TensorMsg::kFloat;
    case ElementType::kF64:
    case ElementType::kC128:
      return TensorMsg::kDouble;
    case ElementType::kI64:
      return TensorMsg::kInt64;
    case ElementType::kU32:
    case ElementType::kU64:
      return TensorMsg::kUint64;
    default:
      return TensorMsg::kInt32;
  }
}

size_t CountVarints(const TensorMsg& t, const std::vector<Text>& runs) {
  size_t count = 0;
  for (const Text run : runs) {
    for (const char c : run) count += static_cast<uint8_t>(c) < 0x80 ? 1 : 0;
    if (!run.empty() && static_cast<uint8_t>(run.back()) >= 0x80) {
      Fail(t, "onnx/tensor-data", "a packed list of numbers is cut off");
    }
  }
  return count;
}

// Writes each number in `width` bytes, low byte first.
void UnpackVarints(const TensorMsg& t, const std::vector<Text>& runs, size_t width,
                   std::byte* out) {
  for (Text run : runs) {
    uint64_t value;
    while (!run.empty()) {
      if (!NextVarint(run, value)) Fail(t, "onnx/tensor-data", "a number is malformed");
      std::memcpy(out, &value, width);
      out += width;
    }
  }
}

void CopyRuns(const std::vector<Text>& runs, std::byte* out) {
  for (const Text run : runs) {
    if (!run.empty()) std::memcpy(out, run.data(), run.size());
    out += run.size();
  }
}

Tensor FromTyped(const TensorMsg& t, ElementType type, const Shape& shape) {
  const Extent extent = ExtentOf(t, type, shape);
  const TensorMsg::Field field = FieldOf(type);
  const std::vector<Text>& runs = t.typed[field];
  const bool fixed = field == TensorMsg::kFloat || field == TensorMsg::kDouble;
  // Packed types hold one stored byte per number.
  const size_t width = IsSubByte(type) ? 1 : static_cast<size_t>(BitWidth(type)) / 8;
  size_t given = 0;
  if (fixed) {
    for (const Text run : runs) given += run.size();
  } else {
    given = CountVarints(t, runs) * width;
  }
  CheckBytes(t, type, shape, extent.bytes, given);
  std::vector<std::byte> bytes(extent.bytes);
  if (fixed) {
    CopyRuns(runs, bytes.data());
  } else {
    UnpackVarints(t, runs, width, bytes.data());
  }
  if (type == ElementType::kBool) {
    for (std::byte& b : bytes) b = b == std::byte{0} ? b : std::byte{1};
  }
  return Tensor::FromBytes(type, shape, bytes);
}

Tensor FromStrings(const TensorMsg& t, const Shape& shape) {
  const Extent extent = ExtentOf(t, ElementType::kString, shape);
  if (static_cast<uint64_t>(extent.elements) != t.strings.size()) {
    Fail(t, "onnx/tensor-size",
         StrCat("string", ShapeToString(shape), " needs ", extent.elements, " strings, there are ",
                t.strings.size()));
  }
  return Tensor::Of<std::string>(shape,
                                 std::vector<std::string>(t.strings.begin(), t.strings.end()));
}

bool HasTyped(const TensorMsg& t) {
  for (const auto& runs : t.typed) {
    if (!runs.empty()) return true;
  }
  return !t.strings.empty();
}

// Any byte but 0 and 1 in a bool tensor is undefined behavior to read.
Tensor NormalizeBools(Tensor tensor) {
  if (tensor.element_type() != ElementType::kBool) return tensor;
  for (size_t i = 0; i < tensor.byte_size(); ++i) {
    if (tensor.raw()[i] > std::byte{1}) tensor.mutable_raw()[i] = std::byte{1};
  }
  return tensor;
}

}  // namespace

std::string Describe(const TensorMsg& t) {
  return t.name.empty() ? std::string("tensor") : StrCat("tensor ", Shown(t.name));
}

Tensor DecodeTensor(const TensorMsg& t, const Source& source) {
  const ElementType type = TypeOf(t);
  const Shape shape = ShapeOf(t);
  if (t.has_segment) Fail(t, "onnx/tensor-data", "segments are not supported");
  const int sources = (t.has_raw ? 1 : 0) + (t.external ? 1 : 0) + (HasTyped(t) ? 1 : 0);
  if (sources > 1) Fail(t, "onnx/tensor-data", "data is given in more than one way");
  if (type == ElementType::kString) {
    if (t.has_raw || t.external) {
      Fail(t, "onnx/tensor-data", "strings cannot be raw or external data");
    }
    return FromStrings(t, shape);
  }
  if (t.external) return NormalizeBools(FromExternal(t, type, shape, source));
  if (t.has_raw) return NormalizeBools(FromRaw(t, type, shape, source));
  return FromTyped(t, type, shape);
}

namespace {

void CheckSparse(const SparseTensorMsg& s, const Tensor& values, const Tensor& indices) {
  const bool linear = indices.rank() == 1;
  const bool full =
      indices.rank() == 2 && indices.shape()[1] == static_cast<int64_t>(s.dims.size());
  if (values.rank() != 1 || !(linear || full) || indices.shape()[0] != values.num_elements() ||
      indices.element_type() != ElementType::kI64) {
    Fail(s.values, "onnx/sparse",
         StrCat("values ", values.TypeString(), " and indices ", indices.TypeString(),
                " do not make a sparse tensor of rank ", s.dims.size()));
  }
}

// Position of entry `i` in the dense tensor.
int64_t DensePosition(const SparseTensorMsg& s, std::span<const int64_t> indices, int64_t i,
                      bool linear, int64_t count) {
  int64_t at = 0;
  const size_t rank = s.dims.size();
  for (size_t d = 0; !linear && d < rank; ++d) {
    const int64_t index = indices[static_cast<size_t>(i) * rank + d];
    if (index < 0 || index >= s.dims[d]) Fail(s.values, "onnx/sparse", "an index is out of range");
    at = at * s.dims[d] + index;
  }
  if (linear) at = indices[static_cast<size_t>(i)];
  if (at < 0 || at >= count) Fail(s.values, "onnx/sparse", "an index is out of range");
  return at;
}

}  // namespace

Tensor DecodeSparse(const SparseTensorMsg& s, const Source& source) {
  const Tensor values = DecodeTensor(s.values, source);
  const Tensor indices = DecodeTensor(s.indices, source);
  CheckSparse(s, values, indices);
  const ElementType type = values.element_type();
  if (IsSubByte(type) || type == ElementType::kString) {
    Fail(s.values, "onnx/sparse", StrCat("sparse tensors of ", Name(type), " are not supported"));
  }
  TensorMsg shape;
  shape.name = s.values.name;
  shape.dims = s.dims;
  ExtentOf(shape, type, ShapeOf(shape));
  Tensor dense(type, s.dims);
  const size_t width = static_cast<size_t>(BitWidth(type)) / 8;
  for (int64_t i = 0; i < values.num_elements(); ++i) {
    const int64_t at =
        DensePosition(s, indices.data<int64_t>(), i, indices.rank() == 1, dense.num_elements());
    std::memcpy(dense.mutable_raw() + static_cast<size_t>(at) * width,
                values.raw() + static_cast<size_t>(i) * width, width);
  }
  return dense;
}

namespace {

RtValue DecodeMap(const DataMsg& map, const Source& source) {
  const size_t keys = map.int_keys.size() + map.string_keys.size();
  if (keys != map.items.size()) {
    throw Error(ErrorCode::kParse, "onnx/data",
                StrCat("a map has ", keys, " keys and ", map.items.size(), " values"));
  }
  RtValue::Dict dict;
  for (size_t i = 0; i < map.items.size(); ++i) {
    RtValue::Key key;
    if (i < map.int_keys.size()) {
      key = map.int_keys[i];
    } else {
      key = std::string(map.string_keys[i - map.int_keys.size()]);
    }
    dict[std::move(key)] = DecodeData(map.items[i], source);
  }
  return RtValue::OfDict(std::move(dict));
}

}  // namespace

RtValue DecodeData(const DataMsg& message, const Source& source) {
  switch (message.kind) {
    case DataMsg::kTensor:
      return DecodeTensor(message.tensor, source);
    case DataMsg::kMap:
      return DecodeMap(message, source);
    case DataMsg::kOptional:
      if (message.items.empty()) return RtValue::AbsentOptional();
      return DecodeData(message.items.front(), source);
    case DataMsg::kSequence:
      break;
  }
  RtValue::List list;
  for (const DataMsg& item : message.items) list.push_back(DecodeData(item, source));
  return RtValue::OfList(std::move(list));
}

TensorMsg EncodeTensor(const Tensor& tensor, Text name) {
  TensorMsg t;
  t.name = name;
  t.dims = tensor.shape();
  t.data_type = static_cast<int32_t>(tensor.element_type());
  if (tensor.element_type() == ElementType::kString) {
    for (const std::string& s : tensor.data<std::string>()) t.strings.emplace_back(s);
    return t;
  }
  if (tensor.element_type() == ElementType::kIndex) {
    t.data_type = static_cast<int32_t>(ElementType::kI64);
  }
  t.has_raw = true;
  t.raw_data = {reinterpret_cast<const char*>(tensor.raw()), tensor.byte_size()};
  return t;
}

}  // namespace lathe::onnx
