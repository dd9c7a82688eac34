#include "lathe/support/executable_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "lathe/support/error.h"

namespace lathe {
namespace {

[[noreturn]] void Fail(std::string_view what, size_t size) {
  throw Error(
      ErrorCode::kLimit, "limit/memory",
      StrCat("cannot ", what, " ", HumanBytes(size), " for machine code: ", strerror(errno)))
      .Hint("the system may forbid programs to execute what they have written (SELinux, seccomp)");
}

}  // namespace

ExecutableMemory::ExecutableMemory(std::string_view code) : size_(code.size()) {
  if (size_ == 0) return;
  void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Fail("get", size_);
  std::memcpy(memory, code.data(), size_);
  if (mprotect(memory, size_, PROT_READ | PROT_EXEC) != 0) {
    const int reason = errno;
    munmap(memory, size_);
    errno = reason;
    Fail("make executable", size_);
  }
  auto* bytes = static_cast<char*>(memory);
  __builtin___clear_cache(bytes, bytes + size_);
  begin_ = memory;
}

ExecutableMemory::~ExecutableMemory() {
  if (begin_ != nullptr) munmap(begin_, size_);
}

void* ExecutableMemory::At(uint64_t offset) const {
  LATHE_CHECK(offset < size_, "no code at ", offset, " of ", size_);
  return static_cast<char*>(begin_) + offset;
}

void ExecutableMemory::Swap(ExecutableMemory& other) noexcept {
  std::swap(begin_, other.begin_);
  std::swap(size_, other.size_);
}

}  // namespace lathe
