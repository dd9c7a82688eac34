#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lathe {

// A copy of position-independent machine code that may be executed and not written: it was written
// before it became executable, and never is again. Threads: everything but moving is const.
class ExecutableMemory {
 public:
  ExecutableMemory() = default;
  // Errors: limit/memory if the system gives no memory, or forbids executing it.
  explicit ExecutableMemory(std::string_view code);
  ExecutableMemory(ExecutableMemory&& other) noexcept { Swap(other); }
  ExecutableMemory& operator=(ExecutableMemory&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~ExecutableMemory();

  // What lies at `offset` as a pointer to a function, such as KernelFunction; valid as long as the
  // memory. An offset outside is an internal error; so is one that is not the beginning of a
  // function, but that is not found out.
  template <class F>
  [[nodiscard]] F FunctionAt(uint64_t offset) const {
    return reinterpret_cast<F>(At(offset));
  }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  [[nodiscard]] void* At(uint64_t offset) const;
  void Swap(ExecutableMemory& other) noexcept;

  void* begin_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lathe
