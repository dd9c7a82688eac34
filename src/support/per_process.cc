#include "lathe/support/per_process.h"

#include <new>

namespace lathe {

uint32_t ForkCount() {
  static std::atomic<uint32_t> forks{0};
  // If that fails, there is no memory for one handler, and no child will get far.
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

void Workers::StartThreads(int count, void* (*work)(void*), void* owner, Create create) noexcept {
  try {
    threads_.reserve(count > 0 ? static_cast<size_t>(count) : 0);
  } catch (const std::bad_alloc&) {
    return;
  }
  for (int i = 0; i < count; ++i) {
    pthread_t thread = {};
    if (create(&thread, nullptr, work, owner) != 0) return;  // a limit is reached
    threads_.push_back(thread);
  }
}

void Workers::Join() {
  for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
  threads_.clear();
}

}  // namespace lathe
