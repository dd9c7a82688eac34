#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace lathe {

// A bump allocator: allocation is an addition, memory is freed all at once with the arena. Runs no
// destructors. Not thread-safe.
class Arena {
 public:
  static constexpr size_t kDefaultBlockSize = 64 * 1024;

  explicit Arena(size_t block_size = kDefaultBlockSize) : block_size_(block_size) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena() = default;

  // Uninitialized; `alignment` a power of two, at most 64.
  [[nodiscard]] void* Allocate(size_t size, size_t alignment = alignof(std::max_align_t)) {
    const uintptr_t at = (cursor_ + alignment - 1) & ~(static_cast<uintptr_t>(alignment) - 1);
    if (cursor_ == 0 || at > end_ || size > end_ - at) return AllocateSlow(size, alignment);
    cursor_ = at + size;
    return reinterpret_cast<void*>(at);
  }

  template <class T, class... Args>
  T* New(Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T>, "an arena runs no destructors");
    return new (Allocate(sizeof(T), alignof(T))) T(std::forward<Args>(args)...);
  }

  template <class T>
  [[nodiscard]] std::span<T> Copy(std::span<const T> values) {
    static_assert(std::is_trivially_destructible_v<T>, "an arena runs no destructors");
    T* out = static_cast<T*>(Allocate(values.size_bytes(), alignof(T)));
    for (size_t i = 0; i < values.size(); ++i) new (out + i) T(values[i]);
    return {out, values.size()};
  }
  [[nodiscard]] std::string_view Copy(std::string_view text);

  // Bytes obtained from the system.
  [[nodiscard]] size_t bytes_reserved() const { return reserved_; }
  // Frees all, keeps nothing.
  void Clear();

 private:
  void* AllocateSlow(size_t size, size_t alignment);

  size_t block_size_;
  uintptr_t cursor_ = 0;
  uintptr_t end_ = 0;
  size_t reserved_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

}  // namespace lathe
