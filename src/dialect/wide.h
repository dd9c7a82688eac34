#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/element_type.h"
#include "lathe/support/tensor.h"

/// Reference arithmetic where accuracy matters more than speed: floats as double, unsigned integers
/// and bool as uint64_t, signed integers as int64_t; integers wrap, floats round once at the end.
namespace lathe::eval {

/// Calls f(std::type_identity<C>{}) with the wide type of `type`; throws type/element for others.
template <class F>
decltype(auto) VisitWide(ElementType type, F&& f) {
  if (IsFloat(type)) return f(std::type_identity<double>{});
  if (IsInteger(type) && IsSigned(type)) return f(std::type_identity<int64_t>{});
  if (IsInteger(type) || type == ElementType::kBool) return f(std::type_identity<uint64_t>{});
  FailArgument("type/element", "arithmetic on elements of type " + std::string(Name(type)));
}

/// A tensor as lines along one axis: element k of line (o, i) is at (o * extent + k) * inner + i.
struct Lines {
  int64_t outer = 1, extent = 1, inner = 1;

  Lines(const Shape& shape, size_t axis)
      : outer(Product(shape, 0, axis)),
        extent(shape[axis]),
        inner(Product(shape, axis + 1, shape.size())) {}

  /// Calls f(begin) with the place of element 0 of each line; neighbors are `inner` apart. Not for
  /// tensors with an empty axis other than this one.
  template <class F>
  void ForEach(F&& f) const {
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) f(o * extent * inner + i);
    }
  }
};

/// a < b in an order where NaN is above everything and equal to itself.
template <class C>
bool Below(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  }
  return a < b;
}

}  // namespace lathe::eval
