#include "lathe/support/element_type.h"

#include <array>
#include <cmath>

namespace lathe {
namespace {

enum class Class : uint8_t { kNone, kBool, kString, kSigned, kUnsigned, kFloat, kPower, kComplex };

struct Row {
  std::string_view name;
  int bits;
  Class kind;
};

constexpr size_t kRows = 32;

constexpr std::array<Row, kRows> MakeRows() {
  std::array<Row, kRows> rows{};
  for (auto& row : rows) row = {"undefined", 0, Class::kNone};
  const auto set = [&rows](ElementType type, std::string_view name, int bits, Class kind) {
    rows[static_cast<size_t>(type)] = {name, bits, kind};
  };
  set(ElementType::kF32, "f32", 32, Class::kFloat);
  set(ElementType::kU8, "u8", 8, Class::kUnsigned);
  set(ElementType::kI8, "i8", 8, Class::kSigned);
  set(ElementType::kU16, "u16", 16, Class::kUnsigned);
  set(ElementType::kI16, "i16", 16, Class::kSigned);
  set(ElementType::kI32, "i32", 32, Class::kSigned);
  set(ElementType::kI64, "i64", 64, Class::kSigned);
  set(ElementType::kString, "string", 0, Class::kString);
  set(ElementType::kBool, "bool", 8, Class::kBool);
  set(ElementType::kF16, "f16", 16, Class::kFloat);
  set(ElementType::kF64, "f64", 64, Class::kFloat);
  set(ElementType::kU32, "u32", 32, Class::kUnsigned);
  set(ElementType::kU64, "u64", 64, Class::kUnsigned);
  set(ElementType::kC64, "c64", 64, Class::kComplex);
  set(ElementType::kC128, "c128", 128, Class::kComplex);
  set(ElementType::kBF16, "bf16", 16, Class::kFloat);
  set(ElementType::kF8E4M3FN, "f8e4m3fn", 8, Class::kFloat);
  set(ElementType::kF8E4M3FNUZ, "f8e4m3fnuz", 8, Class::kFloat);
  set(ElementType::kF8E5M2, "f8e5m2", 8, Class::kFloat);
  set(ElementType::kF8E5M2FNUZ, "f8e5m2fnuz", 8, Class::kFloat);
  set(ElementType::kU4, "u4", 4, Class::kUnsigned);
  set(ElementType::kI4, "i4", 4, Class::kSigned);
  set(ElementType::kF4E2M1, "f4e2m1", 4, Class::kFloat);
  set(ElementType::kF8E8M0, "f8e8m0", 8, Class::kPower);
  set(ElementType::kU2, "u2", 2, Class::kUnsigned);
  set(ElementType::kI2, "i2", 2, Class::kSigned);
  set(ElementType::kIndex, "index", 64, Class::kSigned);
  return rows;
}

constexpr auto kTable = MakeRows();

constexpr size_t kCount = [] {
  size_t count = 0;
  for (const auto& row : kTable) count += row.kind != Class::kNone ? 1 : 0;
  return count;
}();

constexpr auto kAll = [] {
  std::array<ElementType, kCount> all{};
  size_t next = 0;
  for (size_t i = 0; i < kRows; ++i) {
    if (kTable[i].kind != Class::kNone) all[next++] = static_cast<ElementType>(i);
  }
  return all;
}();

const Row& Info(ElementType type) {
  const auto index = static_cast<size_t>(type);
  return kTable[index < kRows ? index : 0];
}

}  // namespace

std::string_view Name(ElementType type) { return Info(type).name; }

std::optional<ElementType> ParseElementType(std::string_view name) {
  for (const ElementType type : kAll) {
    if (Info(type).name == name) return type;
  }
  return std::nullopt;
}

std::span<const ElementType> AllElementTypes() { return kAll; }

std::optional<ElementType> ElementTypeFromOnnx(int64_t data_type) {
  if (data_type <= 0 || data_type >= static_cast<int64_t>(ElementType::kIndex)) return std::nullopt;
  const auto type = static_cast<ElementType>(data_type);
  if (Info(type).kind == Class::kNone) return std::nullopt;
  return type;
}

int BitWidth(ElementType type) { return Info(type).bits; }

size_t StorageBytes(ElementType type, size_t count) {
  const auto bits = static_cast<size_t>(BitWidth(type));
  return bits >= 8 ? count * (bits / 8) : (count / 8) * bits + ((count % 8) * bits + 7) / 8;
}

size_t AlignmentOf(ElementType type) {
  if (IsComplex(type)) return static_cast<size_t>(BitWidth(type)) / 16;
  if (type == ElementType::kString) return alignof(void*);
  return BitWidth(type) <= 8 ? 1 : static_cast<size_t>(BitWidth(type)) / 8;
}

bool IsFloat(ElementType type) {
  return Info(type).kind == Class::kFloat || Info(type).kind == Class::kPower;
}
bool IsInteger(ElementType type) {
  return Info(type).kind == Class::kSigned || Info(type).kind == Class::kUnsigned;
}
bool IsSigned(ElementType type) {
  const Class kind = Info(type).kind;
  return kind == Class::kSigned || kind == Class::kFloat || kind == Class::kComplex;
}
bool IsComplex(ElementType type) { return Info(type).kind == Class::kComplex; }
IntegerLimits LimitsOf(ElementType integer) {
  constexpr int kExact = 53;  // bits of a double
  const int bits = BitWidth(integer) - (IsSigned(integer) ? 1 : 0);
  const double above = std::ldexp(1, bits);
  const double high = bits <= kExact ? above - 1 : std::nextafter(above, 0);
  return {IsSigned(integer) ? -above : 0, high};
}

bool IsSubByte(ElementType type) { return BitWidth(type) > 0 && BitWidth(type) < 8; }

}  // namespace lathe
