#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "lathe/ir/value.h"

namespace lathe {

/// Numbers values for printing. A table per 4 KiB of memory that holds values, so that neighbors
/// share cache lines and growing moves nothing. Iterated by nobody: addresses decide no order.
class ValueNumbers {
 public:
  /// The number plus one, or 0 for a value without one.
  uint32_t Find(Value v) {
    const Page* page = PageOf(v, /*make=*/false);
    return page == nullptr ? 0 : (*page)[Slot(v)];
  }
  void Set(Value v, uint32_t number) { (*PageOf(v, /*make=*/true))[Slot(v)] = number + 1; }

 private:
  static constexpr int kPageBits = 12;
  static constexpr size_t kSlots = (size_t{1} << kPageBits) / sizeof(detail::ValueImpl);
  static constexpr size_t kRecent = 256;
  // One slot per 16 bytes: no two values start in the same 16 bytes, as a value has that size.
  using Page = std::array<uint32_t, kSlots>;
  static uintptr_t Address(Value v) { return reinterpret_cast<uintptr_t>(v.impl()); }
  static size_t Slot(Value v) { return (Address(v) / sizeof(detail::ValueImpl)) & (kSlots - 1); }

  Page* PageOf(Value v, bool make) {
    const uintptr_t key = Address(v) >> kPageBits;
    Recent& recent = recent_[key % kRecent];
    if (recent.key == key) return recent.page;
    auto at = pages_.find(key);
    if (at == pages_.end()) {
      if (!make) return nullptr;
      at = pages_.emplace(key, std::make_unique<Page>()).first;
    }
    recent = {key, at->second.get()};
    return recent.page;
  }

  struct Recent {
    uintptr_t key = 0;
    Page* page = nullptr;
  };
  std::array<Recent, kRecent> recent_;
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
};

}  // namespace lathe
