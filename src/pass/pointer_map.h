#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace lathe::detail {

/// A small `T` for each operation or value, by its address; zero at first. A table per 4 KiB of
/// memory, so that neighbors share cache lines and growing moves nothing. Iterated by nobody.
template <class T>
class PointerMap {
 public:
  T Get(const void* p) const {
    const Page* page = PageOf(p);
    return page == nullptr ? T{} : (*page)[SlotOf(p)];
  }
  void Set(const void* p, T value) {
    Page* page = PageOf(p);
    if (page == nullptr) {
      page = pages_.emplace(NumberOf(p), std::make_unique<Page>()).first->second.get();
      last_ = {NumberOf(p), page};
    }
    (*page)[SlotOf(p)] = value;
  }

 private:
  /// No two operations or values start in the same 16 bytes.
  static constexpr int kSlotBits = 4;
  static constexpr int kPageBits = 12;
  using Page = std::array<T, size_t{1} << (kPageBits - kSlotBits)>;
  static uintptr_t NumberOf(const void* p) { return reinterpret_cast<uintptr_t>(p) >> kPageBits; }
  static size_t SlotOf(const void* p) {
    return (reinterpret_cast<uintptr_t>(p) >> kSlotBits) & (std::tuple_size<Page>::value - 1);
  }
  Page* PageOf(const void* p) const {
    const uintptr_t number = NumberOf(p);
    if (last_.page != nullptr && last_.number == number) return last_.page;
    const auto at = pages_.find(number);
    if (at == pages_.end()) return nullptr;
    last_ = {number, at->second.get()};
    return last_.page;
  }

  struct Last {
    uintptr_t number = 0;
    Page* page = nullptr;
  };
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  mutable Last last_;
};

}  // namespace lathe::detail
