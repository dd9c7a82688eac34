#pragma once

#include <complex>
#include <string>
#include <type_traits>
#include <utility>

#include "lathe/support/element_type.h"
#include "lathe/support/float_types.h"

namespace lathe {

namespace internal {
// Throws Error type/element: `type` is not one of what `expected` names.
[[noreturn]] void BadElementType(ElementType type, const char* expected);
}  // namespace internal

// Calls f(std::type_identity<T>{}) with the C++ storage type of `type`. The narrower visitors take
// a part of the types and throw Error type/element for the others. index is seen as int64_t.

template <class F>
decltype(auto) VisitInteger(ElementType type, F&& f) {
  switch (type) {
    case ElementType::kI8:
      return f(std::type_identity<int8_t>{});
    case ElementType::kI16:
      return f(std::type_identity<int16_t>{});
    case ElementType::kI32:
      return f(std::type_identity<int32_t>{});
    case ElementType::kIndex:
    case ElementType::kI64:
      return f(std::type_identity<int64_t>{});
    case ElementType::kU8:
      return f(std::type_identity<uint8_t>{});
    case ElementType::kU16:
      return f(std::type_identity<uint16_t>{});
    case ElementType::kU32:
      return f(std::type_identity<uint32_t>{});
    case ElementType::kU64:
      return f(std::type_identity<uint64_t>{});
    default:
      internal::BadElementType(type, "an integer of 8 to 64 bits");
  }
}

// f16, bf16, f32, f64.
template <class F>
decltype(auto) VisitFloat(ElementType type, F&& f) {
  switch (type) {
    case ElementType::kF16:
      return f(std::type_identity<Half>{});
    case ElementType::kBF16:
      return f(std::type_identity<BFloat16>{});
    case ElementType::kF32:
      return f(std::type_identity<float>{});
    case ElementType::kF64:
      return f(std::type_identity<double>{});
    default:
      internal::BadElementType(type, "f16, bf16, f32 or f64");
  }
}

// VisitInteger's and VisitFloat's types.
template <class F>
decltype(auto) VisitNumeric(ElementType type, F&& f) {
  if (IsFloat(type)) return VisitFloat(type, std::forward<F>(f));
  return VisitInteger(type, std::forward<F>(f));
}

// All types, packed ones by their unpacked wrappers (Int4, F4E2M1, ...).
template <class F>
decltype(auto) VisitElementType(ElementType type, F&& f) {
  switch (type) {
    case ElementType::kBool:
      return f(std::type_identity<bool>{});
    case ElementType::kString:
      return f(std::type_identity<std::string>{});
    case ElementType::kC64:
      return f(std::type_identity<std::complex<float>>{});
    case ElementType::kC128:
      return f(std::type_identity<std::complex<double>>{});
    case ElementType::kF8E4M3FN:
      return f(std::type_identity<F8E4M3FN>{});
    case ElementType::kF8E4M3FNUZ:
      return f(std::type_identity<F8E4M3FNUZ>{});
    case ElementType::kF8E5M2:
      return f(std::type_identity<F8E5M2>{});
    case ElementType::kF8E5M2FNUZ:
      return f(std::type_identity<F8E5M2FNUZ>{});
    case ElementType::kF8E8M0:
      return f(std::type_identity<F8E8M0>{});
    case ElementType::kF4E2M1:
      return f(std::type_identity<F4E2M1>{});
    case ElementType::kI4:
      return f(std::type_identity<Int4>{});
    case ElementType::kU4:
      return f(std::type_identity<UInt4>{});
    case ElementType::kI2:
      return f(std::type_identity<Int2>{});
    case ElementType::kU2:
      return f(std::type_identity<UInt2>{});
    case ElementType::kUndefined:
      internal::BadElementType(type, "a defined element type");
    default:
      return VisitNumeric(type, std::forward<F>(f));
  }
}

}  // namespace lathe
