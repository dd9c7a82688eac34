#include "lathe/support/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace lathe {

void GiveUpPages(const void* data, size_t bytes) {
#ifdef MADV_PAGEOUT
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (begin + page - 1) / page * page, last = (begin + bytes) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_PAGEOUT);
#else
  static_cast<void>(data), static_cast<void>(bytes);
#endif
}

}  // namespace lathe
