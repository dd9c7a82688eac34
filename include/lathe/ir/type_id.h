#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace lathe {

/// Identity of a C++ class within the process: the address of one inline variable per class.
/// Compared for equality and used as a lookup key; its order never decides anything a user sees.
class TypeId {
 public:
  constexpr TypeId() = default;
  template <class T>
  static TypeId Get() {
    return TypeId(&anchor<T>);
  }
  bool operator==(const TypeId&) const = default;
  bool operator<(TypeId other) const { return std::less<const void*>()(key_, other.key_); }
  explicit operator bool() const { return key_ != nullptr; }
  const void* key() const { return key_; }

 private:
  explicit constexpr TypeId(const void* key) : key_(key) {}
  template <class T>
  inline static char anchor = 0;
  const void* key_ = nullptr;
};

}  // namespace lathe
