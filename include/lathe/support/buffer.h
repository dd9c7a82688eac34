#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lathe {

// A run of bytes with one owner count: allocated, mapped from a file, or somebody else's memory
// kept alive by a handle. The bytes do not move while the Buffer lives. Creating and destroying is
// thread-safe; writing is the caller's to order.
class Buffer {
 public:
  static constexpr size_t kAlignment = 64;

  // Zeroed, aligned to 64 bytes. Throws limit/memory above the cap, above what the thread's Budget
  // has left, or when the system has no more.
  [[nodiscard]] static std::shared_ptr<Buffer> Allocate(size_t size);

  // Read-only mapping of [offset, offset + size) of a file; the whole rest when size is kToEnd.
  // Throws io/... when it cannot be opened, is not a regular file, or ends before the range does.
  // The descriptor is borrowed and may be closed afterwards; `name` is for messages.
  static constexpr uint64_t kToEnd = ~uint64_t{0};
  [[nodiscard]] static std::shared_ptr<Buffer> MapFile(const std::string& path, uint64_t offset = 0,
                                                       uint64_t size = kToEnd);
  [[nodiscard]] static std::shared_ptr<Buffer> MapDescriptor(int fd, const std::string& name,
                                                             uint64_t offset = 0,
                                                             uint64_t size = kToEnd);

  // Memory of someone else, valid as long as `keep_alive` is held.
  [[nodiscard]] static std::shared_ptr<Buffer> Wrap(const void* data, size_t size,
                                                    std::shared_ptr<const void> keep_alive);
  [[nodiscard]] static std::shared_ptr<Buffer> WrapWritable(void* data, size_t size,
                                                            std::shared_ptr<const void> keep_alive);

  // The largest single allocation allowed, in bytes; 64 GiB unless set. A guard against models that
  // declare absurd shapes; it applies to the whole process.
  static void SetAllocationCap(size_t bytes);
  [[nodiscard]] static size_t AllocationCap();

  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  [[nodiscard]] const std::byte* data() const { return data_; }
  // Precondition: is_writable().
  [[nodiscard]] std::byte* mutable_data();
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool is_writable() const { return writable_; }

 private:
  enum class Kind : uint8_t { kAllocated, kMapped, kWrapped };

  friend class HeldBuffer;

  Buffer(Kind kind, std::byte* data, size_t size, bool writable);

  std::byte* data_;
  size_t size_;
  void* map_base_ = nullptr;  // start of the page-aligned mapping
  size_t map_size_ = 0;
  std::shared_ptr<const void> keep_alive_;
  Kind kind_;
  bool writable_;
};

// Lowers the cap for single allocations of this thread while it lives. Nests.
class AllocationLimit {
 public:
  explicit AllocationLimit(size_t bytes);
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;
  ~AllocationLimit();

 private:
  size_t previous_;
};

}  // namespace lathe
