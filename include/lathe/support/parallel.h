#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "lathe/support/per_process.h"

namespace lathe {

namespace internal {
// A borrowed callable void(int64_t begin, int64_t end).
struct RangeFunction {
  void* object;
  void (*call)(void* object, int64_t begin, int64_t end);

  void operator()(int64_t begin, int64_t end) const { call(object, begin, end); }
};
}  // namespace internal

// Worker threads that sleep when there is nothing to do. One loop at a time per pool; a loop
// started inside a loop runs on the thread that started it. Loops may be started from several
// threads. A forked child starts threads of its own with its first loop.
class ThreadPool {
 public:
  // `threads` counts the caller, so 1 starts none; 0 means as many as the process may use. Where
  // the system gives fewer, there are fewer.
  explicit ThreadPool(int threads = 0);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();  // joins

  [[nodiscard]] int threads() const;  // that there are

  // Calls fn(b, e) for [begin, end) cut at begin + k * grain: the pieces depend on the arguments
  // only, never on the number of threads; which thread runs which piece is open. Returns when all
  // are done. The exception of the lowest piece that threw is rethrown; pieces not begun by then
  // may be left out. grain >= 1.
  template <class F>
  void ParallelFor(int64_t begin, int64_t end, int64_t grain, F&& fn) {
    using Fn = std::remove_reference_t<F>;
    Run(begin, end, grain,
        {const_cast<void*>(static_cast<const void*>(std::addressof(fn))),
         [](void* object, int64_t b, int64_t e) { (*static_cast<Fn*>(object))(b, e); }});
  }

 private:
  struct Impl;

  void Run(int64_t begin, int64_t end, int64_t grain, internal::RangeFunction fn);

  mutable PerProcess<Impl> impl_;
};

// CPUs this process may run on (affinity mask, quota of control groups), at least 1.
[[nodiscard]] int HardwareThreads();

// The pool of the process, started on first use, of HardwareThreads() threads. Results never depend
// on it.
[[nodiscard]] ThreadPool& DefaultThreadPool();

template <class F>
void ParallelFor(int64_t begin, int64_t end, int64_t grain, F&& fn) {
  DefaultThreadPool().ParallelFor(begin, end, grain, std::forward<F>(fn));
}

}  // namespace lathe
