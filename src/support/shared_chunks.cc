#include "lathe/support/shared_chunks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "lathe/support/divide.h"

namespace lathe {
namespace {

thread_local SharedChunks* current = nullptr;

// Whether the system can bring back each page of a range as it was, says /proc/self/pagemap: bit 61
// is set for a page of a file, bits 62 and 63 for one that is swapped or present.
bool AreOfFiles(uint64_t first_page, uint64_t pages) {
  constexpr uint64_t kOfFile = uint64_t{1} << 61, kHeld = uint64_t{3} << 62;
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::array<uint64_t, 512> entries;
  bool all = true;
  while (all && pages > 0) {
    const uint64_t count = std::min<uint64_t>(pages, entries.size());
    const auto bytes = static_cast<ssize_t>(count * sizeof(uint64_t));
    all = pread(fd, entries.data(), static_cast<size_t>(bytes),
                static_cast<off_t>(first_page * sizeof(uint64_t))) == bytes &&
          std::all_of(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(count),
                      [](uint64_t e) { return (e & kOfFile) != 0 || (e & kHeld) == 0; });
    first_page += count;
    pages -= count;
  }
  close(fd);
  return all;
}

// Gives back the whole pages in `bytes` if `may`, told the first one and how many, says so.
template <class F>
void GiveBackPages(std::span<const std::byte> bytes, F&& may) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = CeilDiv(begin, page), last = (begin + bytes.size()) / page;
  if (first < last && may(first, last - first)) {
    madvise(reinterpret_cast<void*>(first * page), (last - first) * page, MADV_DONTNEED);
  }
}

// Part of a chunk.
struct Part {
  std::shared_ptr<Buffer> chunk;
  std::span<const std::byte> bytes;

  Part(std::shared_ptr<Buffer> c, std::span<const std::byte> b) : chunk(std::move(c)), bytes(b) {}
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    GiveBackPages(bytes, [](uintptr_t, uintptr_t) { return true; });
  }
};

}  // namespace

SharedChunks::SharedChunks() : previous_(current) { current = this; }

SharedChunks::~SharedChunks() { current = previous_; }

SharedChunks* SharedChunks::Current() { return current; }

std::shared_ptr<Buffer> SharedChunks::Take(size_t size) {
  const size_t rounded = (size + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
  if (chunk_ == nullptr || rounded > chunk_->size() - used_) {
    chunk_ = Buffer::Allocate(kChunk);
    used_ = 0;
  }
  std::byte* begin = chunk_->mutable_data() + used_;
  used_ += rounded;
  auto part = std::make_shared<const Part>(chunk_, std::span<const std::byte>(begin, rounded));
  return Buffer::WrapWritable(begin, size, std::move(part));
}

void ReleaseFilePages(std::span<const std::byte> bytes) { GiveBackPages(bytes, AreOfFiles); }

}  // namespace lathe
