#include "lathe/support/buffer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "lathe/support/budget.h"
#include "lathe/support/divide.h"
#include "lathe/support/error.h"
#include "lathe/support/shared_chunks.h"

namespace lathe {
namespace {

std::atomic<size_t> allocation_cap{size_t{64} << 30};
thread_local size_t thread_cap = ~size_t{0};

std::string Reason(int error) { return std::generic_category().message(error); }

Error MapError(const std::string& name, std::string_view what) {
  return Error(ErrorCode::kIo, "io/map", StrCat("cannot map ", name, ": ", what)).At(name);
}

// The size of a regular file that may be mapped.
uint64_t RegularFileSize(int fd, const std::string& name) {
  struct stat status = {};
  if (fstat(fd, &status) != 0) throw MapError(name, Reason(errno));
  if (!S_ISREG(status.st_mode)) throw MapError(name, "it is not a regular file");
  return static_cast<uint64_t>(status.st_size);
}

Error NoMemory(size_t size) {
  return {ErrorCode::kLimit, "limit/memory",
          StrCat("the system has no memory for an allocation of ", HumanBytes(size))};
}

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLarge = 2 * kHugePage;
constexpr size_t kSmall = size_t{64} << 10;

// `rounded` zeroed bytes, in huge pages where the system has them for those that `size` fills:
// reading weights from them is a quarter faster, and so is getting them.
void* MapLarge(size_t size, size_t rounded) {
  const size_t room = rounded + kHugePage;
  void* all = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) throw NoMemory(size);
  auto* begin = static_cast<std::byte*>(all);
  const size_t lead = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (lead > 0) munmap(begin, lead);
  if (lead < kHugePage) munmap(begin + lead + rounded, kHugePage - lead);
  madvise(begin + lead, size / kHugePage * kHugePage, MADV_HUGEPAGE);  // advice: may fail
  return begin + lead;
}

class OpenFile {
 public:
  // Not waiting: opening a pipe for reading would wait for a writer.
  explicit OpenFile(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ >= 0) return;
    const int error = errno;
    const ErrorCode code = error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    throw Error(code, "io/open", StrCat("cannot open ", path, ": ", Reason(error))).At(path);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { close(fd_); }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

// A small buffer with inline storage: one allocation instead of three. An interpreter allocates one
// for each scalar.
class HeldBuffer : public Buffer {
 public:
  static constexpr size_t kMost = 64;

  explicit HeldBuffer(size_t size) : Buffer(Kind::kAllocated, nullptr, size, true) {
    const size_t misaligned = reinterpret_cast<uintptr_t>(held_) % kAlignment;
    data_ = held_ + (kAlignment - misaligned) % kAlignment;
  }

 private:
  std::byte held_[kMost + kAlignment] = {};
};

Buffer::Buffer(Kind kind, std::byte* data, size_t size, bool writable)
    : data_(data), size_(size), kind_(kind), writable_(writable) {}

Buffer::~Buffer() {
  if (map_base_ == nullptr) return;
  if (kind_ == Kind::kAllocated && map_size_ == 0) {
    std::free(map_base_);
  } else {
    munmap(map_base_, map_size_);
  }
}

std::shared_ptr<Buffer> Buffer::Allocate(size_t size) {
  const size_t cap = std::min(AllocationCap(), thread_cap);
  if (size > cap || size > ~size_t{0} - kAlignment) {
    throw Error(
        ErrorCode::kLimit, "limit/memory",
        StrCat("an allocation of ", HumanBytes(size), " is above the limit of ", HumanBytes(cap)))
        .Hint("is a shape wrong? The limit can be raised with Buffer::SetAllocationCap");
  }
  const Budget* const budget = Budget::Current();
  std::shared_ptr<const void> claim = budget == nullptr ? nullptr : budget->Claim(size);
  SharedChunks* const chunks = claim == nullptr ? SharedChunks::Current() : nullptr;
  if (chunks != nullptr && size >= kSmall && size < kLarge && cap >= SharedChunks::kChunk) {
    return chunks->Take(size);
  }
  if (size <= HeldBuffer::kMost && claim == nullptr) return std::make_shared<HeldBuffer>(size);
  std::shared_ptr<Buffer> buffer(new Buffer(Kind::kAllocated, nullptr, size, true));
  buffer->keep_alive_ = std::move(claim);
  if (size >= kLarge) {
    buffer->map_size_ = RoundUp(size, kHugePage);
    buffer->map_base_ = MapLarge(size, buffer->map_size_);
    buffer->data_ = static_cast<std::byte*>(buffer->map_base_);
    return buffer;
  }
  // calloc hands out untouched zero pages for large sizes, which aligned_alloc does not.
  void* base = std::calloc(1, size + kAlignment);
  if (base == nullptr) {
    throw NoMemory(size);
  }
  buffer->map_base_ = base;
  const size_t misaligned = reinterpret_cast<uintptr_t>(base) % kAlignment;
  buffer->data_ = static_cast<std::byte*>(base) + (kAlignment - misaligned) % kAlignment;
  return buffer;
}

std::shared_ptr<Buffer> Buffer::MapFile(const std::string& path, uint64_t offset, uint64_t size) {
  const OpenFile file(path);
  return MapDescriptor(file.fd(), path, offset, size);
}

std::shared_ptr<Buffer> Buffer::MapDescriptor(int fd, const std::string& name, uint64_t offset,
                                              uint64_t size) {
  const uint64_t file_size = RegularFileSize(fd, name);
  if (offset > file_size || (size != kToEnd && size > file_size - offset)) {
    const std::string wanted = size == kToEnd ? "" : StrCat(" and ", size, " bytes from there");
    throw MapError(name, StrCat("the file has ", file_size, " bytes, but offset ", offset, wanted,
                                " is needed"));
  }
  if (size == kToEnd) size = file_size - offset;
  std::shared_ptr<Buffer> buffer(new Buffer(Kind::kMapped, nullptr, size, false));
  if (size == 0) return buffer;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t lead = offset % page;
  void* base =
      mmap(nullptr, size + lead, PROT_READ, MAP_PRIVATE, fd, static_cast<off_t>(offset - lead));
  if (base == MAP_FAILED) throw MapError(name, Reason(errno));
  buffer->map_base_ = base;
  buffer->map_size_ = size + lead;
  buffer->data_ = static_cast<std::byte*>(base) + lead;
  return buffer;
}

std::shared_ptr<Buffer> Buffer::Wrap(const void* data, size_t size,
                                     std::shared_ptr<const void> keep_alive) {
  auto* bytes = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  std::shared_ptr<Buffer> buffer(new Buffer(Kind::kWrapped, bytes, size, false));
  buffer->keep_alive_ = std::move(keep_alive);
  return buffer;
}

std::shared_ptr<Buffer> Buffer::WrapWritable(void* data, size_t size,
                                             std::shared_ptr<const void> keep_alive) {
  std::shared_ptr<Buffer> buffer = Wrap(data, size, std::move(keep_alive));
  buffer->writable_ = true;
  return buffer;
}

void Buffer::SetAllocationCap(size_t bytes) { allocation_cap.store(bytes); }
size_t Buffer::AllocationCap() { return allocation_cap.load(); }

std::byte* Buffer::mutable_data() {
  LATHE_CHECK(writable_, "write to a read-only buffer");
  return data_;
}

AllocationLimit::AllocationLimit(size_t bytes) : previous_(thread_cap) {
  thread_cap = std::min(thread_cap, bytes);
}

AllocationLimit::~AllocationLimit() { thread_cap = previous_; }

}  // namespace lathe
