#include "lathe/support/arena.h"

#include <algorithm>
#include <cstring>

namespace lathe {

Arena::Arena(Arena&& other) noexcept
    : block_size_(other.block_size_),
      cursor_(std::exchange(other.cursor_, 0)),
      end_(std::exchange(other.end_, 0)),
      reserved_(std::exchange(other.reserved_, 0)),
      blocks_(std::move(other.blocks_)) {
  other.blocks_.clear();
}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this == &other) return *this;
  block_size_ = other.block_size_;
  cursor_ = std::exchange(other.cursor_, 0);
  end_ = std::exchange(other.end_, 0);
  reserved_ = std::exchange(other.reserved_, 0);
  blocks_ = std::move(other.blocks_);
  other.blocks_.clear();
  return *this;
}

std::string_view Arena::Copy(std::string_view text) {
  if (text.empty()) return {};
  char* out = static_cast<char*>(Allocate(text.size(), 1));
  std::memcpy(out, text.data(), text.size());
  return {out, text.size()};
}

void Arena::Clear() {
  blocks_.clear();
  cursor_ = end_ = 0;
  reserved_ = 0;
}

void* Arena::AllocateSlow(size_t size, size_t alignment) {
  // A large request gets a block of its own, so that the current one is not wasted.
  const bool own_block = size > block_size_ / 4;
  const size_t bytes = own_block ? size + alignment : std::max(block_size_, size + alignment);
  blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
  reserved_ += bytes;
  const auto base = reinterpret_cast<uintptr_t>(blocks_.back().get());
  const uintptr_t at = (base + alignment - 1) & ~(static_cast<uintptr_t>(alignment) - 1);
  if (!own_block) {
    cursor_ = at + size;
    end_ = base + bytes;
  }
  return reinterpret_cast<void*>(at);
}

}  // namespace lathe
