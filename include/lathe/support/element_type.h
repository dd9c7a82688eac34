#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lathe {

// The type of one tensor element. Enumerators carry the ONNX TensorProto.DataType numbers, so a
// checked cast converts; kIndex is our own.
enum class ElementType : uint8_t {
  kUndefined = 0,
  kF32 = 1,
  kU8 = 2,
  kI8 = 3,
  kU16 = 4,
  kI16 = 5,
  kI32 = 6,
  kI64 = 7,
  kString = 8,
  kBool = 9,
  kF16 = 10,
  kF64 = 11,
  kU32 = 12,
  kU64 = 13,
  kC64 = 14,
  kC128 = 15,
  kBF16 = 16,
  kF8E4M3FN = 17,
  kF8E4M3FNUZ = 18,
  kF8E5M2 = 19,
  kF8E5M2FNUZ = 20,
  kU4 = 21,
  kI4 = 22,
  kF4E2M1 = 23,
  kF8E8M0 = 24,
  kU2 = 25,
  kI2 = 26,
  kIndex = 31,
};

// The name in the text form: "bool", "i4", "f32", "f8e4m3fn", "c64", "string", "index", ...;
// "undefined" for kUndefined and for numbers that are no enumerator.
[[nodiscard]] std::string_view Name(ElementType type);
[[nodiscard]] std::optional<ElementType> ParseElementType(std::string_view name);

// Every enumerator but kUndefined, in the order of their numbers.
[[nodiscard]] std::span<const ElementType> AllElementTypes();
// From an ONNX data_type number; nullopt for 0 and for numbers nobody knows.
[[nodiscard]] std::optional<ElementType> ElementTypeFromOnnx(int64_t data_type);

// Bits of one stored element: 2 and 4 for the packed types, 8 for bool, 0 for string and undefined.
[[nodiscard]] int BitWidth(ElementType type);
// Bytes of `count` elements as stored (packed types round up). Precondition: no overflow in bits.
[[nodiscard]] size_t StorageBytes(ElementType type, size_t count);
// Alignment in memory; 1 for packed types.
[[nodiscard]] size_t AlignmentOf(ElementType type);

[[nodiscard]] bool IsFloat(ElementType type);    // f4 to f64, not complex
[[nodiscard]] bool IsInteger(ElementType type);  // i2 to u64 and index; not bool
[[nodiscard]] bool IsSigned(
    ElementType type);  // signed integers, index, floats (not f8e8m0), complex
[[nodiscard]] bool IsComplex(ElementType type);
// The least and the greatest double that an integer type holds when it is cut off.
struct IntegerLimits {
  double low, high;
};
[[nodiscard]] IntegerLimits LimitsOf(ElementType integer);
[[nodiscard]] bool IsSubByte(
    ElementType type);  // i2 u2 i4 u4 f4e2m1: stored packed, low bits first

// The element type of a C++ storage type: ElementTypeOf<float> == kF32. kUndefined for others.
// float_types.h (std::complex, too) and tensor.h (std::string) specialize it further.
template <class T>
inline constexpr ElementType ElementTypeOf = ElementType::kUndefined;
template <>
inline constexpr ElementType ElementTypeOf<bool> = ElementType::kBool;
template <>
inline constexpr ElementType ElementTypeOf<int8_t> = ElementType::kI8;
template <>
inline constexpr ElementType ElementTypeOf<int16_t> = ElementType::kI16;
template <>
inline constexpr ElementType ElementTypeOf<int32_t> = ElementType::kI32;
template <>
inline constexpr ElementType ElementTypeOf<int64_t> = ElementType::kI64;
template <>
inline constexpr ElementType ElementTypeOf<uint8_t> = ElementType::kU8;
template <>
inline constexpr ElementType ElementTypeOf<uint16_t> = ElementType::kU16;
template <>
inline constexpr ElementType ElementTypeOf<uint32_t> = ElementType::kU32;
template <>
inline constexpr ElementType ElementTypeOf<uint64_t> = ElementType::kU64;
template <>
inline constexpr ElementType ElementTypeOf<float> = ElementType::kF32;
template <>
inline constexpr ElementType ElementTypeOf<double> = ElementType::kF64;

}  // namespace lathe
