#include "lathe/support/tensor.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "lathe/support/dispatch.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

// Where packed element i lives.
struct PackedPlace {
  size_t byte;
  unsigned shift;
};

PackedPlace PlaceOf(int bits, int64_t i) {
  const int64_t per_byte = 8 / bits;
  return {static_cast<size_t>(i / per_byte), static_cast<unsigned>((i % per_byte) * bits)};
}

Error TypeMismatch(ElementType wanted, ElementType actual) {
  return {ErrorCode::kType, "type/element",
          StrCat("tensor elements of type ", Name(actual), " read as ", Name(wanted))};
}

size_t CheckedStorageBytes(ElementType type, const Shape& shape, int64_t count) {
  const auto width = static_cast<int64_t>((BitWidth(type) + 7) / 8);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(count, std::max<int64_t>(width, 1), &bytes)) {
    throw Error(ErrorCode::kLimit, "limit/size",
                StrCat("a tensor ", Name(type), ShapeToString(shape), " is too large"));
  }
  return StorageBytes(type, static_cast<size_t>(count));
}

// Bytes equal, except for the unused bits of the last byte of a packed tensor.
bool SameBytes(const Tensor& a, const Tensor& b) {
  const size_t size = a.byte_size();
  if (size == 0 || a.raw() == b.raw()) return true;
  const int bits = BitWidth(a.element_type());
  const auto used = static_cast<unsigned>((a.num_elements() * bits) % 8);
  if (bits >= 8 || used == 0) return std::memcmp(a.raw(), b.raw(), size) == 0;
  const auto mask = static_cast<std::byte>((1U << used) - 1);
  return std::memcmp(a.raw(), b.raw(), size - 1) == 0 &&
         (a.raw()[size - 1] & mask) == (b.raw()[size - 1] & mask);
}

std::string ElementText(const Tensor& text_tensor, int64_t i, bool quoted) {
  const std::string& text = text_tensor.data<std::string>()[static_cast<size_t>(i)];
  return quoted ? Quote(text) : text;
}

}  // namespace

int64_t NumElements(std::span<const int64_t> dims) {
  for (const int64_t dim : dims) {
    if (dim < 0) {
      throw Error(ErrorCode::kShape, "shape/negative-dim",
                  StrCat("the shape ", ShapeToString(dims), " has a negative dimension"));
    }
  }
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return 0;
  int64_t count = 1;
  for (const int64_t dim : dims) {
    if (__builtin_mul_overflow(count, dim, &count)) {
      throw Error(ErrorCode::kLimit, "limit/size",
                  StrCat("the shape ", ShapeToString(dims), " has more than 2^63 elements"));
    }
  }
  return count;
}

std::string ShapeToString(std::span<const int64_t> dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) out += ',';
    AppendInt(out, dims[i]);
  }
  return out + "]";
}

Tensor::Tensor(ElementType type, Shape shape) : type_(type), shape_(std::move(shape)) {
  if (Name(type) == Name(ElementType::kUndefined)) {
    throw Error(ErrorCode::kType, "type/element", "a tensor needs a defined element type");
  }
  num_elements_ = NumElements(shape_);
  if (type_ == ElementType::kString) {
    // Guards the vector below like any other allocation.
    const size_t cap = Buffer::AllocationCap() / sizeof(std::string);
    if (static_cast<size_t>(num_elements_) > cap) (void)Buffer::Allocate(~size_t{0} >> 1);
    strings_ = std::make_shared<std::vector<std::string>>(static_cast<size_t>(num_elements_));
    return;
  }
  byte_size_ = CheckedStorageBytes(type_, shape_, num_elements_);
  buffer_ = Buffer::Allocate(byte_size_);
  raw_ = buffer_->data();
}

Tensor Tensor::FromBuffer(ElementType type, Shape shape, std::shared_ptr<Buffer> buffer,
                          size_t offset) {
  LATHE_CHECK(buffer != nullptr);
  if (BitWidth(type) == 0) throw TypeMismatch(ElementType::kU8, type);
  const int64_t count = NumElements(shape);
  const size_t bytes = CheckedStorageBytes(type, shape, count);
  if (offset > buffer->size() || bytes > buffer->size() - offset) {
    throw Error(ErrorCode::kLimit, "limit/bounds",
                StrCat("a tensor ", Name(type), ShapeToString(shape), " at offset ", offset,
                       " needs ", bytes, " bytes, but there are ", buffer->size(), " in all"));
  }
  const std::byte* data = bytes == 0 ? nullptr : buffer->data() + offset;
  if (reinterpret_cast<uintptr_t>(data) % AlignmentOf(type) != 0) {
    return FromBytes(type, std::move(shape), {data, bytes});
  }
  Tensor result;
  result.type_ = type;
  result.shape_ = std::move(shape);
  result.num_elements_ = count;
  result.byte_size_ = bytes;
  result.raw_ = data;
  result.buffer_ = std::move(buffer);
  return result;
}

Tensor Tensor::FromBytes(ElementType type, Shape shape, std::span<const std::byte> bytes) {
  if (BitWidth(type) == 0) throw TypeMismatch(ElementType::kU8, type);
  const size_t needed = CheckedStorageBytes(type, shape, NumElements(shape));
  if (needed != bytes.size()) {
    throw Error(ErrorCode::kShape, "shape/bytes",
                StrCat("a tensor ", Name(type), ShapeToString(shape), " takes ", needed, " bytes, ",
                       bytes.size(), " were given"));
  }
  Tensor result(type, std::move(shape));
  if (needed > 0) std::memcpy(result.buffer_->mutable_data(), bytes.data(), needed);
  return result;
}

int64_t Tensor::dim(int64_t i) const {
  const int64_t index = i < 0 ? i + rank() : i;
  if (index < 0 || index >= rank()) {
    throw Error(ErrorCode::kShape, "shape/axis",
                StrCat("axis ", i, " of a tensor of shape ", ShapeToString(shape_)));
  }
  return shape_[static_cast<size_t>(index)];
}

std::string Tensor::TypeString() const { return StrCat(Name(type_), ShapeToString(shape_)); }

void Tensor::CheckType(ElementType requested) const {
  const bool index_as_i64 = type_ == ElementType::kIndex && requested == ElementType::kI64;
  if ((type_ != requested && !index_as_i64) || IsSubByte(type_)) {
    throw TypeMismatch(requested, type_);
  }
}

const void* Tensor::RawElements() const {
  if (strings_ != nullptr) return strings_->data();
  return raw_;
}

void* Tensor::MutableRawElements() {
  if (strings_ == nullptr) return mutable_raw();
  if (strings_.use_count() > 1) strings_ = std::make_shared<std::vector<std::string>>(*strings_);
  return strings_->data();
}

void Tensor::EnsureUnique() {
  if (buffer_ == nullptr || (buffer_.use_count() == 1 && buffer_->is_writable())) return;
  *this = FromBytes(type_, shape_, bytes());
}

std::byte* Tensor::mutable_raw() {
  EnsureUnique();
  return const_cast<std::byte*>(raw_);
}

Tensor Tensor::Reshaped(Shape shape) const {
  if (NumElements(shape) != num_elements_) {
    throw Error(ErrorCode::kShape, "shape/reshape",
                StrCat("a tensor of shape ", ShapeToString(shape_), " has ", num_elements_,
                       " elements, which do not make ", ShapeToString(shape)));
  }
  Tensor result = *this;
  result.shape_ = std::move(shape);
  return result;
}

Tensor Tensor::Reinterpreted(ElementType type) const {
  if (BitWidth(type) != BitWidth(type_) || BitWidth(type) == 0) throw TypeMismatch(type, type_);
  return FromBuffer(type, shape_, buffer_,
                    raw_ == nullptr ? 0 : static_cast<size_t>(raw_ - buffer_->data()));
}

Tensor Tensor::Clone() const {
  Tensor result = *this;
  if (strings_ != nullptr) {
    result.strings_ = std::make_shared<std::vector<std::string>>(*strings_);
  } else if (buffer_ != nullptr) {
    result = FromBytes(type_, shape_, bytes());
  }
  return result;
}

bool Tensor::SharesStorageWith(const Tensor& other) const {
  return (buffer_ != nullptr && buffer_ == other.buffer_) ||
         (strings_ != nullptr && strings_ == other.strings_);
}

bool operator==(const Tensor& a, const Tensor& b) {
  if (a.type_ != b.type_ || a.shape_ != b.shape_) return false;
  if (a.strings_ != nullptr) return a.strings_ == b.strings_ || *a.strings_ == *b.strings_;
  return SameBytes(a, b);
}

std::string Tensor::ToString(int64_t limit) const {
  if (!is_defined()) return "undefined";
  if (num_elements_ == 0) return TypeString();
  const bool quoted = type_ == ElementType::kString;
  Tensor head = *this;
  const int64_t shown = std::clamp<int64_t>(limit, 0, num_elements_);
  if (!quoted && shown < num_elements_) {
    head = FromBytes(type_, {shown}, {raw_, StorageBytes(type_, static_cast<size_t>(shown))});
  }
  const Tensor text = Cast(head, ElementType::kString);
  std::string out;
  for (int64_t i = 0; i < shown; ++i) {
    int64_t stride = num_elements_;
    for (const int64_t dim : shape_) {
      if (i % stride == 0) out += '[';
      stride /= dim;
    }
    out += ElementText(text, i, quoted);
    if (i + 1 == shown && shown < num_elements_) return out + ", ...";
    stride = 1;
    for (size_t axis = shape_.size(); axis-- > 0;) {
      stride *= shape_[axis];
      if ((i + 1) % stride == 0) out += ']';
    }
    if (i + 1 < num_elements_) out += ", ";
  }
  return shown == 0 ? "..." : out;
}

Tensor ZeroLike(const Tensor& tensor) { return ZeroLike(tensor, tensor.element_type()); }
Tensor ZeroLike(const Tensor& tensor, ElementType type) { return {type, tensor.shape()}; }

namespace internal {

void UnpackBits(ElementType type, const std::byte* packed, int64_t count, void* unpacked) {
  const int bits = BitWidth(type);
  const bool extend = IsSigned(type) && IsInteger(type);
  const unsigned mask = (1U << bits) - 1;
  auto* out = static_cast<int8_t*>(unpacked);
  for (int64_t i = 0; i < count; ++i) {
    const PackedPlace place = PlaceOf(bits, i);
    const unsigned value = (static_cast<unsigned>(packed[place.byte]) >> place.shift) & mask;
    const bool negative = extend && (value >> (bits - 1)) != 0;
    out[i] = static_cast<int8_t>(static_cast<int>(value) - (negative ? 1 << bits : 0));
  }
}

void PackBits(ElementType type, const void* unpacked, int64_t count, std::byte* packed) {
  const int bits = BitWidth(type);
  const unsigned mask = (1U << bits) - 1;
  const auto* in = static_cast<const uint8_t*>(unpacked);
  std::memset(packed, 0, StorageBytes(type, static_cast<size_t>(count)));
  for (int64_t i = 0; i < count; ++i) {
    const PackedPlace place = PlaceOf(bits, i);
    packed[place.byte] |= static_cast<std::byte>((in[i] & mask) << place.shift);
  }
}

void BadElementCount(const Shape& shape, size_t given) {
  throw Error(ErrorCode::kShape, "shape/elements",
              StrCat("the shape ", ShapeToString(shape), " takes ", NumElements(shape),
                     " elements, ", given, " were given"));
}

void BadElementType(ElementType type, const char* expected) {
  throw Error(ErrorCode::kType, "type/element",
              StrCat("element type ", Name(type), " where ", expected, " is needed"));
}

}  // namespace internal
}  // namespace lathe
