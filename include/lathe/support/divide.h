#pragma once

#include <concepts>
#include <type_traits>

namespace lathe {

/// The least whole number that is at least a / b; b > 0.
template <std::integral T>
constexpr T CeilDiv(T a, std::type_identity_t<T> b) {
  return a > 0 ? (a - 1) / b + 1 : a / b;
}

/// The least multiple of `multiple` that is at least `a`; multiple > 0.
template <std::integral T>
constexpr T RoundUp(T a, std::type_identity_t<T> multiple) {
  return CeilDiv(a, multiple) * multiple;
}

}  // namespace lathe
